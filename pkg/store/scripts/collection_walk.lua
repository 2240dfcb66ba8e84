-- collection_walk reads items that several conditions hold for. It looks at those for which
-- one does, the one that the fewest items meet, and at so many at most.
--
-- KEYS  1 root
-- ARGV  1 name, 2 number of the item that was looked at last, or 0, 3 how many to look at,
--       4 fits to pass over, 5 fits to answer at most, 6 1 to count what fits beyond these,
--       7 missing: 1, 0 or '' for both, 8… facet, value of each filter
-- Answers {verdict, definition, how many there are to look at in all, number of the last one
--         looked at, 1 when more are behind it, how many fit, item as in shown.lua…}; the verdict
--         is as of collection_items
local root = KEYS[1]
--# include clock.lua
--# include items.lua
--# include shown.lua
--# include filters.lua
local d, def = data(ARGV[1]), redis.call('HGET', root .. ':c:' .. ARGV[1], 'def')
if not d then return {'none'} end
local looks, pass, limit, count = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local filters = filters_from(d, def, 8)
if not filters then return {'unknown', def} end
local from = filters[1] or {set = d .. ':order', head = '', all = redis.call('ZCARD', d .. ':order')}

local function fits(n, series)
  for i = 2, #filters do
    if not redis.call('ZSCORE', filters[i].set, filters[i].head .. place(n)) then return false end
  end
  if ARGV[7] == '' then return true end
  local _, missing = seen_at(d, n, series or series_of(d, n))
  return (missing ~= nil) == (ARGV[7] == '1')
end

local last, more, fit, answer = tonumber(ARGV[2]), 0, 0, {}
local found = behind(from, last, looks + 1)
for i = 1, #found do
  if i > looks or (not count and #answer == limit) then more = 1; break end
  local n, series = number_in(from, found[i])
  if fits(n, series) then
    fit = fit + 1
    if fit > pass and #answer < limit then answer[#answer + 1] = shown(d, n, series) end
  end
  last = n
end
return {'ok', def, from.all, last, more, fit, unpack(answer)}
