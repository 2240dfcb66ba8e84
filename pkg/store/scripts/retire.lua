-- retire notes that a slice leases nothing more and only ends what it has in flight:
-- its place is free for another, which is rung if the job can use one.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen
-- Answers {1 when the slice is registered, rings…}
--# include outbox.lua
--# include job.lua
--# include slices.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local state = redis.call('HGET', job, 'state')
if not state or terminal(state) or not redis.call('ZSCORE', job .. ':slices', ARGV[3]) then return {0} end
local answer = {1}
--# include when_full.lua
if redis.call('SADD', job .. ':retiring', ARGV[3]) == 1 and state == 'running' then
  if short(now) > 0 then ring(answer, id, now) end
  wake(now + REPEAT)
end
return answer
