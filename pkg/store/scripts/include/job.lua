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

-- int writes a whole number. Redis and .. would write it as what it is to Lua, a double, at up to
-- twice the cost.
local function int(n) return string.format('%d', n) end

local function terminal(state)
  return state == 'completed' or state == 'completed_with_errors' or state == 'failed' or state == 'cancelled'
end

-- holds reports whether a slice has leased a row. What differs is compared as numbers: a server may
-- write a score that is as great as a time in another way.
local function holds(gen, kind, row)
  local by = redis.call('ZSCORE', job .. ':' .. kind, row)
  return by == gen or tonumber(by or 0) == tonumber(gen)
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

-- bound answers the smaller of what the service grants the tenant and of the tenant's own quota, see
-- gate.lua, 0 for none: it is decided each time, so that a change counts at once.
local function bound(name)
  local h = redis.call('HMGET', root, name, 'own:' .. name)
  local granted, own = tonumber(h[1] or 0), tonumber(h[2] or 0)
  if own == 0 or granted > 0 and granted < own then return granted end
  return own
end

-- idle reports whether the job holds no URL of any kind that could still admit one.
local function idle()
  return redis.call('EXISTS', job .. ':queued', job .. ':leased', job .. ':deferred', job .. ':maps',
    job .. ':maps_leased') == 0
end
