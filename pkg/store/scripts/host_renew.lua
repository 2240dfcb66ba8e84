-- host_renew prolongs the slots that a slice still uses; one that fell free
-- already is not taken again.
--
-- KEYS  1 slots of the host
-- ARGV  1 now, 2 ms to live, 3… slots
local now = ARGV[1]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local at = string.format('%.0f', tonumber(now) + tonumber(ARGV[2]))
-- First what needs no memory: a full Redis refuses none of the writes behind it.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
for i = 3, #ARGV do redis.call('ZADD', KEYS[1], 'XX', at, ARGV[i]) end
