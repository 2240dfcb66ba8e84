-- create stores a submission: idempotency, quota, job, frontier and run gate, all or
-- nothing, so that what was answered 202 exists and what was refused left nothing.
--
-- KEYS  1 root, 2 job, 3 the idempotency record, or root again without a key
-- ARGV  1 now ('' = Redis time), 2 id, 3 input digest, 4 nonce of this submission,
--       5 spec, 6 plan, 7 tags as JSON, what the service grants: 8 max_queued,
--       9 max_running, 10 pages_per_day, 11 submissions_per_second (0 none, of each),
--       12 concurrency, 13 max_pages, 14 max_bytes (0 none), 15 parallelism,
--       16 retention ms, 17 time limit ms (0 none), 18 site 1|0,
--       19 number of sitemaps to begin with, 20… dedupe key, url of each,
--       then dedupe key, url of each input; the last three are the job whose failed URLs
--       these are, the collection as JSON and the webhook as JSON, '' for none
-- Answers {verdict, id, rings…}; verdict is one of
--       created  stored now, or by this same submission whose answer was lost
--       replay   stored before from the same input; id is that job's
--       reused   the key named another input; id is the first job's
--       newer    the collection is of a newer format; id is ''
--       other    the collection has another definition, which follows; id is ''
-- or {'refused', '', name of the bound, what it is, ms after which it may be met again}
--# include outbox.lua
--# include job.lua
--# include slices.lua
--# include day.lua
--# include define.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local keyed = KEYS[3] ~= KEYS[1]

local RESENT = 60000 -- ms for which a submission is known that was counted
local BUSY = 5000 -- ms: a guess, since nobody knows when a job of the tenant ends

-- take takes a token of the tenant's submissions, once for each nonce; answers nil, or
-- ms until there is one. A second brings as many as the bound says, and no more are
-- kept. They are counted in thousandths, so that a millisecond brings a whole number.
local function take(rate)
  local counted = root .. ':counted'
  if redis.call('ZSCORE', counted, ARGV[4]) then return nil end
  local h = redis.call('HMGET', root, 'tokens', 'tokens_at')
  local tokens = 1000 * rate
  if h[1] then
    local passed = math.min(1000, math.max(0, now - tonumber(h[2])))
    tokens = math.min(tokens, tonumber(h[1]) + passed * rate)
  end
  if tokens < 1000 then return math.ceil((1000 - tokens) / rate) end
  redis.call('HSET', root, 'tokens', int(tokens - 1000), 'tokens_at', int(now))
  -- A client sends again within seconds what it had no answer to.
  redis.call('ZREMRANGEBYSCORE', counted, '-inf', int(now - RESENT))
  redis.call('ZADD', counted, int(now), ARGV[4])
  redis.call('PEXPIRE', counted, RESENT)
end

local first, digest
if keyed then
  local e = redis.call('HMGET', KEYS[3], 'job', 'digest')
  first, digest = e[1], e[2]
end
if not first and redis.call('EXISTS', job) == 1 then
  -- The tombstone, or the job, of a key that is itself forgotten.
  first, digest = id, redis.call('HGET', job, 'digest')
end
if first and redis.call('HGET', root .. ':j:' .. first, 'nonce') == ARGV[4] then
  -- Our own submission, sent again because its answer was lost.
  local rings = {'created', first}
  if redis.call('SISMEMBER', root .. ':running', first) == 1 then
    rings[3], rings[4] = first, 0
  end
  return rings
end

