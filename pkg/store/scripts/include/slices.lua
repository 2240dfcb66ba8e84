-- What the scripts about slices share: what is due, how many serve it, how many lack.

-- first_due answers when the first of what is deferred is due, at the given score or
-- later; nil when nothing is. maps says whether the job has sitemaps.
local function first_due(maps, from)
  local at = redis.call('ZRANGEBYSCORE', job .. ':deferred', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  at = at and tonumber(at)
  if maps then
    local map = redis.call('ZRANGEBYSCORE', job .. ':maps', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if map and not (at and at < tonumber(map)) then at = tonumber(map) end
  end
  return at
end

-- live answers how many slices take URLs now. One that retires only ends what it has
-- in flight, and its place is free.
local function live(now)
  return math.max(0, redis.call('ZCOUNT', job .. ':slices', '(' .. int(now), '+inf') -
    redis.call('SCARD', job .. ':retiring'))
end

-- short answers how many slices more than now the job could use: none while it
-- rests, because all that its last slice found was a host that takes no request yet, or
-- because the day's pages are used up.
local function short(now)
  local h = redis.call('HMGET', job, 'parallelism', 'rest_until', 'maps', 'day_until')
  if h[2] and now < tonumber(h[2]) or h[4] and now < tonumber(h[4]) then return 0 end
  local due = redis.call('LLEN', job .. ':queued') + redis.call('ZCOUNT', job .. ':deferred', '-inf', int(now))
  if h[3] then due = due + redis.call('ZCOUNT', job .. ':maps', '-inf', int(now)) end
  if due == 0 then return 0 end
  return math.min(tonumber(h[1]), math.ceil(due / 64)) - live(now)
end

-- ring_more rings when the job could use more slices: soon at first, since a frontier
-- grows fast, and with growing patience while no other worker answers; a ring that nobody
-- needs dies out. It is one ring: the slice that it becomes rings on, see begin.lua. "more_gap" is
-- the patience, in ms, and "more_served" how many slices there were.
local function ring_more(rings, now)
  local h = redis.call('HMGET', job, 'ring_at', 'more_gap')
  local gap = tonumber(h[2] or 100)
  if now - tonumber(h[1] or 0) < gap or short(now) <= 0 then return end
  ring(rings, id, now)
  redis.call('HSET', job, 'more_gap', int(math.min(10000, gap * 2)), 'more_served', int(live(now)))
end
