-- settled counts a page that was settled just now, for the tenant's pages of the day: see
-- day.lua. now is as of clock, which would cost more than the day needs. It is the first
-- page of a day that drops the count of the last one: a key with an expiry costs half as
-- much again, and a field of a hash three times as much.
local function settled(now)
  local day
  if now == '' then day = redis.call('TIME')[1] / 86400 else day = now / 86400000 end
  day = math.floor(day)
  local key = root .. ':day:' .. int(day)
  if redis.call('INCR', key) > 1 then return end
  local last = tonumber(redis.call('HGET', root, 'day') or 0)
  if last < day then
    redis.call('UNLINK', root .. ':day:' .. last)
    redis.call('HSET', root, 'day', day)
  elseif last > day then
    redis.call('PEXPIRE', key, 86400000) -- a clock that went back, over midnight
  end
end
