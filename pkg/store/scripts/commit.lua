-- commit records the outcome of one leased URL: token, outcome, final URL, links,
-- counters, collection, outbox and the end of the job, in one step. It changes
-- nothing unless the slice still holds the row.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 n of the row, 5 row, 6 outcome; then by outcome
--   accepted  7 key of the final URL, 8 record, 9 bytes, 10 depth of its links,
--             11 what it has: the number of links that may be admitted, of links refused, of
--             links of a pattern, of items, of upserts, two bytes each, the greater first, then
--             a byte that is 1 for a list page, and one that is 1 for a page that was not modified,
--             12 digest of the body or '', 13 content as of content.go, with its size
--             unpacked behind the first byte, or '', 14 visit as in collection.lua, then the fields
--             of each item, the upserts as in collection.lua, and the links as in links.lua
--   noindex   the same: its links count, the page does not, and nothing of it is kept
--   failed    7 error type, 8 error record, 9 why, for a person, of an input; or ''
--   skipped   7 reason, 8 where it led or '', 9 as of failed
--   retry     7 the row to come back, 8 ms until then
--   redirect  7 the row to come back, at once
-- Answers {verdict, seq, rings…}; verdict is one of
--   done   recorded, now or by this slice before; seq is the record's number, 0 if none
--   alias  done, but another page ended at the same URL first: seq is that record's
--   stale  the slice does not hold the row: nothing changed
--# include job.lua
--# include content.lua
--# include settled.lua
--# include links.lua
-- collect enters a page into the collection of its job. What it takes is made only for a job
-- that has one: two dozen functions would be a sixth of the time of any other commit.
local collect
if ARGV[14] and ARGV[14] ~= '' and (ARGV[6] == 'accepted' or ARGV[6] == 'noindex') then
--# include define.lua
--# include items.lua
--# include collection.lua
  collect = collected
end
id, job = ARGV[2], KEYS[2]
local gen, n, row, outcome = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if not holds(gen, 'leased', row) then
  if redis.call('ZSCORE', job .. ':slices', gen) and (redis.call('GETBIT', job .. ':done', n) == 1
      or redis.call('SISMEMBER', job .. ':moved', gen .. ' ' .. row) == 1) then
    return {'done', 0}
  end
  return {'stale', 0}
end
local h = redis.call('HMGET', job, 'state', 'total', 'max_pages', 'accepted', 'records', 'bytes', 'max_bytes')
local state = h[1]
local answer = {'done', 0}
local admitted = 0
local full = false -- the job has all the bytes that it may have
local MAPPED = '^p %d+ 1 %d%d%d%d%d%d%d%d%d%d%d%d%d ' -- what a sitemap named, see MAP_PARENT
redis.call('ZREM', job .. ':leased', row)

-- Of a page; links is where they begin. One argument has all the numbers, and they are no text: an argument of
-- its own for each, read as text, would be a twentieth of the time of a commit.
local admissible, refused, patterned, items, upserts, listed, not_modified, links
if outcome == 'accepted' or outcome == 'noindex' then
  local a, b, c, d, e
  a, admissible, b, refused, c, patterned, d, items, e, upserts, listed, not_modified = string.byte(ARGV[11], 1, 12)
  admissible, refused, patterned = 256 * a + admissible, 256 * b + refused, 256 * c + patterned
  items, upserts = 256 * d + items, 256 * e + upserts
  links = 15 + items + UPSERT_ARGS * upserts
end

-- read counts the bytes of a page. They were read, whatever becomes of it: a site of pages
-- that are not kept must not be read without end.
local function read()
  local bytes = h[6] + ARGV[9]
  full = full or h[7] and bytes >= tonumber(h[7])
  return int(bytes)
end

-- blame keeps why the first input was not accepted: the error of a job without any.
local function blame(why)
  if why ~= '' then redis.call('HSETNX', job, 'blame', why) end
end

local function skip(reason, detail)
  redis.call('RPUSH', job .. ':skip:' .. reason, detail)
  redis.call('HINCRBY', job, 'skipped', 1)
  redis.call('HINCRBY', job, 's:' .. reason, 1)
end

if outcome == 'retry' or outcome == 'redirect' then
  if state == 'cancelling' then
    redis.call('RPUSH', job .. ':cancelled_queued', ARGV[7])
    redis.call('HINCRBY', job, 'cancelled', 1)
    redis.call('SETBIT', job .. ':done', n, 1)
  else
    redis.call('SADD', job .. ':moved', gen .. ' ' .. row)
    if outcome == 'redirect' then
      redis.call('LPUSH', job .. ':queued', ARGV[7])
    else
      local at = clock(ARGV[1]) + tonumber(ARGV[8])
      redis.call('ZADD', job .. ':deferred', int(at), ARGV[7])
      redis.call('HSET', job, 'deferred_for', 'retry')
      wake(at)
    end
  end
