-- commit records the outcome of one leased URL: token, outcome, final URL, links,
-- counters, collection, outbox and the end of the job, in one step. It changes
-- nothing unless the slice still holds the row.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 n of the row, 5 row, 6 outcome; then by outcome
--   accepted  7 key of the final URL, 8 record, 9 bytes, 10 depth of its links,
--             11 number of links that may be admitted, 12 of links refused, 13 of links
--             of a pattern, 14 digest of the body or '', 15 content as of content.go, with
--             its size unpacked behind the first byte, or '', 16 1 for a list page,
--             17 number of items, 18 of upserts, 19 1 for a page that was not modified,
--             20 visit as in collection.lua, then the fields of each item, the upserts as in
--             collection.lua, and the links as in links.lua
--   noindex   the same: its links count, the page does not, and nothing of it is kept
--   failed    7 error type, 8 error record, 9 why, for a person, of an input; or ''
--   skipped   7 reason, 8 where it led or '', 9 as of failed
--   retry     7 the row to come back, 8 ms until then
--   redirect  7 the row to come back, at once
-- Answers {verdict, seq, rings…}; verdict is one of
--   done   recorded, now or by this slice before; seq is the record's number, 0 if none
--   alias  done, but another page ended at the same URL first: seq is that record's
--   stale  the slice does not hold the row: nothing changed
--# include outbox.lua
--# include job.lua
--# include content.lua
--# include settled.lua
--# include links.lua
-- collect enters a page into the collection of its job. What it takes is made only for a job
-- that has one: two dozen functions would be a sixth of the time of any other commit.
local collect
if ARGV[20] and ARGV[20] ~= '' and (ARGV[6] == 'accepted' or ARGV[6] == 'noindex') then
--# include define.lua
--# include items.lua
--# include collection.lua
  collect = collected
end
id, job = ARGV[2], KEYS[2]
local gen, n, row, outcome = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local leased = job .. ':leased'
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
redis.call('ZREM', leased, row)

local items, upserts, links = 0, 0, 0 -- of a page; links is where they begin
if outcome == 'accepted' or outcome == 'noindex' then
  items, upserts = tonumber(ARGV[17]), tonumber(ARGV[18])
  links = 21 + items + UPSERT_ARGS * upserts
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
  local seq = tonumber(h[5]) + 1
  if redis.call('HSETNX', job .. ':claims', ARGV[7], seq) == 0 then
    local first = redis.call('HGET', job .. ':claims', ARGV[7])
    answer[1], answer[2] = 'alias', tonumber(first)
    redis.call('HSET', job, 'bytes', read())
    skip('alias', row .. '\t' .. first)
  else
    local total, max = tonumber(h[2]), tonumber(h[3])
    local record = ARGV[8]
    local content = ARGV[15]
    if ARGV[14] ~= '' and redis.call('HSETNX', job .. ':bodies', ARGV[14], seq) == 0 then
      -- Other URLs had these bytes: the record says which was the first, and that has them.
      content = ''
      record = string.sub(record, 1, -2) .. ',"duplicate_seq":' .. redis.call('HGET', job .. ':bodies', ARGV[14]) .. '}'
    end
    if ARGV[10] == '2' and string.find(row, MAPPED) then
      local changed = redis.call('HGET', job .. ':lastmod', n)
      if changed then record = string.sub(record, 1, -2) .. ',"lastmod_ms":' .. changed .. '}' end
    end
    local changes = collect and collect(ARGV[1], 21 + items, upserts, ARGV[19] == '1', ARGV[20]) or {}
    local kept
    record, kept = keep(seq, changed_to(record, changes[0]), content)
    full = not kept
    local records = {record}
    for i = 1, items do
      records[1 + i] = '{"of":' .. int(seq) .. ',"item":' .. i .. ',"fields":' .. ARGV[20 + i] ..
        changed_to('}', changes[i])
    end
    put(seq, records)
    answer[2] = seq
    if ARGV[16] == '1' then redis.call('HINCRBY', job, 'list_pages', 1) end
    admitted, total = admit(links, tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[10], int(seq),
      state, total, max)
    if ARGV[10] == '1' then redis.call('HINCRBY', job, 'seeds_ok', 1) end
    redis.call('HSET', job, 'total', total, 'accepted', h[4] + 1, 'records', int(seq + items),
      'bytes', read())
  end
elseif outcome == 'noindex' then
  local total
  admitted, total = admit(links, tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[10], '0',
    state, tonumber(h[2]), tonumber(h[3]))
  redis.call('HSET', job, 'total', total, 'bytes', read())
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

if full and state ~= 'cancelling' and not idle() then
  -- What was counted stays; what is left, its own links too, is cut off as by a time limit.
  wind_down(answer, clock(ARGV[1]), 'byte_limit')
elseif admitted == 0 then
  if state == 'cancelling' then
    if redis.call('EXISTS', job .. ':leased') == 0 then
      finish(answer, clock(ARGV[1]), 'cancelled', redis.call('HGET', job, 'stop'))
    end
  elseif idle() then
    complete(answer, clock(ARGV[1]))
  end
end
return answer
