-- list reads a tenant's jobs, newest first. It looks at no more than 200 jobs a
-- call, however few of them fit the filter: the work is bounded, the caller goes on.
--
-- KEYS  1 root
-- ARGV  1 before (a job's seq; '' for the newest), 2 limit, 3 state or '',
--       4 tag as JSON string or '', 5 created after, ms
-- Answers {next before, 1 when there is more, then id, status… of each}
--# include outbox.lua
--# include job.lua
--# include status.lua
local max = '+inf'
if ARGV[1] ~= '' then max = '(' .. ARGV[1] end
local LOOK = 200
local found = redis.call('ZREVRANGEBYSCORE', root .. ':jobs', max, '-inf', 'WITHSCORES', 'LIMIT', 0, LOOK)
local limit, answer, last, more = tonumber(ARGV[2]), {0, 0}, 0, #found == 2 * LOOK
for i = 1, #found, 2 do
  id, job = found[i], root .. ':j:' .. found[i]
  local h = redis.call('HMGET', job, 'state', 'created', 'tags')
  last = found[i + 1]
  if h[1] then
    -- seq and creation time rise together: what follows is older still.
    if tonumber(h[2]) <= tonumber(ARGV[5]) then more = false; break end
    if (ARGV[3] == '' or h[1] == ARGV[3]) and (ARGV[4] == '' or string.find(h[3], ARGV[4], 1, true)) then
      answer[#answer + 1] = id
      answer[#answer + 1] = status()
      if #answer == 2 + 2 * limit then more = more or i + 1 < #found; break end
    end
  end
end
answer[1], answer[2] = tonumber(last), more and 1 or 0
return answer
