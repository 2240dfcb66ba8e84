-- collection.lua is where the records of a page enter the job's collection, in the same step
-- as the page's commit.
--
-- An upsert has UPSERT_ARGS arguments: 1 digest of the key, 16 bytes; 2 fingerprint, 16 bytes;
-- 3 the record: 0 for the page's, else the place among its items; 4 the item as JSON; 5 what
-- of it is counted, as JSON, or ''.
-- The visit of a page is '' where the job has no collection; else a digest of the page's URL,
-- 16 bytes; the number of records that have no key; a space; what is to be kept, or ''.

-- opened answers the job's collection for writing: c is its hash, d the prefix of its data, made
-- anew if it was deleted and there is something to enter. It is nil if there is none, or if
-- it was defined anew in another way, which nothing of this job fits, or in a newer format.
local function opened(name, form, make, now)
  local c = root .. ':c:' .. name
  local h = redis.call('HMGET', c, 'form', 'data', 'seq', 'format')
  if not h[1] and make then
    define(name, form, redis.call('HGET', job, 'collection_def'), now)
    h = redis.call('HMGET', c, 'form', 'data', 'seq', 'format')
  end
  if h[1] ~= form or beyond(h[4]) then return nil end
  return {hash = c, d = root .. ':d:' .. h[2], seq = tonumber(h[3]), now = now, created = 0, updated = 0,
    unchanged = 0, lost = 0, found = 0}
end

-- series_in answers the number of the job's series in the collection.
local function series_in(c, name)
  local n = redis.call('HGET', c.d .. ':series', name)
  if n then return n end
  n = int(redis.call('HINCRBY', c.hash, 'series', 1))
  redis.call('HSET', c.d .. ':series', name, n)
  return n
end

-- see notes that the job has seen the item, and answers whether there is one. A clock that
-- went back must not make it missing.
local function see(c, n, fresh)
  local set, at = c.d .. ':seen:' .. c.series, c.now
  if c.since and at < c.since then at = c.since end
  local was = not fresh and redis.call('ZSCORE', set, int(n))
  if was then
    if c.since and tonumber(was) < c.since then c.found = c.found + 1 end
  else
    local other = not fresh and series_of(c.d, n)
    if not fresh and not other then return false end
    if other then c.found = c.found + unlist(c.d, n, other) end
    redis.call('ZADD', c.d .. ':order', 0, place(n) .. ' ' .. c.series)
  end
  redis.call('ZADD', set, int(at), int(n))
  return true
end

-- create_item enters an item whose key is new; nil where the collection has no room.
local function create_item(c, at, visit)
  if c.most > 0 and redis.call('ZCARD', c.d .. ':order') >= c.most then return nil end
  local n = c.seq + 1
  c.seq, c.created = n, c.created + 1
  redis.call('HSET', c.d .. ':ids', ARGV[at], ARGV[at + 1] .. visit .. int(n))
  redis.call('HSET', bucket(c.d, 'item', n), int(n),
    int(c.now) .. ' ' .. int(c.now) .. ' ' .. id .. ' ' .. ARGV[at + 3])
  recount(c.d, n, '', ARGV[at + 4])
  see(c, n, true)
  return n, 'created'
end

-- upsert enters one item and answers its number and what became of it. ids has of each its
-- fingerprint, the page that gave it, and its number.
local function upsert(c, at, visit)
  local known = redis.call('HGET', c.d .. ':ids', ARGV[at])
  if not known then return create_item(c, at, visit) end
  local n, page, change = tonumber(string.sub(known, 33)), string.sub(known, 17, 32), 'unchanged'
  if string.sub(known, 1, 16) == ARGV[at + 1] then
    c.unchanged = c.unchanged + 1
  else
    change, c.updated = 'updated', c.updated + 1
    local items = bucket(c.d, 'item', n)
    local first = string.match(redis.call('HGET', items, int(n)), '^%d+')
    redis.call('HSET', items, int(n), first .. ' ' .. int(c.now) .. ' ' .. id .. ' ' .. ARGV[at + 3])
    recount(c.d, n, redis.call('HGET', bucket(c.d, 'counted', n), int(n)) or '', ARGV[at + 4])
  end
  -- A page that did not change would say of this item that it did not, either.
  if page ~= visit then forget(c.d, page) end
  if page ~= visit or change == 'updated' then
    redis.call('HSET', c.d .. ':ids', ARGV[at], ARGV[at + 1] .. visit .. int(n))
  end
  see(c, n, false)
  return n, change
