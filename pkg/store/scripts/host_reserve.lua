-- host_reserve grants start times and concurrency slots of one host, across all
-- jobs, tenants and workers. Answers are durations: no absolute time leaves the
-- shard that the host lives on. A slot falls free with its deadline, so a killed
-- worker's do.
--
-- KEYS  1 slots of the host (ZSET "slice/k" by deadline), 2 its next start time
-- ARGV  1 now, 2 slice, 3 k of the first slot, 4 how many, 5 delay ms,
--       6 concurrency, 7 horizon ms: no start later than that is granted,
--       8 ms a slot lives without renewal
-- Answers {ms until another call can grant more, ms until the start of each grant…}; the
--         first is 0 when all were granted, -1 when no slot is free, which ends at a
--         time that nobody knows, and with no grant at all the wait for the next start
local now = ARGV[1]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
else
  now = tonumber(now)
end
local function int(s) return string.format('%.0f', s) end
local delay, horizon = tonumber(ARGV[5]), tonumber(ARGV[7])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
local free = tonumber(ARGV[6]) - redis.call('ZCARD', KEYS[1])
local start = math.max(now, tonumber(redis.call('GET', KEYS[2]) or 0))
local deadline = int(now + tonumber(ARGV[8]))
local answer, add = {0}, {}
for k = 1, math.min(tonumber(ARGV[4]), free) do
  if start - now > horizon then break end
  answer[#answer + 1] = start - now
  add[#add + 1] = deadline
  add[#add + 1] = ARGV[2] .. '/' .. int(tonumber(ARGV[3]) + k - 1)
  start = start + delay
end
if #add > 0 then
  redis.call('ZADD', KEYS[1], unpack(add))
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  if delay > 0 then redis.call('SET', KEYS[2], int(start), 'PX', int(start - now + 1000)) end
end
if #answer - 1 < tonumber(ARGV[4]) then
  if start - now <= horizon then
    answer[1] = -1
  elseif #answer == 1 then
    answer[1] = start - now
  else
    answer[1] = start - now - horizon
  end
end
return answer
