-- drop frees what collections hold that were deleted, so many keys at most, and answers 1 when
-- there is more. root:dropped ZSET has of each data, seq, series and def as its hash had them,
-- by how many of its keys have been freed; a sweep goes on where an API stopped. No key has more
-- than a thousand items, but for what is freed in the background.
local function drop(most)
  local first = redis.call('ZRANGE', root .. ':dropped', 0, 0, 'WITHSCORES')
  if not first[1] then return 0 end
  local data, seq, series, def = string.match(first[1], '^(%d+) (%d+) (%d+) (.*)$')
  local d, done = root .. ':d:' .. data, tonumber(first[2])
  local names = {':ids', ':order', ':sums', ':series', ':since', ':visits', ':visits_old'}
  def = cjson.decode(def)
  for _, name in ipairs(def.facets or {}) do
    names[#names + 1] = ':facet:' .. name
    names[#names + 1] = ':find:' .. name
  end
  for _, name in ipairs(def.numbers or {}) do names[#names + 1] = ':num:' .. name end
  local buckets = math.ceil(tonumber(seq) / 1000)
  local all = #names + 2 * buckets + tonumber(series)
  local last = math.min(done + most, all)
  for i = done + 1, last do
    local k, name = i - #names, names[i]
    if k > 2 * buckets then
      name = ':seen:' .. int(k - 2 * buckets)
    elseif k > 0 then
      name = (k <= buckets and ':item:' or ':counted:') .. int((k - 1) % buckets)
    end
    redis.call('UNLINK', d .. name)
  end
  if last < all then
    redis.call('ZADD', root .. ':dropped', last, first[1])
  else
    redis.call('ZREM', root .. ':dropped', first[1])
  end
  return redis.call('EXISTS', root .. ':dropped')
end
