-- pause stops a job from leasing anything more. It gives its place at the run gate free, and its
-- time limit stands still. What is in flight goes on, and may be the last of the job.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id
-- Answers {verdict, state of the job, rings…}; verdict is one of
--   done   the job is in that state now
--   wrong  it is cancelling or has ended, as the state says: nothing changed
--   newer  it is of a newer format: nothing changed
--   gone   it was removed; in place of the state stands when, in ms
--   none   there is no such job
--# include outbox.lua
--# include job.lua
--# include gate.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'gone', 'deadline', 'format')
local state = h[1]
if h[2] then return {'gone', tonumber(h[2])} end
if not state then return {'none'} end
if state == 'cancelling' or terminal(state) then return {'wrong', state} end
if state == 'paused' then return {'done', state} end
if newer(h[4]) then return {'newer', state} end
--# include when_full.lua
redis.call('HDEL', job, 'error', 'ring_gap', 'more_gap', 'more_served', 'day_until', 'deadline')
redis.call('HSET', job, 'state', 'paused', 'paused_until', int(now + MAX_PAUSE), 'rung', 0)
if h[3] then redis.call('HSET', job, 'time_left', int(math.max(0, tonumber(h[3]) - now))) end
redis.call('SREM', root .. ':running', id)
redis.call('ZREM', root .. ':waiting', id)
redis.call('SADD', root .. ':paused', id)
flies()
wake(now + MAX_PAUSE)
local answer = {'done', 'paused'}
gate(answer, now)
return answer
