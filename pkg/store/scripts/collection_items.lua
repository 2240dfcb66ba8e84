-- collection_items reads items of a collection by the place that they have among all, or among
-- those with one value of one facet: O(log n) and what it answers.
--
-- KEYS  1 root
-- ARGV  1 name, 2 number of the item before the first, or 0, 3 items to pass over,
--       4 how many at most, 5 facet, 6 value; or no more
-- Answers {verdict, definition, number of all, 1 when there are more, item as in shown.lua…};
--         the verdict is none without the collection, unknown if it has no such facet, or ok
local root = KEYS[1]
--# include clock.lua
--# include items.lua
--# include shown.lua
--# include filters.lua
local d, def = data(ARGV[1]), redis.call('HGET', root .. ':c:' .. ARGV[1], 'def')
if not d then return {'none'} end
local after, offset, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local filters = filters_from(d, def, 5)
if not filters then return {'unknown', def} end
local from = filters[1] or {set = d .. ':order', head = '', all = redis.call('ZCARD', d .. ':order')}
local found = {}
if after > 0 then
  found = behind(from, after, limit + 1)
elseif offset < from.all then
  local first = offset
  if from.head ~= '' then first = first + redis.call('ZLEXCOUNT', from.set, '-', '(' .. from.head) end
  found = redis.call('ZRANGE', from.set, int(first), int(first + math.min(limit + 1, from.all - offset) - 1))
end
local answer = {'ok', def, from.all, #found > limit and 1 or 0}
for i = 1, math.min(limit, #found) do
  local n, series = number_in(from, found[i])
  answer[4 + i] = shown(d, n, series)
end
return answer
