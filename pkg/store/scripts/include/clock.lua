-- clock answers the time in ms. Redis is the only clock; a test passes its own. (job.lua has
-- the same for scripts about a job.)
local function clock(arg)
  if arg ~= '' then return tonumber(arg) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function int(n) return string.format('%.0f', n) end
