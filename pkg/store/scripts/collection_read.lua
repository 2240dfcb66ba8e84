-- collection_read reads one collection and, if asked, what is counted of its items, all of one
-- moment.
--
-- KEYS  1 root
-- ARGV  1 name, 2 values of each facet at most, 0 for nothing of what is counted
-- Answers {} without the collection, else {info as in shown.lua, then of each facet its name,
--         number of values, {value, number of items below zero…}, '' and, of each number field,
--         its name, how many items have it, both parts of the sum, and least and greatest, each as
--         member and score of num}
local root = KEYS[1]
--# include clock.lua
--# include items.lua
--# include shown.lua
local answer = {info(ARGV[1])}
if not answer[1] or ARGV[2] == '0' then return answer end
local d, def = data(ARGV[1]), cjson.decode(answer[1][2])
local function add(v) answer[#answer + 1] = v end
for _, name in ipairs(def.facets or {}) do
  add(name)
  add(redis.call('ZCARD', d .. ':facet:' .. name))
  add(redis.call('ZRANGE', d .. ':facet:' .. name, 0, ARGV[2] - 1, 'WITHSCORES'))
end
add('')
for _, name in ipairs(def.numbers or {}) do
  local set, sum = d .. ':num:' .. name, redis.call('HMGET', d .. ':sums', name .. '.high', name .. '.low')
  add(name)
  add(redis.call('ZCARD', set))
  add(sum[1] or '0')
  add(sum[2] or '0')
  add(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES'))
  add(redis.call('ZRANGE', set, -1, -1, 'WITHSCORES'))
end
return answer
