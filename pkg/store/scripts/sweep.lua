-- sweep heals a tenant's jobs whose time has come: URLs of dead slices go back,
-- cancels and time limits are carried out, jobs without a slice are rung, expired
-- jobs become tombstones; what a deleted collection held is freed. It pops by due time, so idle jobs cost nothing.
--
-- KEYS  1 root
-- ARGV  1 now, 2 jobs to look at at most, 3 how many jobs of a newer format the caller knows to be
--       the first that are due: it leaves them alone, and they must not keep it from the others
-- Answers {jobs healed, slices found dead, URLs given back, jobs expired,
--          URLs given up because their workers were lost,
--          ms until the tenant needs a sweep again (-1: never, as it stands),
--          1 when events of webhooks are due, jobs of a newer format as in ARGV,
--          1 when more jobs may be due, rings…}
--# include outbox.lua
--# include job.lua
--# include gate.lua
--# include ends.lua
--# include slices.lua
--# include settled.lua
--# include expire.lua
--# include drop.lua
--# include when_full.lua
local now = clock(ARGV[1])
local BATCH = 500 -- URLs given back in one call, about a millisecond of Redis
local rings = {}
local dead, back, gone, lost = 0, 0, 0, 0

-- fields of a row; the last is the rest, url and fetch_url.
local function split(row) return string.match(row, '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (.+)$') end

-- bury gives back what a dead slice held; true when that was all.
local function bury(gen)
  local rows = redis.call('ZRANGEBYSCORE', job .. ':leased', gen, gen, 'LIMIT', 0, BATCH)
  for _, row in ipairs(rows) do
    redis.call('ZREM', job .. ':leased', row)
    local kind, n, depth, parent, attempt, hops, rest = split(row)
    attempt = tonumber(attempt) + 1
    if attempt >= MAX_LOST then
      local seq = redis.call('HINCRBY', job, 'errors', 1)
      local url = string.match(rest, '^%S+')
      redis.call('HSET', job .. ':err:' .. math.floor((seq - 1) / 1000), seq, cjson.encode({
        source_url = url, url = string.match(rest, '%S+$'), error_type = 'worker_lost', attempts = attempt,
        message = 'The worker was lost each time it tried this page.', depth = tonumber(depth),
        parent = tonumber(parent), at_ms = now}))
      redis.call('HINCRBY', job, 'failed', 1)
      redis.call('HINCRBY', job, 'f:worker_lost', 1)
      lost = lost + 1
      redis.call('SETBIT', job .. ':done', n, 1)
      settled(ARGV[1])
    else
      redis.call('LPUSH', job .. ':queued', table.concat({kind, n, depth, parent, attempt, hops, rest}, ' '))
    end
  end
  back = back + #rows
  return #rows < BATCH
end

-- bury_maps gives back the sitemaps of a dead slice, which are no more than the job's
-- concurrency. One that takes its worker with it each time is dropped.
local function bury_maps(gen)
  for _, row in ipairs(redis.call('ZRANGEBYSCORE', job .. ':maps_leased', gen, gen)) do
    redis.call('ZREM', job .. ':maps_leased', row)
    local kind, n, depth, parent, attempt, hops, rest = split(row)
    attempt = tonumber(attempt) + 1
    if attempt >= MAX_LOST then
      redis.call('HINCRBY', job, 'maps_failed', 1)
      redis.call('SETBIT', job .. ':maps_done', n, 1)
    else
      redis.call('ZADD', job .. ':maps', int(now),
        table.concat({kind, n, depth, parent, attempt, hops, rest}, ' '))
    end
    back = back + 1
  end
end

