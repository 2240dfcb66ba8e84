-- shown.lua is how a collection and its items are read.

-- data answers the prefix of what a collection holds; nil without the collection.
local function data(name)
  local n = redis.call('HGET', root .. ':c:' .. name, 'data')
  return n and root .. ':d:' .. n
end

-- shown answers an item: its number, what is kept of it, when it was seen last, and since when
-- it is missing, 0 if it is not.
local function shown(d, n, series)
  local at, missing = seen_at(d, n, series or series_of(d, n))
  return {n, redis.call('HGET', bucket(d, 'item', n), int(n)), at, missing or 0}
end

-- info answers a collection: name, definition, created, updated, items, missing.
local function info(name)
  local h = redis.call('HMGET', root .. ':c:' .. name, 'def', 'created', 'updated', 'missing')
  if not h[1] then return nil end
  return {name, h[1], tonumber(h[2]), tonumber(h[3]), redis.call('ZCARD', data(name) .. ':order'), tonumber(h[4])}
end