-- Before a token is taken: with what it learns here the same submission comes again.
local into, defined = ARGV[#ARGV - 1] ~= '' and cjson.decode(ARGV[#ARGV - 1]), nil
if into and not first then
  defined = redis.call('HMGET', root .. ':c:' .. into.name, 'form', 'def', 'format')
  if beyond(defined[3]) then return {'newer', ''} end
  if defined[1] and defined[1] ~= into.form then return {'other', '', defined[2]} end
end

-- What the service grants is kept, since other scripts decide by it, too.
local granted = redis.call('HMGET', root, unpack(QUOTAS))
local changed = false
for i, name in ipairs(QUOTAS) do
  if granted[i] ~= ARGV[7 + i] then
    changed = true
    redis.call('HSET', root, name, ARGV[7 + i])
  end
end
local rate = bound('submissions_per_second')
if rate > 0 then
  local wait = take(rate)
  if wait then return {'refused', '', 'submissions_per_second', rate, wait} end
end
if first then
  if digest ~= ARGV[3] then return {'reused', first} end
  return {'replay', first}
end
local _, open = day_left(now)
if open and open <= 0 then
  return {'refused', '', 'pages_per_day', bound('pages_per_day'), tomorrow(now) - now}
end
local most = bound('max_queued')
if most > 0 then
  -- Those that wait come first, should there be room that nobody was let into yet.
  -- Paused jobs count: else nobody would be held by the bound who pauses what he submits.
  local wait = math.max(0, redis.call('ZCARD', root .. ':waiting') - room()) + redis.call('SCARD', root .. ':paused')
  if wait >= most then return {'refused', '', 'max_queued', most, BUSY} end
end

if into and not defined[1] then
  if redis.call('ZCARD', root .. ':collections') >= MAX_COLLECTIONS then
    return {'refused', '', 'collections', MAX_COLLECTIONS, 0}
  end
  define(into.name, into.form, into.def, now)
end

local seq = redis.call('HINCRBY', root, 'seq', 1)
redis.call('SET', job .. ':spec', ARGV[5])
redis.call('SET', job .. ':plan', ARGV[6])
local maps = tonumber(ARGV[19])
for i = 1, maps do
  local key, url = ARGV[18 + 2 * i], ARGV[19 + 2 * i]
  redis.call('SADD', job .. ':seen', 's' .. key)
  redis.call('ZADD', job .. ':maps', int(now), 's ' .. i .. ' 0 0 0 0 ' .. url)
  redis.call('HSET', job .. ':mapurls', i, url)
end
local n, rows = 0, {}
for i = 20 + 2 * maps, #ARGV - 3, 2 do
  if redis.call('SADD', job .. ':seen', ARGV[i]) == 1 then
    n = n + 1
    rows[#rows + 1] = 'p ' .. n .. ' 0 0 0 0 ' .. ARGV[i + 1]
    if #rows == 1000 then redis.call('RPUSH', job .. ':queued', unpack(rows)); rows = {} end
  end
end
if #rows > 0 then redis.call('RPUSH', job .. ':queued', unpack(rows)) end
redis.call('HSET', job, 'state', 'queued', 'format', FORMAT, 'stop', '', 'seq', seq, 'digest', ARGV[3], 'nonce', ARGV[4],
  'idem', keyed and KEYS[3] or '', 'tags', ARGV[7], 'created', int(now),
  'concurrency', ARGV[12], 'max_pages', ARGV[13], 'parallelism', ARGV[15], 'retention', ARGV[16],
  'time_limit', ARGV[17], 'site', ARGV[18], 'total', n, 'accepted', 0, 'failed', 0, 'skipped', 0,
  'cancelled', 0, 'records', 0, 'errors', 0, 'bytes', 0, 'seeds_ok', 0, 'gen', 0, 'rings', 0)
if maps > 0 then redis.call('HSET', job, 'maps', maps) end
if ARGV[#ARGV - 2] ~= '' then redis.call('HSET', job, 'retry_of', ARGV[#ARGV - 2]) end
if ARGV[14] ~= '0' then redis.call('HSET', job, 'max_bytes', ARGV[14]) end
local max_kept = cjson.decode(ARGV[6]).max_kept_bytes
if max_kept then redis.call('HSET', job, 'max_kept', int(max_kept)) end
if into then
  redis.call('HSET', job, 'collection', into.name, 'collection_form', into.form, 'collection_def', into.def,
    'series', into.series, 'max_items', int(into.max_items))
end
if ARGV[#ARGV] ~= '' then
  local w = cjson.decode(ARGV[#ARGV])
  redis.call('HSET', job .. ':webhook', 'id', w.id, 'url', w.url, 'host', w.host,
    'secret', w.secret, 'events', ' ' .. table.concat(w.events, ' ') .. ' ', 'n', 0, 'head', 1, 'claim', '')
end
redis.call('ZADD', root .. ':jobs', seq, id)
if keyed then redis.call('HSET', KEYS[3], 'job', id, 'digest', ARGV[3]) end
redis.call('ZADD', root .. ':waiting', seq, id)
local answer = {'created', id}
gate(answer, now)
if changed then resume(answer, now) end
outbox(id, 'job.queued', now)
return answer
