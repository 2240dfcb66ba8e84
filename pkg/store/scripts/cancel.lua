-- cancel stops a job in O(1): what waits becomes cancelled by renaming its
-- container, what is in flight has a grace to be given back and is then revoked.
-- A job that ended first keeps its end; cancelling twice is harmless.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id
-- Answers {state, ms until what is in flight is revoked, rings…}; state is false
--         when there is no such job
--# include outbox.lua
--# include job.lua
--# include gate.lua
--# include ends.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'cancel_at', 'stop', 'format')
local state = h[1]
if not state or terminal(state) then return {state, 0} end
--# include when_full.lua
if newer(h[4]) then
  -- What it holds is not known here, and to count that wrongly would be for ever. But it must
  -- stop: the next sweep of a worker that knows its format, within some 5 s, does it.
  if state ~= 'cancelling' then
    redis.call('HSET', job, 'cancel_wanted', 1)
    wake(now)
  end
  return {state, 0}
end
local rings = {}
if state == 'cancelling' then
  if now >= tonumber(h[2]) then
    revoke()
    finish(rings, now, 'cancelled', h[3])
  end
else
  wind_down(rings, now, 'cancelled')
end
h = redis.call('HMGET', job, 'state', 'cancel_at')
local answer = {h[1], 0}
if h[1] == 'cancelling' then answer[2] = math.max(0, tonumber(h[2]) - now) end
for _, r in ipairs(rings) do answer[#answer + 1] = r end
return answer
