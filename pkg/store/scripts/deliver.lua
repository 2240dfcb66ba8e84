-- deliver claims events of a tenant that are due. A claim has a deadline: that of a lost
-- worker falls free, and its event is tried again under the same id. The try is counted
-- here, so that an event that takes its worker with it is not tried for ever.
--
-- KEYS  1 root
-- ARGV  1 now, 2 the claim: unique to this call, 3 how many events at most, 4 how many of one
--       receiver at once, 5… receiver, events in flight there of each that the caller has any of
-- Answers {now in ms, 1 when more may be due, then job, id of its webhook, number, type, at, try,
--          url, secret, snapshot of each}
--# include outbox.lua
--# include job.lua
local now = clock(ARGV[1])
local CLAIM = 20000   -- ms that a claim holds: an exchange and its settling, see Go
local MAX_TRIES = 8   -- after which an event is given up
local BUSY = 2000     -- ms after which an event is looked at again whose receiver had enough
local LOOK = 100      -- jobs looked at in one call, about a millisecond of Redis
local most, each = tonumber(ARGV[3]), tonumber(ARGV[4])
local busy = {}
for i = 5, #ARGV, 2 do busy[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- head answers the number of the job's next event; nil when there is none. One whose last
-- try was lost with its worker is given up: nobody knows what became of it.
local function head(hook, w)
  local n = tonumber(w[4])
  if w[6] ~= '' and tonumber(redis.call('HGET', hook, n .. '.tries')) >= MAX_TRIES then
    redis.call('HSET', hook, n .. '.state', 'failed', n .. '.status', 0, n .. '.error',
      'The worker was lost each time it tried, or at the last try.')
    n = n + 1
    redis.call('HSET', hook, 'head', n, 'claim', '')
  end
  if n <= tonumber(w[5]) then return n end
end

local answer, taken = {now, 0}, 0
local ids = redis.call('ZRANGEBYSCORE', root .. ':outbox', '-inf', int(now), 'LIMIT', 0, LOOK)
for i, due in ipairs(ids) do
  if taken == most then answer[2] = 1; break end
  local hook = root .. ':j:' .. due .. ':webhook'
  local w = redis.call('HMGET', hook, 'url', 'host', 'secret', 'head', 'n', 'claim', 'id')
  local expires = redis.call('HGET', root .. ':j:' .. due, 'expires')
  local n = w[1] and not (expires and now >= tonumber(expires)) and head(hook, w)
  if not n then
    redis.call('ZREM', root .. ':outbox', due) -- the sweep has yet to remove the job
  elseif (busy[w[2]] or 0) >= each then
    redis.call('ZADD', root .. ':outbox', int(now + BUSY), due)
  else
    local try = redis.call('HINCRBY', hook, n .. '.tries', 1)
    local e = redis.call('HMGET', hook, n .. '.type', n .. '.at', n .. '.job')
    redis.call('HSET', hook, 'claim', ARGV[2])
    redis.call('ZADD', root .. ':outbox', int(now + CLAIM), due)
    busy[w[2]] = (busy[w[2]] or 0) + 1
    taken = taken + 1
    for _, v in ipairs({due, w[7], n, e[1], tonumber(e[2]), try, w[1], w[3], e[3]}) do answer[#answer + 1] = v end
  end
  if i == LOOK then answer[2] = 1 end
end
return answer
