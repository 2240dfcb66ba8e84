-- What every script about a job shares. The script sets root, id and job
-- before it calls anything here.
--
--   root  KEYS[1], "{t:<tenant>}": the tenant's hash and the prefix of all its keys
--   id    the job's id
--   job   KEYS[2] or root .. ":j:" .. id: the job's hash and the prefix of its keys
--
-- The container that holds a URL is its state, so that no count can lie:
--   job:queued LIST, job:leased ZSET (score: the slice that holds it),
--   job:deferred ZSET (score: when it is due).
-- Rows are "kind n depth parent attempt hops url [fetch_url]".
-- Sitemaps have numbers and containers of their own, so that no count of pages knows of
-- them: job:maps ZSET (score: when it is due), job:maps_leased ZSET (score: the slice).
-- The job's hash has "maps", the number of them ever admitted, only if there was one.
-- Whoever leads a page's ancestry is a record, by its number, or a sitemap, by its number
-- behind MAP_PARENT.
local root, id, job = KEYS[1], '', ''

local LEASE = 12000       -- ms a slice lives without renewal; renewed every 3 s
local GRACE = 4000        -- ms that a cancelled job's requests have to be given back
local KEY_MEMORY = 2592000000 -- ms (30 days) an idempotency key outlives the job
local MAX_LOST = 5        -- lost workers after which the page is to blame
local REPEAT = 5000       -- ms after which a ring that no slice answered is made again
local MAP_PARENT = 1000000000000 -- above it a parent is a sitemap and no record
local MAX_PAUSE = 604800000 -- ms (7 days) after which a paused job ends: none may live for ever

-- FORMAT is that of all that is kept of a job that is made now; "format" in its hash is that of its
-- own, 1 without one. Whoever changes what keys, rows, records or fields mean, so that a process of
-- before would misread them, adds one here. A process leaves alone what is of a greater format.
-- What never changes, so that processes of two versions can share a tenant, is root:jobs, waiting,
-- running, paused, flying and due, the names of the states, and of a job's hash state, gone, seq,
-- started, deadline, time_left, rings, ring_at, rung and cancel_wanted.
local FORMAT = 1
local COLLECTION_FORMAT = 1 -- as in define.lua

local function newer(format) return format and tonumber(format) > FORMAT end

-- clock answers the time in ms. Redis is the only clock; a test passes its own.
local function clock(arg)
  if arg ~= '' then return tonumber(arg) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function int(s) return string.format('%.0f', s) end

local function terminal(state)
  return state == 'completed' or state == 'completed_with_errors' or state == 'failed' or state == 'cancelled'
end

-- holds reports whether a slice has leased a row. It compares numbers: a server may write a score
-- that is as great as a time in another way.
local function holds(gen, kind, row)
  return tonumber(redis.call('ZSCORE', job .. ':' .. kind, row) or 0) == tonumber(gen)
end

-- wake makes the sweep look at the job at the given time or earlier. The score
-- is a lower bound: a sweep that comes too early just computes the next time.
local function wake(at) redis.call('ZADD', root .. ':due', 'LT', int(at), id) end

