-- host_delay keeps a host from being asked again before a while has passed: it said so
-- itself, in a Retry-After. A later start that is booked already stays.
--
-- KEYS  1 the next start time of the host
-- ARGV  1 now, 2 ms
-- Answers nothing
local now = ARGV[1]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local at = tonumber(now) + tonumber(ARGV[2])
--# include when_full.lua
if at > tonumber(redis.call('GET', KEYS[1]) or 0) then
  redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', string.format('%.0f', tonumber(ARGV[2]) + 1000))
end
