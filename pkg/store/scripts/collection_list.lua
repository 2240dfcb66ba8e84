-- collection_list reads the collections of a tenant, by name.
--
-- KEYS  1 root
-- ARGV  1 the name before the first, or '', 2 how many at most
-- Answers {1 when there are more, info of each as in shown.lua…}
local root = KEYS[1]
--# include clock.lua
--# include items.lua
--# include shown.lua
local limit = tonumber(ARGV[2])
local names = redis.call('ZRANGEBYLEX', root .. ':collections', ARGV[1] == '' and '-' or '(' .. ARGV[1], '+',
  'LIMIT', 0, limit + 1)
local answer = {#names > limit and 1 or 0}
for i = 1, math.min(limit, #names) do answer[i + 1] = info(names[i]) end
return answer