-- ring notes one more ring of a job and appends it to rings as id, number.
local function ring(rings, jid, now)
  local j = root .. ':j:' .. jid
  local n = redis.call('HINCRBY', j, 'rings', 1)
  redis.call('HSET', j, 'ring_at', int(now), 'rung', 1)
  rings[#rings + 1] = jid
  rings[#rings + 1] = n - 1
end

-- The tenant's hash has what the service grants under these names, and the tenant's own
-- quota behind "own:", where there is one.
local QUOTAS = {'max_queued', 'max_running', 'pages_per_day', 'submissions_per_second'}

-- bound answers the smaller of the two, 0 for none: it is decided each time, so that a
-- change counts at once.
local function bound(name)
  local h = redis.call('HMGET', root, name, 'own:' .. name)
  local granted, own = tonumber(h[1] or 0), tonumber(h[2] or 0)
  if own == 0 or granted > 0 and granted < own then return granted end
  return own
end

-- room answers how many more jobs of the tenant may be in the queue.
local function room()
  local max = bound('max_running')
  if max == 0 then return math.huge end
  return math.max(0, max - redis.call('SCARD', root .. ':running'))
end

-- go_on has a job that passed the gate run if it had begun before it was paused, with what was left
-- then of its time limit. Slices of before the pause that still live go on with it.
local function go_on(jid, now)
  local j = root .. ':j:' .. jid
  local h = redis.call('HMGET', j, 'started', 'time_left')
  if not h[1] then return end
  redis.call('SREM', root .. ':flying', jid)
  redis.call('HSET', j, 'state', 'running')
  if h[2] then
    local deadline = int(now + tonumber(h[2]))
    redis.call('HDEL', j, 'time_left')
    redis.call('HSET', j, 'deadline', deadline)
    redis.call('ZADD', root .. ':due', 'LT', deadline, jid)
  end
end

-- gate lets waiting jobs into the queue while the tenant's running limit allows.
local function gate(rings, now)
  for _ = 1, room() do
    local first = redis.call('ZPOPMIN', root .. ':waiting')
    if not first[1] then return end
    redis.call('SADD', root .. ':running', first[1])
    redis.call('ZADD', root .. ':due', 'LT', int(now + REPEAT), first[1])
    go_on(first[1], now)
    ring(rings, first[1], now)
  end
end

-- flies keeps root:flying for a job that is outside the gate: those that are there and have pages
-- in flight, from before they were paused. They count for the pages of the day, see day.lua.
local function flies()
  local there = redis.call('EXISTS', job .. ':leased') == 1
  redis.call(there and 'SADD' or 'SREM', root .. ':flying', id)
end

-- idle reports whether the job holds no URL of any kind that could still admit one.
local function idle()
  return redis.call('EXISTS', job .. ':queued', job .. ':leased', job .. ':deferred', job .. ':maps',
    job .. ':maps_leased') == 0
end

-- finish ends the job. Nothing of it changes afterwards; what only a running job
-- needs is freed. The next waiting job takes its place. The tenant's hash counts the end:
-- here and nowhere else does a job become terminal, and the count outlives the job.
local function finish(rings, now, state, stop)
  local h = redis.call('HMGET', job, 'retention', 'idem')
  local expires = now + tonumber(h[1])
  redis.call('HSET', job, 'state', state, 'stop', stop, 'ended', int(now), 'expires', int(expires))
  redis.call('UNLINK', job .. ':seen', job .. ':refseen', job .. ':claims', job .. ':moved', job .. ':retiring',
    job .. ':patterns', job .. ':bodies', job .. ':lastmod')
  -- Kept for a moment, so that the commit that ended the job, sent twice, is known.
  redis.call('PEXPIRE', job .. ':done', LEASE)
  redis.call('PEXPIRE', job .. ':maps_done', LEASE)
  redis.call('PEXPIRE', job .. ':slices', LEASE)
  redis.call('ZADD', root .. ':due', int(expires), id)
  if h[2] and h[2] ~= '' then redis.call('PEXPIRE', h[2], int(tonumber(h[1]) + KEY_MEMORY)) end
  redis.call('SREM', root .. ':running', id)
  redis.call('ZREM', root .. ':waiting', id)
  redis.call('SREM', root .. ':paused', id)
  redis.call('SREM', root .. ':flying', id)
  redis.call('HINCRBY', root, 'ended:' .. state, 1)
  outbox(id, 'job.' .. state, now)
  gate(rings, now)
end

-- recrawled makes of a crawl that left nothing out the last complete one of its series: what
-- the series saw last before the job was made is missing. Pages that are gone (404, 410) are no
-- fault of the crawl; those that failed otherwise, or that a robots.txt out of reach kept from
-- it, may be as they were, and so may those that a sitemap alone names which could not be read.
-- A retry has but some of its pages. O(log n) in the items.
local function recrawled()
  local h = redis.call('HMGET', job, 'collection', 'collection_form', 'series', 'created', 'unsure',
    's:robots_unreachable', 'failed', 'f:http_404', 'f:http_410', 'maps_failed',
    'retry_of')
  if not h[1] or h[5] or h[6] or h[10] or h[11] or tonumber(h[7]) ~= tonumber(h[8] or 0) + tonumber(h[9] or 0) then return end
  local c = root .. ':c:' .. h[1]
  local of = redis.call('HMGET', c, 'form', 'data', 'format')
  local d = of[1] == h[2] and tonumber(of[3] or 1) <= COLLECTION_FORMAT and root .. ':d:' .. of[2]
  local series = d and redis.call('HGET', d .. ':series', h[3])
  if not series then return end
  local last = redis.call('HGET', d .. ':since', series)
  if last and tonumber(last) >= tonumber(h[4]) then return end
  redis.call('HSET', d .. ':since', series, h[4])
  local n = redis.call('ZCOUNT', d .. ':seen:' .. series, last or '-inf', '(' .. h[4])
  if n == 0 then return end
  redis.call('HINCRBY', c, 'missing', n)
  redis.call('HSET', job, 'missing', n)
end

-- complete ends a job that has nothing left, with the state that its counts say.
local function complete(rings, now)
  local h = redis.call('HMGET', job, 'failed', 'site', 'seeds_ok', 'r:page_limit', 'blame', 'maps_unread')
  if h[2] == '1' and tonumber(h[3]) == 0 then
    redis.call('HSET', job, 'error', h[5] or '')
    return finish(rings, now, 'failed', 'seed_failed')
  end
  local stop = 'frontier_empty'
  if h[4] or h[6] then stop = 'page_limit' end
  local state = 'completed'
  if tonumber(h[1]) > 0 then state = 'completed_with_errors' end
  if stop == 'frontier_empty' then recrawled() end
  finish(rings, now, state, stop)
end

-- park moves what waits into its place among the cancelled: O(1), whatever its size.
-- Sitemaps are dropped, those in flight too: there is nothing of them to be told.
local function park()
  redis.call('UNLINK', job .. ':maps', job .. ':maps_leased')
  local n = 0
  for _, c in ipairs({'queued', 'deferred'}) do
    local from, to = job .. ':' .. c, job .. ':cancelled_' .. c
    if redis.call('EXISTS', from) == 1 then
      if c == 'queued' then n = n + redis.call('LLEN', from) else n = n + redis.call('ZCARD', from) end
      redis.call('RENAME', from, to)
    end
  end
  if n > 0 then redis.call('HINCRBY', job, 'cancelled', n) end
end

-- revoke cancels all that is leased; a commit that comes later finds its lease gone.
local function revoke()
  local n = redis.call('ZCARD', job .. ':leased')
  if n == 0 then return end
  redis.call('RENAME', job .. ':leased', job .. ':cancelled_leased')
  redis.call('HINCRBY', job, 'cancelled', n)
end

-- wind_down stops a job that has not ended: what waits is cancelled at once, what
-- is in flight may be given back until the grace is over.
local function wind_down(rings, now, stop)
  park()
  if redis.call('EXISTS', job .. ':leased') == 0 then return finish(rings, now, 'cancelled', stop) end
  -- One that waits at the gate again after a pause must not be let in any more.
  if redis.call('ZREM', root .. ':waiting', id) == 1 then redis.call('SADD', root .. ':paused', id) end
  redis.call('HSET', job, 'state', 'cancelling', 'stop', stop, 'cancel_at', int(now + GRACE))
  wake(now + GRACE)
end
