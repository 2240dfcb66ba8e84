-- delete removes an ended job and all that it holds, before its retention is over.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id
-- Answers {verdict, when it expired in ms}: deleted, running (it has not ended),
--         gone (it was removed before), newer (it is of a newer format, and has keys that
--         are not known here), none
--# include outbox.lua
--# include job.lua
--# include expire.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'gone', 'format')
if h[2] then return {'gone', tonumber(h[2])} end
if not h[1] then return {'none', 0} end
if not terminal(h[1]) then return {'running', 0} end
if newer(h[3]) then return {'newer', 0} end
expire(now)
return {'deleted', now}
