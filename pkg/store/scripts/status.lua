-- status reads a job.
--
-- KEYS  1 root, 2 job
-- ARGV  1 id
-- Answers {{field, value…}, queued, leased, deferred, rank among the waiting or -1,
--         registered slices, when the next deferred URL is due or '', spec}
--# include outbox.lua
--# include job.lua
--# include status.lua
id, job = ARGV[1], KEYS[2]
local answer = status()
answer[8] = redis.call('GET', job .. ':spec') or ''
return answer
