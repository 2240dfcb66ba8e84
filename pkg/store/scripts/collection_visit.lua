-- collection_visit reads what is kept of the last visit to a page.
--
-- KEYS  1 root
-- ARGV  1 name of the collection, 2 digest of the URL of the page
-- Answers {what is kept}, or {} for nothing
local root = KEYS[1]
--# include clock.lua
--# include items.lua
--# include shown.lua
local d = data(ARGV[1])
local kept = d and (redis.call('HGET', d .. ':visits', ARGV[2]) or redis.call('HGET', d .. ':visits_old', ARGV[2]))
if not kept then return {} end
return {string.sub(kept, string.find(kept, '\n', 1, true) + 1)}
