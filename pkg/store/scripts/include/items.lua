-- items.lua is how the items of a collection are kept: what is counted of them, when each was
-- seen last, and which page gave it. What it calls d is the prefix of the data of one
-- collection, root:d:N: no name of a collection is part of it, so that one that is made anew
-- has nothing of the one that was deleted.
--
-- What is counted of an item is JSON: f has the values of each facet, n of each number the
-- greatest integer that is not above it and the millionths that it is above that, as strings.

-- place is the item's in the lists that are in lexical order.
local function place(n) return string.format('%012.0f', n) end

-- bucket is the name of the hash that has what is kept of the item.
local function bucket(d, kind, n) return d .. ':' .. kind .. ':' .. math.floor((n - 1) / 1000) end

-- missing_from answers what of a is not among b.
local function missing_from(a, b)
  local has, out = {}, {}
  for _, v in ipairs(b or {}) do has[v] = true end
  for _, v in ipairs(a or {}) do
    if not has[v] then out[#out + 1] = v end
  end
  return out
end

-- count_number adds a number to those of a field, or takes it out. The sum is kept in two
-- parts, billionths of which the second has none: an integer of Redis holds that of more items
-- than there can be. The order of the set is that of the exact numbers.
local function count_number(d, name, n, number, sign)
  local set, member = d .. ':num:' .. name, number[2] .. ':' .. int(n)
  if sign > 0 then redis.call('ZADD', set, number[1], member) else redis.call('ZREM', set, member) end
  local whole = tonumber(number[1])
  local high = math.floor(whole / 1000)
  local low = (whole - 1000 * high) * 1000000 + tonumber(number[2])
  redis.call('HINCRBY', d .. ':sums', name .. '.high', int(sign * high + 0)) -- + 0, or it may be -0
  redis.call('HINCRBY', d .. ':sums', name .. '.low', int(sign * low + 0))
end

-- recount counts an item as it is in place of as it was; '' is nothing.
local function recount(d, n, was, is)
  if was == is then return end
  local old, new = {f = {}, n = {}}, {f = {}, n = {}}
  if was ~= '' then old = cjson.decode(was) end
  if is ~= '' then new = cjson.decode(is) end
  local at = '\0' .. place(n)
  for name, values in pairs(old.f) do
    for _, value in ipairs(missing_from(values, new.f[name])) do
      if tonumber(redis.call('ZINCRBY', d .. ':facet:' .. name, 1, value)) == 0 then
        redis.call('ZREM', d .. ':facet:' .. name, value)
      end
      redis.call('ZREM', d .. ':find:' .. name, value .. at)
    end
  end
  for name, values in pairs(new.f) do
    for _, value in ipairs(missing_from(values, old.f[name])) do
      -- Less is more, so that values with the same count are in lexical order.
      redis.call('ZINCRBY', d .. ':facet:' .. name, -1, value)
      redis.call('ZADD', d .. ':find:' .. name, 0, value .. at)
    end
  end
  for name, number in pairs(old.n) do
    local now = new.n[name]
    if not now or now[1] ~= number[1] or now[2] ~= number[2] then count_number(d, name, n, number, -1) end
  end
  for name, number in pairs(new.n) do
    local then_ = old.n[name]
    if not then_ or then_[1] ~= number[1] or then_[2] ~= number[2] then count_number(d, name, n, number, 1) end
  end
  if is ~= '' then
    redis.call('HSET', bucket(d, 'counted', n), int(n), is)
  else
    redis.call('HDEL', bucket(d, 'counted', n), int(n))
  end
end

-- series_of answers the number of the series that saw the item last; nil without an item.
local function series_of(d, n)
  local at = place(n)
  local member = redis.call('ZRANGEBYLEX', d .. ':order', '[' .. at .. ' ', '(' .. at .. '!', 'LIMIT', 0, 1)[1]
  return member and string.sub(member, 14)
end

-- since answers when the last complete crawl of a series began, in ms; nil without any.
local function since(d, series)
  local at = redis.call('HGET', d .. ':since', series)
  return at and tonumber(at)
end

-- seen_at answers when the item was seen last, and since when it is missing; nil if it is not.
local function seen_at(d, n, series)
  local at, from = tonumber(redis.call('ZSCORE', d .. ':seen:' .. series, int(n)) or 0), since(d, series)
  if from and at < from then return at, from end
  return at
end

-- unlist takes the item out of the list and of those that its series saw last. It answers 1 if
-- the item was missing, else 0.
local function unlist(d, n, series)
  local _, missing = seen_at(d, n, series)
  redis.call('ZREM', d .. ':order', place(n) .. ' ' .. series)
  redis.call('ZREM', d .. ':seen:' .. series, int(n))
  return missing and 1 or 0
end

-- forget drops what is kept of the last visit to a page.
local function forget(d, page)
  redis.call('HDEL', d .. ':visits', page)
  redis.call('HDEL', d .. ':visits_old', page)
end
