-- create stores a submission: idempotency, quota, job, frontier and run gate, all or
-- nothing, so that what was answered 202 exists and what was refused left nothing.
--
-- KEYS  1 root, 2 job, 3 the idempotency record, or root again without a key
-- ARGV  1 now ('' = Redis time), 2 id, 3 input digest, 4 nonce of this submission,
--       5 spec, 6 plan, 7 tags as JSON, what the service grants: 8 max_queued,
--       9 max_running, 10 pages_per_day, 11 submissions_per_second (0 none, of each),
--       12 concurrency, 13 max_pages, 14 max_bytes (0 none), 15 parallelism,
--       16 retention ms, 17 time limit ms (0 none), 18 site 1|0, 19 max_kept (0 none),
--       20 number of sitemaps to begin with, 21… dedupe key, url of each,
--       then dedupe key, url of each input; the last three are the job whose failed URLs
--       these are, the collection as JSON and the webhook as JSON, '' for none
-- Answers {verdict, id, job, rings…}; verdict is one of
--       created  stored now; job is {created, total, rank among the waiting or -1}: the
--                caller knows all else of it
--       again    stored by this same submission, whose answer was lost; job is as status.lua
--                answers it
--       replay   stored before from the same input; id is that job's, job as for again
-- or {verdict, id}:
--       reused   the key named another input; id is the first job's
--       newer    the collection is of a newer format; id is ''
--       other    the collection has another definition, which follows; id is ''
-- or {'refused', '', name of the bound, what it is, ms after which it may be met again}
--# include outbox.lua
--# include job.lua
--# include gate.lua
--# include slices.lua
--# include day.lua
--# include define.lua
--# include status.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local keyed = KEYS[3] ~= KEYS[1]

local RESENT = 60000 -- ms for which a submission is known that was counted
local BUSY = 5000 -- ms: a guess, since nobody knows when a job of the tenant ends

-- take takes a token of the tenant's submissions, once for each nonce; answers nil, or
-- ms until there is one. A second brings as many as the bound says, and no more are
-- kept. They are counted in thousandths, so that a millisecond brings a whole number.
-- had and had_at are the tokens that there were, and when; false for none yet.
local function take(rate, had, had_at)
  local counted = root .. ':counted'
  if redis.call('ZSCORE', counted, ARGV[4]) then return nil end
  local tokens = 1000 * rate
  if had then
    local passed = math.min(1000, math.max(0, now - tonumber(had_at)))
    tokens = math.min(tokens, tonumber(had) + passed * rate)
  end
  if tokens < 1000 then return math.ceil((1000 - tokens) / rate) end
  redis.call('HSET', root, 'tokens', int(tokens - 1000), 'tokens_at', int(now))
  -- A client sends again within seconds what it had no answer to.
  redis.call('ZREMRANGEBYSCORE', counted, '-inf', int(now - RESENT))
  redis.call('ZADD', counted, int(now), ARGV[4])
  redis.call('PEXPIRE', counted, RESENT)
end

-- known answers a job that was stored before.
local function known(verdict, first)
  id, job = first, root .. ':j:' .. first
  local st = status()
  st[8] = redis.call('GET', job .. ':spec') or ''
  return {verdict, first, st}
end

-- smaller is what bound in job.lua answers, of numbers that were read already.
local function smaller(granted, own)
  if own == 0 or granted > 0 and granted < own then return granted end
  return own
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
  local again = known('again', first)
  if redis.call('SISMEMBER', root .. ':running', first) == 1 then again[4], again[5] = first, 0 end
  return again
end

