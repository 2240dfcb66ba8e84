-- lease moves due URLs to a slice, within the job's own concurrency, which is
-- exact across all workers, and within the slice's fair part of it.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 how many at most, 5 how many the slice knows that it holds
-- Answers {state, ms until the next deferred URL is due (-1: none is deferred),
--          URLs still queued, {rows}, rings…}; state 'lost' as in renew. When the slice
--          holds more than it knows, because an answer was lost, rows are all it holds
--# include outbox.lua
--# include job.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local h = redis.call('HMGET', job, 'state', 'concurrency')
if h[1] and terminal(h[1]) then return {h[1], -1, 0, {}} end
if not redis.call('ZSCORE', job .. ':slices', ARGV[3]) then return {'lost', -1, 0, {}} end
if h[1] ~= 'running' then return {h[1], -1, 0, {}} end
local limit = tonumber(h[2])
local mine = redis.call('ZCOUNT', job .. ':leased', ARGV[3], ARGV[3])
local n = math.min(tonumber(ARGV[4]), limit - redis.call('ZCARD', job .. ':leased'),
  math.ceil(limit / math.max(1, live(now))) - mine)
local rows = {}
if mine > tonumber(ARGV[5]) then
  rows = redis.call('ZRANGEBYSCORE', job .. ':leased', ARGV[3], ARGV[3])
elseif n > 0 then
  -- Deferred URLs first: they have waited since they were leased before.
  rows = redis.call('ZRANGEBYSCORE', job .. ':deferred', '-inf', int(now), 'LIMIT', 0, n)
  if #rows > 0 then redis.call('ZREM', job .. ':deferred', unpack(rows)) end
  if #rows < n then
    local more = redis.call('LPOP', job .. ':queued', n - #rows)
    if more then for _, row in ipairs(more) do rows[#rows + 1] = row end end
  end
  if #rows > 0 then
    local add = {}
    for i, row in ipairs(rows) do add[2 * i - 1], add[2 * i] = ARGV[3], row end
    redis.call('ZADD', job .. ':leased', unpack(add))
  end
end
local wait, first = -1, redis.call('ZRANGE', job .. ':deferred', 0, 0, 'WITHSCORES')
if first[2] then wait = math.max(0, tonumber(first[2]) - now) end
local left = redis.call('LLEN', job .. ':queued')
local answer = {h[1], wait, left, rows}
if left > 0 then ring_more(answer, now) end
return answer
