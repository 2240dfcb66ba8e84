-- begin registers a slice: a worker's turn at a job. The first one makes the job
-- running. A ring that finds enough live slices, or nothing due, dies out here, and so
-- does one that finds the tenant's pages of the day used up.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 nonce: a begin sent twice is one slice
-- Answers {gen, plan, rings…}; gen is the slice's token, 0 when it was declined
--# include outbox.lua
--# include job.lua
--# include slices.lua
--# include day.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'time_limit', 'begun', 'maps')
if h[1] ~= 'queued' and h[1] ~= 'running' then return {0, ''} end
if h[3] then
  local nonce, gen = string.match(h[3], '^(%S+) (%d+)$')
  if nonce == ARGV[3] then return {tonumber(gen), redis.call('GET', job .. ':plan')} end
end
local lacking = short(now)
redis.call('HSET', job, 'rung', 0)
if lacking > 0 then
  local left, open = day_left(now)
  if left and left <= 0 then
    rest_for_day(now, open)
    redis.call('HDEL', job, 'error') -- of a ring that was refused: this one was not
    lacking = 0
  end
end
if lacking <= 0 then
  -- What is deferred is rung by the sweep when it is due.
  local at = first_due(h[4], '-inf')
  if at then wake(at) end
  return {0, ''}
end
local gen = redis.call('HINCRBY', job, 'gen', 1)
redis.call('HSET', job, 'begun', ARGV[3] .. ' ' .. gen)
redis.call('ZADD', job .. ':slices', int(now + LEASE), gen)
redis.call('HDEL', job, 'error', 'ring_gap', 'more_gap', 'rest_until', 'day_until')
if h[1] == 'queued' then
  redis.call('HSET', job, 'state', 'running', 'started', int(now))
  if h[2] ~= '0' then
    redis.call('HSET', job, 'deadline', int(now + tonumber(h[2])))
    wake(now + tonumber(h[2]))
  end
  outbox(id, 'job.running', now)
end
wake(now + LEASE)
local answer = {gen, redis.call('GET', job .. ':plan')}
for _ = 2, lacking do ring(answer, id, now) end
return answer
