-- How a job ends, or is wound down. It needs outbox.lua, job.lua and gate.lua. Scripts that are about one page
-- include it where a job may end, and not at their top: Lua makes each function anew whenever a script is
-- called, and these would take a tenth of the time of a commit.

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
