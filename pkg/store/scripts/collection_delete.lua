-- collection_delete removes a collection at once; what it held is freed in several calls.
--
-- KEYS  1 root
-- ARGV  1 name, '' to go on, 2 how many keys to free at most
-- Answers {1 if the collection was there, -1 if it is of a newer format and was left, 1 when there is more to free}
local root = KEYS[1]
--# include clock.lua
--# include drop.lua
--# include define.lua
local c, there = root .. ':c:' .. ARGV[1], 0
if ARGV[1] ~= '' then
  local h = redis.call('HMGET', c, 'data', 'seq', 'series', 'def', 'format')
  if not h[1] then return {0, 0} end
  if beyond(table.remove(h)) then return {-1, 0} end
  there = 1
  redis.call('ZREM', root .. ':collections', ARGV[1])
  redis.call('DEL', c)
  redis.call('ZADD', root .. ':dropped', 0, table.concat(h, ' '))
end
return {there, drop(tonumber(ARGV[2]))}