else
  redis.call('SETBIT', job .. ':done', n, 1)
  settled(ARGV[1])
end

if outcome == 'accepted' then
  local seq = h[5] + 1
  local number = int(seq)
  if redis.call('HSETNX', job .. ':claims', ARGV[7], number) == 0 then
    local first = redis.call('HGET', job .. ':claims', ARGV[7])
    answer[1], answer[2] = 'alias', tonumber(first)
    redis.call('HSET', job, 'bytes', read())
    skip('alias', row .. '\t' .. first)
  else
    local record = ARGV[8]
    local content = ARGV[13]
    if ARGV[12] ~= '' and redis.call('HSETNX', job .. ':bodies', ARGV[12], number) == 0 then
      -- Other URLs had these bytes: the record says which was the first, and that has them.
      content = ''
      record = string.sub(record, 1, -2) .. ',"duplicate_seq":' .. redis.call('HGET', job .. ':bodies', ARGV[12]) .. '}'
    end
    if ARGV[10] == '2' and string.find(row, MAPPED) then
      local changed = redis.call('HGET', job .. ':lastmod', n)
      if changed then record = string.sub(record, 1, -2) .. ',"lastmod_ms":' .. changed .. '}' end
    end
    local changes = collect and collect(ARGV[1], 15 + items, upserts, not_modified == 1, ARGV[14])
    local kept
    record, kept = keep(seq, changed_to(record, changes and changes[0]), content)
    full = not kept
    local records = {record}
    for i = 1, items do
      records[1 + i] = '{"of":' .. number .. ',"item":' .. i .. ',"fields":' .. ARGV[14 + i] ..
        changed_to('}', changes and changes[i])
    end
    put(seq, number, records)
    answer[2] = seq
    if listed == 1 then redis.call('HINCRBY', job, 'list_pages', 1) end
    local total
    admitted, total = admit(links, admissible, refused, patterned, ARGV[10], number, state, h[2] + 0, h[3] + 0)
    if ARGV[10] == '1' then redis.call('HINCRBY', job, 'seeds_ok', 1) end
    local accepted, recorded = number, number
    if h[4] ~= h[5] then accepted = int(h[4] + 1) end
    if items > 0 then recorded = int(seq + items) end
    if admitted > 0 then
      redis.call('HSET', job, 'total', int(total), 'accepted', accepted, 'records', recorded, 'bytes', read())
    else
      redis.call('HSET', job, 'accepted', accepted, 'records', recorded, 'bytes', read())
    end
  end
elseif outcome == 'noindex' then
  local total
  admitted, total = admit(links, admissible, refused, patterned, ARGV[10], '0', state, h[2] + 0, h[3] + 0)
  redis.call('HSET', job, 'total', int(total), 'bytes', read())
  if ARGV[10] == '1' then redis.call('HINCRBY', job, 'seeds_ok', 1) end
  skip('noindex', row .. '\t')
elseif outcome == 'failed' then
  local seq = redis.call('HINCRBY', job, 'errors', 1)
  redis.call('HSET', job .. ':err:' .. math.floor((seq - 1) / 1000), seq, ARGV[8])
  redis.call('HINCRBY', job, 'failed', 1)
  redis.call('HINCRBY', job, 'f:' .. ARGV[7], 1)
  blame(ARGV[9])
elseif outcome == 'skipped' then
  skip(ARGV[7], row .. '\t' .. ARGV[8])
  blame(ARGV[9])
end

local over -- how the job ends now, if it does
if full and state ~= 'cancelling' and not idle() then
  over = 'cut'
elseif admitted == 0 then
  if state == 'cancelling' then
    if redis.call('EXISTS', job .. ':leased') == 0 then over = 'cancelled' end
  elseif idle() then
    over = 'complete'
  end
end
if over then
--# include outbox.lua
--# include gate.lua
--# include ends.lua
  local now = clock(ARGV[1])
  if over == 'cut' then
    -- What was counted stays; what is left, its own links too, is cut off as by a time limit.
    wind_down(answer, now, 'byte_limit')
  elseif over == 'cancelled' then
    finish(answer, now, 'cancelled', redis.call('HGET', job, 'stop'))
  else
    complete(answer, now)
  end
end
return answer
