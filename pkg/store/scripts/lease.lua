-- lease moves due URLs to a slice, within the job's own concurrency, which is
-- exact across all workers, and within the slice's fair part of it. Sitemaps go first,
-- one a lease and in no more than a quarter of the concurrency, so that they keep no
-- page waiting for long. No more is leased than is left of the tenant's pages of the day;
-- when that is none the job rests, and the answer tells of nothing that is queued or due.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 how many at most, 5 how many the slice knows that it holds
-- Answers {state, ms until the next deferred URL is due (-1: none is deferred),
--          URLs still queued and sitemaps still due, {rows}, rings…}; state 'lost' as in renew. When the slice
--          holds more than it knows, because an answer was lost, rows are all it holds
--# include job.lua
--# include slices.lua
--# include day.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'concurrency', 'maps', 'total', 'max_pages', 'parallelism')
if h[1] and terminal(h[1]) then return {h[1], -1, 0, {}} end
if not redis.call('ZSCORE', job .. ':slices', ARGV[3]) then return {'lost', -1, 0, {}} end
if h[1] ~= 'running' then return {h[1], -1, 0, {}} end
local limit = tonumber(h[2])
local mine = redis.call('ZCOUNT', job .. ':leased', ARGV[3], ARGV[3])
local all = redis.call('ZCARD', job .. ':leased')
local mapped = 0 -- sitemaps in flight
if h[3] then
  if tonumber(h[4]) >= tonumber(h[5]) then
    -- Nothing that a sitemap names could be admitted: those that wait are not read.
    local unread = redis.call('ZCARD', job .. ':maps')
    if unread > 0 then
      redis.call('UNLINK', job .. ':maps')
      redis.call('HINCRBY', job, 'maps_unread', unread)
      if idle() then
--# include outbox.lua
--# include gate.lua
--# include ends.lua
        local answer = {'', -1, 0, {}}
        complete(answer, now)
        answer[1] = redis.call('HGET', job, 'state')
        return answer
      end
    end
  end
  mapped = redis.call('ZCARD', job .. ':maps_leased')
  mine = mine + redis.call('ZCOUNT', job .. ':maps_leased', ARGV[3], ARGV[3])
  all = all + mapped
end
local serving = live(now)
local n = math.min(ARGV[4] + 0, limit - all, math.ceil(limit / math.max(1, serving)) - mine)
local rows = {}
local at = first_due(h[3], '-inf')
if mine > ARGV[5] + 0 then
  rows = redis.call('ZRANGEBYSCORE', job .. ':leased', ARGV[3], ARGV[3])
  if h[3] then
    for _, row in ipairs(redis.call('ZRANGEBYSCORE', job .. ':maps_leased', ARGV[3], ARGV[3])) do
      rows[#rows + 1] = row
    end
  end
elseif n > 0 then
  local day, open = day_left(now)
  if day and day <= 0 then
    rest_for_day(now, open)
    return {h[1], -1, 0, {}}
  end
  local map
  if h[3] and mapped < math.ceil(limit / 4) then
    map = redis.call('ZRANGEBYSCORE', job .. ':maps', '-inf', int(now), 'LIMIT', 0, 1)[1]
    if map then
      redis.call('ZREM', job .. ':maps', map)
      redis.call('ZADD', job .. ':maps_leased', ARGV[3], map)
      redis.call('HDEL', job, 'maps_for')
      n = n - 1
    end
  end
  if day then n = math.min(n, day) end
  if n > 0 then
    -- Deferred URLs first: they have waited since they were leased before.
    if at and at <= now then
      rows = redis.call('ZRANGEBYSCORE', job .. ':deferred', '-inf', int(now), 'LIMIT', 0, n)
      if #rows > 0 then redis.call('ZREM', job .. ':deferred', unpack(rows)) end
    end
    if #rows == 0 then
      rows = redis.call('LPOP', job .. ':queued', n) or rows
    elseif #rows < n then
      local more = redis.call('LPOP', job .. ':queued', n - #rows)
      if more then for _, row in ipairs(more) do rows[#rows + 1] = row end end
    end
    if #rows > 0 then
      local add, gen = {}, ARGV[3]
      for i = 1, #rows do add[2 * i - 1], add[2 * i] = gen, rows[i] end
      redis.call('ZADD', job .. ':leased', unpack(add))
    end
  end
  if map then table.insert(rows, 1, map) end
end
local wait = -1
if at and at <= now then at = first_due(h[3], '-inf') end -- for some of what was due is leased now
if at then wait = math.max(0, at - now) end
local left = redis.call('LLEN', job .. ':queued')
if h[3] then left = left + redis.call('ZCOUNT', job .. ':maps', '-inf', int(now)) end
local answer = {h[1], wait, left, rows}
-- A job with as many slices as it may have is short of none, see slices.lua.
if left > 0 and serving < h[6] + 0 then ring_more(answer, now) end
return answer
