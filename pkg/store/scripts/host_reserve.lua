-- host_reserve grants start times and concurrency slots of one host, across all
-- jobs, tenants and workers. Answers are durations: no absolute time leaves the
-- shard that the host lives on. A slot falls free with its deadline, so a killed
-- worker's do.
--
-- Slices that found no slot stand in line. While they do, nobody takes more than a
-- fair part of the slots, nor one that somebody ahead waits for: else the slice that
-- frees a slot would take it again before any other can ask. Who does not ask again
-- within PATIENCE has left the line.
--
-- KEYS  1 slots of the host (ZSET "slice/k" by deadline), 2 its next start time,
--       3 the line (ZSET "slice limit" by the time it came), 4 (the same by the time it last asked)
-- ARGV  1 now, 2 slice, 3 k of the first slot, 4 how many, 5 delay ms,
--       6 concurrency, 7 horizon ms: no start later than that is granted,
--       8 ms a slot lives without renewal
-- Answers {ms until another call can grant more, ms until the start of each grant…}; the
--         first is 0 when all were granted, -1 when the slots are in use or waited for,
--         which ends at a time that nobody knows, and with no grant at all the wait for
--         the next start
local PATIENCE = 1000 -- ms, four times HostAsk
local now = ARGV[1]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
else
  now = tonumber(now)
end
local function int(s) return string.format('%.0f', s) end
local slice, wanted, delay, concurrency = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local horizon = tonumber(ARGV[7])
local me = slice .. ' ' .. ARGV[6]

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', int(now - PATIENCE))) do
  redis.call('ZREM', KEYS[3], gone)
  redis.call('ZREM', KEYS[4], gone)
end
-- Sent again after its answer was lost: what that granted is not in use.
local names = {}
for k = 1, wanted do names[k] = slice .. '/' .. int(tonumber(ARGV[3]) + k - 1) end
redis.call('ZREM', KEYS[1], unpack(names))
-- While somebody waits who may have fewer requests at once, nobody has more.
local line = redis.call('ZRANGE', KEYS[3], 0, -1)
for _, waits in ipairs(line) do concurrency = math.min(concurrency, tonumber(string.match(waits, '%d+$'))) end
local free = concurrency - redis.call('ZCARD', KEYS[1])
local most = math.min(wanted, free)
local since = redis.call('ZSCORE', KEYS[3], me)
local others = #line
if since then others = others - 1 end
local mine
if others > 0 or most < wanted then
  mine = 0
  for _, slot in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if string.sub(slot, 1, #slice + 1) == slice .. '/' then mine = mine + 1 end
  end
end
if others > 0 then
  local ahead = others
  if since then ahead = redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. since) end
  most = math.min(most, math.max(1, math.floor(concurrency / (others + 1))) - mine, free - ahead)
end

local start = math.max(now, tonumber(redis.call('GET', KEYS[2]) or 0))
local deadline = int(now + tonumber(ARGV[8]))
local answer, add = {0}, {}
for k = 1, most do
  if start - now > horizon then break end
  answer[#answer + 1] = start - now
  add[#add + 1] = deadline
  add[#add + 1] = names[k]
  start = start + delay
end
if #add > 0 then
  redis.call('ZADD', KEYS[1], unpack(add))
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  if delay > 0 then redis.call('SET', KEYS[2], int(start), 'PX', int(start - now + 1000)) end
end
if since and (#add > 0 or start - now > horizon) then
  redis.call('ZREM', KEYS[3], me)
  redis.call('ZREM', KEYS[4], me)
end
if #answer - 1 < wanted then
  if start - now <= horizon then
    answer[1] = -1
    if #add == 0 and mine == 0 then
      redis.call('ZADD', KEYS[3], 'NX', int(now), me)
      redis.call('ZADD', KEYS[4], int(now), me)
      redis.call('PEXPIRE', KEYS[3], 60000)
      redis.call('PEXPIRE', KEYS[4], 60000)
    end
  elseif #answer == 1 then
    answer[1] = start - now
  else
    answer[1] = start - now - horizon
  end
end
return answer
