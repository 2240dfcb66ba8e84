-- The run gate, for job.lua: how many jobs of a tenant are in the queue, and which come next.

-- The tenant's hash has what the service grants under these names, and the tenant's own
-- quota behind "own:", where there is one.
local QUOTAS = {'max_queued', 'max_running', 'pages_per_day', 'submissions_per_second'}

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