end

-- keep_visit keeps what a visit brought and which items the page gave. Of pages that are never
-- visited again it would stay for ever: those of the last visits are kept, some twice as many
-- as there are items, and of those before as many again.
local function keep_visit(c, visit, what)
  local d = c.d
  redis.call('HDEL', d .. ':visits_old', visit)
  if redis.call('HSET', d .. ':visits', visit, what) == 1
      and redis.call('HLEN', d .. ':visits') > 1000 + 2 * redis.call('ZCARD', d .. ':order') then
    redis.call('RENAME', d .. ':visits', d .. ':visits_old')
  end
end

-- same notes that a page has not changed since its visit, and answers what became of its
-- record. Without the visit, which something else dropped meanwhile, nobody knows what the
-- page gives: the job then says nothing of what is missing.
local function same(c, visit)
  local kept = c and redis.call('HGET', c.d .. ':visits', visit)
  if c and not kept then
    kept = redis.call('HGET', c.d .. ':visits_old', visit)
    if kept then keep_visit(c, visit, kept) end
  end
  if not kept then
    redis.call('HSET', job, 'unsure', 1)
    return nil
  end
  local change
  for n in string.gmatch(string.match(kept, '^[^\n]*'), '%d+') do
    change = 'unchanged'
    if see(c, tonumber(n), false) then c.unchanged = c.unchanged + 1 end
  end
  return change -- of a page that gave nothing, such as a list page, nothing is to be said
end

-- reported adds to the counts of the job and of the collection what a page changed.
local function reported(c)
  for field, n in pairs({items_created = c.created, items_updated = c.updated, items_unchanged = c.unchanged,
      not_collected = c.lost}) do
    if n > 0 then redis.call('HINCRBY', job, field, n) end
  end
  if c.hash and c.found > 0 then redis.call('HINCRBY', c.hash, 'missing', -c.found) end
  if c.hash and c.created + c.updated > 0 then
    redis.call('HSET', c.hash, 'seq', int(c.seq), 'updated', int(c.now))
  end
end

-- collected enters the upserts of a page, n of them from ARGV[at] on, or notes that what the page
-- gave before is unchanged, and keeps the visit. It answers what became of each record, by
-- its place: created, updated, unchanged, or full where the collection had no room.
local function collected(now, at, n, not_modified, page)
  local h = page ~= '' and redis.call('HMGET', job, 'collection', 'collection_form', 'series', 'max_items')
  if not h or not h[1] then return {} end
  local visit, space = string.sub(page, 1, 16), string.find(page, ' ', 17, true)
  local lost, kept = tonumber(string.sub(page, 17, space - 1)), string.sub(page, space + 1)
  local c = opened(h[1], h[2], n > 0, clock(now))
  if not c then
    if not_modified then same(nil, visit) end
    reported({created = 0, updated = 0, unchanged = 0, lost = lost + n})
    return {}
  end
  c.most, c.lost = tonumber(h[4]), lost
  c.series = series_in(c, h[3])
  c.since = since(c.d, c.series)
  local changes = {}
  if not_modified then
    changes[0] = same(c, visit)
    reported(c)
    return changes
  end
  local gave, full = {}, false
  for i = at, at + UPSERT_ARGS * (n - 1), UPSERT_ARGS do
    local number, change = upsert(c, i, visit)
    changes[tonumber(ARGV[i + 2])] = change or 'full'
    if number then
      gave[#gave + 1] = int(number)
    else
      full, c.lost = true, c.lost + 1
    end
  end
  -- What had no room is to be entered when there is some, though the page is the same.
  if kept ~= '' and not full then
    keep_visit(c, visit, table.concat(gave, ' ') .. '\n' .. kept)
  else
    forget(c.d, visit)
  end
  reported(c)
  return changes
end
