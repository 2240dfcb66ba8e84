-- collection_delete_item removes one item of a collection. The page that gave it last is read
-- in full when it is crawled again.
--
-- KEYS  1 root
-- ARGV  1 now, 2 name, 3 digest of the key
-- Answers {1} if it was there, {0} if there is no such item, {-1} if no such collection, {-2} if
--         that is of a newer format
local root = KEYS[1]
--# include clock.lua
--# include items.lua
--# include shown.lua
--# include define.lua
local d, c = data(ARGV[2]), root .. ':c:' .. ARGV[2]
if not d then return {-1} end
if beyond(redis.call('HGET', c, 'format')) then return {-2} end
local known = redis.call('HGET', d .. ':ids', ARGV[3])
if not known then return {0} end
local n = tonumber(string.sub(known, 33))
redis.call('HDEL', d .. ':ids', ARGV[3])
redis.call('HDEL', bucket(d, 'item', n), int(n))
recount(d, n, redis.call('HGET', bucket(d, 'counted', n), int(n)) or '', '')
if unlist(d, n, series_of(d, n)) == 1 then redis.call('HINCRBY', c, 'missing', -1) end
forget(d, string.sub(known, 17, 32))
redis.call('HSET', c, 'updated', int(clock(ARGV[1])))
return {1}
