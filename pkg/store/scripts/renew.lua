-- renew prolongs the one deadline of all that a slice holds, and brings the job's
-- state: it is how a slice that waits for slow pages learns of a cancel.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen
-- Answers {state, rings…}; state is 'lost' when the job goes on without this slice
--# include job.lua
--# include slices.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local state = redis.call('HGET', job, 'state')
if state and terminal(state) then return {state} end
if not redis.call('ZSCORE', job .. ':slices', ARGV[3]) then return {'lost'} end
--# include when_full.lua
redis.call('ZADD', job .. ':slices', 'XX', int(now + LEASE), ARGV[3])
local answer = {state}
if answer[1] == 'running' then ring_more(answer, now) end
return answer
