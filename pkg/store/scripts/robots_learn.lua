-- robots_learn keeps what a fetch of the robots.txt of an origin gave, for all workers.
-- While the origin fails, rules that were learned within a day stand in (RFC 9309
-- section 2.4); without any, each failure waits three times as long as the one before.
--
-- KEYS  1 robots of the origin
-- ARGV  1 now, 2 the claim, 3 rules, or '' when it could not be reached,
--       4 ms that the rules hold, or the first wait after a failure,
--       5 tries after which the origin is given up, 6 ms until a given up one is tried anew,
--       7 least ms to wait: the site's own wish, 8 why it could not be reached
-- Answers {verdict, rules or why, ms, tries} as robots_claim does, without fetch and busy
local now = ARGV[1]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
now = tonumber(now)
local DAY, STAND_IN, LARGE = 86400000, 300000, 65536
local h = redis.call('HMGET', KEYS[1], 'rules', 'learned', 'tries', 'claim', 'state', 'until', 'why')

local function keep(state, rules, ms, tries)
  redis.call('HSET', KEYS[1], 'state', state, 'until', string.format('%.0f', now + ms), 'tries', tries, 'claim', '')
  -- Aged rules stand in for a day, but not those that take the room of a thousand others.
  local keep_for = DAY
  if #rules > LARGE then keep_for = 0 end
  redis.call('PEXPIRE', KEYS[1], math.max(keep_for, ms))
  return {state, rules, ms, tries}
end

--# include when_full.lua
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'rules', ARGV[3], 'learned', string.format('%.0f', now))
  return keep('known', ARGV[3], tonumber(ARGV[4]), 0)
end
if h[1] and now - tonumber(h[2]) < DAY then return keep('known', h[1], STAND_IN, 0) end
local tries = tonumber(h[3] or 0)
-- A failure that comes after its claim was over tells nothing that was not told again.
if h[4] ~= ARGV[2] and h[5] and h[5] ~= 'known' and tonumber(h[6]) > now then
  return {h[5], h[7], tonumber(h[6]) - now, tries}
end
tries = tries + 1
redis.call('HSET', KEYS[1], 'why', ARGV[8])
if tries >= tonumber(ARGV[5]) then return keep('given_up', ARGV[8], tonumber(ARGV[6]), tries) end
local wait = tonumber(ARGV[4])
for _ = 2, tries do wait = wait * 3 end
return keep('unreachable', ARGV[8], math.max(wait, tonumber(ARGV[7])), tries)
