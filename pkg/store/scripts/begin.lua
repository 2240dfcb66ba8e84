-- begin registers a slice: a worker's turn at a job. The first one makes the job
-- running. A ring that finds enough live slices, or nothing due, dies out here, and so
-- does one that finds the tenant's pages of the day used up.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 nonce: a begin sent twice is one slice
-- Answers {gen, plan, rings…}; gen is the slice's token, 0 when it was declined, -1 when the job
--         is of a newer format: nothing changed, and a newer worker takes the ring
--
-- On a full Redis it is refused: what a slice brings needs memory, and its ring comes again.
--# include outbox.lua
--# include job.lua
--# include slices.lua
--# include day.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'time_limit', 'begun', 'maps', 'format', 'gen', 'more_served',
  'error', 'ring_gap', 'rest_until', 'day_until')
if h[1] ~= 'queued' and h[1] ~= 'running' then return {0, ''} end
-- A ring of before a pause finds a job that waits at the gate again.
if h[1] == 'queued' and redis.call('SISMEMBER', root .. ':running', id) == 0 then return {0, ''} end
if newer(h[5]) then return {-1, ''} end
if h[3] then
  local nonce, gen = string.match(h[3], '^(%S+) (%d+)$')
  if nonce == ARGV[3] then return {tonumber(gen), redis.call('GET', job .. ':plan')} end
end
local lacking = short(now)
if lacking > 0 then
  local left, open = day_left(now)
  if left and left <= 0 then
    rest_for_day(now, open)
    redis.call('HDEL', job, 'error') -- of a ring that was refused: this one was not
    lacking = 0
  end
end
if lacking <= 0 then
  redis.call('HSET', job, 'rung', 0)
  -- What is deferred is rung by the sweep when it is due.
  local at = first_due(h[4], '-inf')
  if at then wake(at) end
  return {0, ''}
end
-- The time, and not the next number: a failover that lost the last second, or a backup that was
-- restored, takes the number back, and a slice of before would have the token of another. What
-- was lost was begun before now, by clocks that differ by less than a failover takes. It is exact
-- as a score, which is a double, for 280,000 years. The numbers of rings may go back: a ring is
-- but a name in the queue, and one whose name is there already is on its way to this job. Where its
-- slice never comes, since it was of before, the sweep makes the next number.
local gen = math.max(tonumber(h[6] or 0) + 1, now)
redis.call('HSET', job, 'rung', 0, 'gen', int(gen), 'begun', ARGV[3] .. ' ' .. int(gen))
redis.call('ZADD', job .. ':slices', int(now + LEASE), int(gen))
if h[8] or h[9] or h[10] or h[11] then redis.call('HDEL', job, 'error', 'ring_gap', 'rest_until', 'day_until') end
local at = now + LEASE
if h[1] == 'queued' then
  redis.call('HSET', job, 'state', 'running', 'started', int(now))
  if h[2] ~= '0' then
    redis.call('HSET', job, 'deadline', int(now + tonumber(h[2])))
    at = math.min(at, now + tonumber(h[2]))
  end
  outbox(id, 'job.running', now)
end
wake(at)
local answer = {gen, redis.call('GET', job .. ':plan')}
if lacking > 1 or h[7] then
  -- A slice that is one more than there were at the last ring for more says that workers are idle,
  -- and so may the first of all. It rings for two others: all that are idle are found in few steps,
  -- and where none is, two rings die out. Any other took the place of one that ended.
  local others = live(now) - 1
  if others <= 0 or others >= tonumber(h[7] or 0) then
    if h[7] then redis.call('HDEL', job, 'more_gap', 'more_served') end
    for _ = 2, math.min(lacking, 3) do ring(answer, id, now) end
  end
end
return answer
