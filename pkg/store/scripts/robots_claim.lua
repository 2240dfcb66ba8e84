-- robots_claim answers what is known of the robots.txt of an origin. Where nothing
-- is, or what is known has aged, one caller of all is told to fetch it.
--
-- KEYS  1 robots of the origin
-- ARGV  1 now, 2 the claim: unique to this call, 3 ms that the fetch may take
-- Answers {verdict, rules, or why there are none, ms, tries}
--   known        ms: how long the rules hold
--   fetch        the caller fetches, and tells by robots_learn
--   busy         another fetches; ms: until its claim is over, at most
--   unreachable  the last fetch failed; ms: until the next one
--   given_up     as unreachable, too often; ms: until all begins anew
local now = ARGV[1]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
now = tonumber(now)
local h = redis.call('HMGET', KEYS[1], 'state', 'rules', 'until', 'tries', 'claim', 'claimed_until', 'why')
local left, tries = tonumber(h[3] or 0) - now, tonumber(h[4] or 0)
if h[1] and left > 0 then
  if h[1] == 'known' then return {'known', h[2], left, 0} end
  return {h[1], h[7], left, tries}
end
if h[5] and h[5] ~= '' and h[5] ~= ARGV[2] and tonumber(h[6]) > now then
  return {'busy', '', tonumber(h[6]) - now, tries}
end
--# include when_full.lua
if h[1] == 'given_up' then redis.call('HSET', KEYS[1], 'tries', 0) end
redis.call('HSET', KEYS[1], 'claim', ARGV[2], 'claimed_until', string.format('%.0f', now + tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[1], 86400000) -- aged rules may stand in for a day, see robots_learn
return {'fetch', '', 0, tries}
