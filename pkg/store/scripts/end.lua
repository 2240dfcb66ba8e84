-- end closes a slice: whatever it still holds, known to it or leased by an answer
-- that it never saw, goes back, and the job is rung if it can use another.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 ms for which the job rests before it is rung,
--       0 for not, negative to end a rest that another slice asked for, 5 what it rests for, as
--       its status tells it, or '' where its URLs do
-- Answers {URLs given back, rings…}
--# include outbox.lua
--# include job.lua
--# include gate.lua
--# include ends.lua
--# include slices.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local gen = ARGV[3]
if redis.call('ZREM', job .. ':slices', gen) == 0 then return {0} end
redis.call('SREM', job .. ':retiring', gen)
local h = redis.call('HMGET', job, 'state', 'maps')
local state = h[1]
local rows = redis.call('ZRANGEBYSCORE', job .. ':leased', gen, gen)
local answer = {#rows}
if #rows > 0 then
  redis.call('ZREMRANGEBYSCORE', job .. ':leased', gen, gen)
  if state == 'cancelling' then
    redis.call('RPUSH', job .. ':cancelled_queued', unpack(rows))
    redis.call('HINCRBY', job, 'cancelled', #rows)
  else
    redis.call('LPUSH', job .. ':queued', unpack(rows))
  end
end
if h[2] then
  local maps = redis.call('ZRANGEBYSCORE', job .. ':maps_leased', gen, gen)
  for _, row in ipairs(maps) do redis.call('ZADD', job .. ':maps', int(now), row) end
  redis.call('ZREMRANGEBYSCORE', job .. ':maps_leased', gen, gen)
  answer[1] = answer[1] + #maps
end
if state == 'cancelling' then
  if redis.call('EXISTS', job .. ':leased') == 0 then
    finish(answer, now, 'cancelled', redis.call('HGET', job, 'stop'))
  end
elseif state == 'running' then
  local rest = tonumber(ARGV[4])
  if rest > 0 then
    redis.call('HSET', job, 'rest_until', int(now + rest), 'rest_for', ARGV[5])
    wake(now + rest)
  elseif rest < 0 then
    redis.call('HDEL', job, 'rest_until', 'rest_for')
  end
  if short(now) > 0 then ring(answer, id, now) end -- one: the slice that it becomes asks for more
  local at = first_due(h[2], '-inf')
  if at then wake(at) end
  wake(now + REPEAT) -- should the ring be lost
end
return answer
