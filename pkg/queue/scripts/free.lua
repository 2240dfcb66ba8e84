-- free gives the id of a task that will not run by itself back to the next ring.
--
-- KEYS  1 hash of the task, 2 archived, 3 completed
-- ARGV  1 id of the task
-- Answers 1 when the id is free now, 0 when its task waits, runs or is retried.
--
-- A task that asynq's inspector archived while the archive was full is in no list, and its
-- hash, which has no expiry, would hold the id for ever: so the state decides, not the list.
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 1 end
if state == 'archived' then
  redis.call('ZREM', KEYS[2], ARGV[1])
elseif state == 'completed' then
  redis.call('ZREM', KEYS[3], ARGV[1])
else
  return 0
end
redis.call('DEL', KEYS[1])
return 1