-- heal does what the job needs now and answers when it needs attention next;
-- nil when never.
local function heal()
  local h = redis.call('HMGET', job, 'state', 'expires', 'cancel_at', 'deadline', 'stop', 'rest_until', 'maps',
    'day_until', 'paused_until', 'cancel_wanted')
  local state = h[1]
  if not state then return nil end
  if terminal(state) then
    if now < tonumber(h[2]) then return tonumber(h[2]) end
    gone = gone + 1
    expire(now)
    return nil
  end
  local over = h[4] and now >= tonumber(h[4]) or h[9] and now >= tonumber(h[9])
  if state ~= 'cancelling' and (h[10] or over) then
    wind_down(rings, now, h[10] and 'cancelled' or 'time_limit')
    return heal()
  end
  if state == 'cancelling' then
    local at = tonumber(h[3])
    if now < at then return at end
    revoke()
    finish(rings, now, 'cancelled', h[5])
    return heal()
  end
  for _, gen in ipairs(redis.call('ZRANGEBYSCORE', job .. ':slices', '-inf', int(now))) do
    if not bury(gen) then return now end
    if h[7] then bury_maps(gen) end
    redis.call('ZREM', job .. ':slices', gen)
    redis.call('SREM', job .. ':retiring', gen)
    dead = dead + 1
  end
  if idle() then
    complete(rings, now)
    return heal()
  end
  local next
  local function by(at) if at and (not next or at < next) then next = at end end
  by(h[4] and tonumber(h[4]))
  if h[6] then
    if now < tonumber(h[6]) then by(tonumber(h[6])) else redis.call('HDEL', job, 'rest_until', 'rest_for') end
  end
  if h[8] then
    if now < tonumber(h[8]) then by(tonumber(h[8])) else redis.call('HDEL', job, 'day_until') end
  end
  local slice = redis.call('ZRANGE', job .. ':slices', 0, 0, 'WITHSCORES')
  by(slice[2] and tonumber(slice[2]))
  if state ~= 'running' then flies() end
  if state == 'paused' then
    by(h[9] and tonumber(h[9]))
    return next
  end
  if live(now) == 0 and redis.call('SISMEMBER', root .. ':running', id) == 1 then
    local lacking = short(now)
    if lacking > 0 then
      -- A ring that no slice has answered yet may wait in a long queue, or be lost.
      -- The same ring again costs nothing while the queue has it, and is made anew
      -- when it has not. One that a worker took with it when it died blocks its
      -- name for minutes: now and then another, with growing patience.
      local r = redis.call('HMGET', job, 'rung', 'ring_at', 'ring_gap', 'rings')
      local gap = tonumber(r[3] or 15000)
      if r[1] == '1' and now < tonumber(r[2]) + gap then
        rings[#rings + 1] = id
        rings[#rings + 1] = tonumber(r[4]) - 1
        by(tonumber(r[2]) + gap)
      else
        if r[1] == '1' then redis.call('HSET', job, 'ring_gap', math.min(60000, gap * 2)) end
        ring(rings, id, now) -- one: the slice that it becomes asks for more
      end
      by(now + REPEAT)
    end
  end
  by(first_due(h[7], '(' .. int(now)))
  return next
end

local known = tonumber(ARGV[3])
local ids = redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', int(now), 'LIMIT', known, ARGV[2])
local healed = 0
for _, i in ipairs(ids) do
  id, job = i, root .. ':j:' .. i
  if newer(redis.call('HGET', job, 'format')) then
    known = known + 1
  else
    local next = heal()
    if next then redis.call('ZADD', root .. ':due', int(next), id) else redis.call('ZREM', root .. ':due', id) end
    healed = healed + 1
  end
end
gate(rings, now)
local first, again = redis.call('ZRANGE', root .. ':due', known, known, 'WITHSCORES'), -1
if first[2] then again = math.max(0, tonumber(first[2]) - now) end
local event, due = redis.call('ZRANGE', root .. ':outbox', 0, 0, 'WITHSCORES')[2], 0
if event then
  local wait = math.max(0, tonumber(event) - now)
  if wait == 0 then due = 1 end
  if again < 0 or wait < again then again = wait end
end
if drop(1000) == 1 then again = 0 end
local answer = {healed, dead, back, gone, lost, again, due, known, #ids == tonumber(ARGV[2]) and 1 or 0}
for _, r in ipairs(rings) do answer[#answer + 1] = r end
return answer
