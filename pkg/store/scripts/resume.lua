-- resume has a paused job go on. It stands in line at the run gate again, by its creation number.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id
-- Answers {verdict, state of the job, rings…}; verdict is one of
--   done   the job is in that state now: of one that was not paused the one that it had
--   wrong  it is cancelling or has ended, as the state says: nothing changed
--   newer  it is of a newer format: nothing changed
--   gone   it was removed; in place of the state stands when, in ms
--   none   there is no such job
--# include outbox.lua
--# include job.lua
--# include gate.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'gone', 'seq', 'format', 'rest_until')
local state = h[1]
if h[2] then return {'gone', tonumber(h[2])} end
if not state then return {'none'} end
if state == 'cancelling' or terminal(state) then return {'wrong', state} end
if state ~= 'paused' then return {'done', state} end
if newer(h[4]) then return {'newer', state} end
--# include when_full.lua
-- Hosts that are to be left alone are so still; what is over is not what the job waits for.
if h[5] and now >= tonumber(h[5]) then redis.call('HDEL', job, 'rest_until', 'rest_for') end
redis.call('HDEL', job, 'paused_until', 'error', 'day_until')
redis.call('HSET', job, 'state', 'queued', 'resumed', int(now))
redis.call('SREM', root .. ':paused', id)
redis.call('ZADD', root .. ':waiting', h[3], id)
flies()
local answer = {'done', ''}
gate(answer, now)
answer[2] = redis.call('HGET', job, 'state')
return answer
