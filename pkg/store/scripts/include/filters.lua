-- filters.lua finds the items that have the values which are asked for. Of each value all items
-- stand side by side in root:d:N:find:FACET, by number.

-- filters_from reads facet, value… from ARGV[at] on, the one with the fewest items first; nil if
-- one of them is no facet of the definition.
local function filters_from(d, def, at)
  local facets, filters = {}, {}
  for _, name in ipairs(cjson.decode(def).facets or {}) do facets[name] = true end
  for i = at, #ARGV, 2 do
    if not facets[ARGV[i]] then return nil end
    local count = redis.call('ZSCORE', d .. ':facet:' .. ARGV[i], ARGV[i + 1])
    filters[#filters + 1] = {set = d .. ':find:' .. ARGV[i], head = ARGV[i + 1] .. '\0',
      all = -tonumber(count or 0) + 0}
  end
  table.sort(filters, function(a, b) return a.all < b.all end)
  return filters
end

-- behind answers the members of a list behind an item; head is what they begin with.
local function behind(list, after, most)
  local last = '+'
  if list.head ~= '' then last = '(' .. string.sub(list.head, 1, -2) .. '\1' end
  return redis.call('ZRANGEBYLEX', list.set, '(' .. list.head .. place(after) .. '!', last, 'LIMIT', 0, most)
end

-- number_in answers the number of an item by its member and, where the list has it, its series.
local function number_in(list, member)
  if list.head == '' then return tonumber(string.sub(member, 1, 12)), string.sub(member, 14) end
  return tonumber(string.sub(member, -12))
end