-- Before a token is taken: with what it learns here the same submission comes again.
local into, defined = ARGV[#ARGV - 1] ~= '' and cjson.decode(ARGV[#ARGV - 1]), nil
if into and not first then
  defined = redis.call('HMGET', root .. ':c:' .. into.name, 'form', 'def', 'format')
  if beyond(defined[3]) then return {'newer', ''} end
  if defined[1] and defined[1] ~= into.form then return {'other', '', defined[2]} end
end

-- What the service grants is kept, since other scripts decide by it, too. All that is decided by
-- of the tenant's hash is read at once: most of what a submission costs is calls.
local kept = redis.call('HMGET', root, 'max_queued', 'max_running', 'pages_per_day', 'submissions_per_second',
  'own:max_queued', 'own:max_running', 'own:pages_per_day', 'own:submissions_per_second', 'tokens', 'tokens_at')
local changed, most = false, {}
for i, name in ipairs(QUOTAS) do
  local granted = ARGV[7 + i]
  if kept[i] ~= granted then
    changed = true
    redis.call('HSET', root, name, granted)
  end
  most[name] = smaller(tonumber(granted), tonumber(kept[#QUOTAS + i] or 0))
end
if most.submissions_per_second > 0 then
  local wait = take(most.submissions_per_second, kept[9], kept[10])
  if wait then return {'refused', '', 'submissions_per_second', most.submissions_per_second, wait} end
end
if first then
  if digest ~= ARGV[3] then return {'reused', first} end
  return known('replay', first)
end
local _, open = day_left(now, most.pages_per_day)
if open and open <= 0 then
  return {'refused', '', 'pages_per_day', most.pages_per_day, tomorrow(now) - now}
end
local waits, free = redis.call('ZCARD', root .. ':waiting'), math.huge
if most.max_running > 0 then free = math.max(0, most.max_running - redis.call('SCARD', root .. ':running')) end
if most.max_queued > 0 then
  -- Those that wait come first, should there be room that nobody was let into yet.
  -- Paused jobs count: else nobody would be held by the bound who pauses what he submits.
  local wait = math.max(0, waits - free) + redis.call('SCARD', root .. ':paused')
  if wait >= most.max_queued then return {'refused', '', 'max_queued', most.max_queued, BUSY} end
end

if into and not defined[1] then
  if redis.call('ZCARD', root .. ':collections') >= MAX_COLLECTIONS then
    return {'refused', '', 'collections', MAX_COLLECTIONS, 0}
  end
  define(into.name, into.form, into.def, now)
end

local seq = int(redis.call('HINCRBY', root, 'seq', 1))
redis.call('SET', job .. ':spec', ARGV[5])
redis.call('SET', job .. ':plan', ARGV[6])
local maps, seen = tonumber(ARGV[20]), {}
for i = 1, maps do
  local key, url = ARGV[19 + 2 * i], ARGV[20 + 2 * i]
  seen[i] = 's' .. key
  redis.call('ZADD', job .. ':maps', int(now), 's ' .. i .. ' 0 0 0 0 ' .. url)
  redis.call('HSET', job .. ':mapurls', i, url)
end
local n, rows, twice = 0, {}, {}
for i = 21 + 2 * maps, #ARGV - 3, 2 do
  local key = ARGV[i]
  if not twice[key] then
    twice[key], n = true, n + 1
    seen[maps + n] = key
    rows[n] = 'p ' .. n .. ' 0 0 0 0 ' .. ARGV[i + 1]
  end
end
for i = 1, #seen, 1000 do redis.call('SADD', job .. ':seen', unpack(seen, i, math.min(i + 999, #seen))) end
for i = 1, n, 1000 do redis.call('RPUSH', job .. ':queued', unpack(rows, i, math.min(i + 999, n))) end

-- Where nobody waits and there is room it passes the gate at once: what gate would do, in the
-- writes that are made anyhow.
local passes = waits == 0 and free > 0
-- Numbers that Lua hands over are written as doubles, which costs more than to store them.
-- What each commit reads and writes stands first: a hash as small as this is searched from its beginning.
local h = {'state', 'queued', 'total', int(n), 'accepted', '0', 'records', '0', 'bytes', '0', 'max_pages', ARGV[13],
  'concurrency', ARGV[12], 'parallelism', ARGV[15], 'format', int(FORMAT), 'stop', '', 'seq', seq, 'digest', ARGV[3],
  'nonce', ARGV[4], 'idem', keyed and KEYS[3] or '', 'tags', ARGV[7], 'created', int(now), 'retention', ARGV[16],
  'time_limit', ARGV[17], 'site', ARGV[18], 'failed', '0', 'skipped', '0', 'cancelled', '0', 'errors', '0',
  'seeds_ok', '0', 'gen', '0', 'rings', passes and '1' or '0'}
local function has(name, value) h[#h + 1], h[#h + 2] = name, value end
if maps > 0 then has('maps', ARGV[20]) end
if ARGV[#ARGV - 2] ~= '' then has('retry_of', ARGV[#ARGV - 2]) end
if ARGV[14] ~= '0' then has('max_bytes', ARGV[14]) end
if ARGV[19] ~= '0' then has('max_kept', ARGV[19]) end
if passes then
  has('ring_at', int(now))
  has('rung', '1')
end
if into then
  has('collection', into.name)
  has('collection_form', into.form)
  has('collection_def', into.def)
  has('series', into.series)
  has('max_items', int(into.max_items))
end
redis.call('HSET', job, unpack(h))
local hook = ARGV[#ARGV] ~= '' and cjson.decode(ARGV[#ARGV])
if hook then
  redis.call('HSET', job .. ':webhook', 'id', hook.id, 'url', hook.url, 'host', hook.host,
    'secret', hook.secret, 'events', ' ' .. table.concat(hook.events, ' ') .. ' ', 'n', 0, 'head', 1, 'claim', '')
end
redis.call('ZADD', root .. ':jobs', seq, id)
if keyed then redis.call('HSET', KEYS[3], 'job', id, 'digest', ARGV[3]) end
local answer = {'created', id, {now, n, -1}}
if passes then
  redis.call('SADD', root .. ':running', id)
  wake(now + REPEAT)
  answer[4], answer[5] = id, 0
else
  redis.call('ZADD', root .. ':waiting', seq, id)
  gate(answer, now)
  answer[3][3] = redis.call('ZRANK', root .. ':waiting', id) or -1
end
if changed then resume(answer, now) end
if hook then outbox(id, 'job.queued', now) end
return answer
