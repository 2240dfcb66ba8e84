-- quota puts a tenant's own quota where its jobs are. It holds from now on, of each
-- bound the smaller of it and what the service grants, which create keeps.
--
-- KEYS  1 root
-- ARGV  1 now, then 0 for no bound: 2 max_queued, 3 max_running, 4 pages_per_day,
--       5 submissions_per_second
-- Answers {rings…} of jobs that may start, or go on
--# include outbox.lua
--# include job.lua
--# include gate.lua
--# include slices.lua
--# include day.lua
local now = clock(ARGV[1])
for i, name in ipairs(QUOTAS) do
  local own = ARGV[i + 1]
  if own == '0' then
    redis.call('HDEL', root, 'own:' .. name)
  else
    redis.call('HSET', root, 'own:' .. name, own)
  end
end
local answer = {}
gate(answer, now)
resume(answer, now)
return answer
