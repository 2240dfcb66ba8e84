-- deliver claims events of a tenant that are due. A claim has a deadline: that of a lost
-- worker falls free, and its event is tried again under the same id. The try is counted
-- here, so that an event that takes its worker with it is not tried for ever.
--
-- KEYS  1 root
-- ARGV  1 now, 2 the claim: unique to this call, 3 how many events at most, 4 how many of one
--       receiver at once, 5… receiver, events in flight there, 1 when events of the tenant wait
--       there, of each that the caller has any of or knows to be waited for
-- Answers {now in ms, 1 when more may be due, {receivers that events still wait for},
--          {job, events that nobody was told of before its retention was over, of each},
--          then job, id of its webhook, number, type, at, try, url, secret, snapshot of each}
--# include outbox.lua
--# include job.lua
local now = clock(ARGV[1])
local CLAIM = 20000   -- ms that a claim holds: an exchange and its settling, see Go
local MAX_TRIES = 8   -- after which an event is given up
local BUSY = 10000    -- ms after which an event whose receiver had enough is looked at unasked
local LOOK = 100      -- jobs looked at in one call, about a millisecond of Redis
local most, each = tonumber(ARGV[3]), tonumber(ARGV[4])
local busy, asked = {}, {}
for i = 5, #ARGV, 3 do
  busy[ARGV[i]] = tonumber(ARGV[i + 1])
  if ARGV[i + 2] == '1' then asked[#asked + 1] = ARGV[i] end
end
local expired, events, taken = {}, {}, 0
local waiting, listed = {}, {}

local function wait_for(host)
  if not listed[host] then waiting[#waiting + 1] = host end
  listed[host] = true
end

-- lapse gives up all that is left of a job whose retention is over; the sweep may have yet
-- to remove it, and then the list says why.
local function lapse(due, hook, w)
  local left = tonumber(redis.call('HGET', root .. ':j:' .. due, 'untold') or 0)
  if w[1] then
    left = tonumber(w[5]) - tonumber(w[4]) + 1
    for n = tonumber(w[4]), tonumber(w[5]) do
      redis.call('HSET', hook, n .. '.state', 'failed', n .. '.error',
        'The retention of the job was over before the receiver took this event.')
    end
    redis.call('HSET', hook, 'head', tonumber(w[5]) + 1, 'claim', '')
  else
    redis.call('HDEL', root .. ':j:' .. due, 'untold')
  end
  if left > 0 then
    expired[#expired + 1] = due
    expired[#expired + 1] = left
  end
end

-- head answers the number of the job's next event; nil when there is none. One whose last
-- try was lost with its worker is given up: nobody knows what became of it.
local function head(due, hook, w)
  local expires = redis.call('HGET', root .. ':j:' .. due, 'expires')
  if not w[1] or expires and now >= tonumber(expires) then return lapse(due, hook, w) end
  local n = tonumber(w[4])
  if w[6] ~= '' and tonumber(redis.call('HGET', hook, n .. '.tries')) >= MAX_TRIES then
    redis.call('HSET', hook, n .. '.state', 'failed', n .. '.status', 0, n .. '.error',
      'The worker was lost each time it tried, or at the last try.')
    n = n + 1
    redis.call('HSET', hook, 'head', n, 'claim', '')
  end
  if n <= tonumber(w[5]) then return n end
end

-- take claims the next event of a job, or has it wait for its receiver.
local function take(due)
  local hook = root .. ':j:' .. due .. ':webhook'
  local w = redis.call('HMGET', hook, 'url', 'host', 'secret', 'head', 'n', 'claim', 'id')
  local n = head(due, hook, w)
  if n and (busy[w[2]] or 0) >= each then
    redis.call('ZADD', root .. ':outbox:' .. w[2], 'NX', redis.call('ZSCORE', root .. ':outbox', due), due)
    redis.call('ZADD', root .. ':outbox', int(now + BUSY), due)
    return wait_for(w[2])
  end
  if w[2] then redis.call('ZREM', root .. ':outbox:' .. w[2], due) end
  if not n then return redis.call('ZREM', root .. ':outbox', due) end
  local try = redis.call('HINCRBY', hook, n .. '.tries', 1)
  local e = redis.call('HMGET', hook, n .. '.type', n .. '.at', n .. '.job')
  redis.call('HSET', hook, 'claim', ARGV[2])
  redis.call('ZADD', root .. ':outbox', int(now + CLAIM), due)
  busy[w[2]] = (busy[w[2]] or 0) + 1
  taken = taken + 1
  for _, v in ipairs({due, w[7], n, e[1], tonumber(e[2]), try, w[1], w[3], e[3]}) do events[#events + 1] = v end
end

--# include when_full.lua
-- What waited longest for a receiver that has room again goes first.
for _, host in ipairs(asked) do
  local line = root .. ':outbox:' .. host
  local places = math.min(most - taken, each - (busy[host] or 0))
  if places > 0 then
    for _, due in ipairs(redis.call('ZRANGE', line, 0, int(places - 1))) do
      take(due)
      redis.call('ZREM', line, due) -- also of a job that is gone, and no longer says its receiver
    end
  end
  if redis.call('ZCARD', line) > 0 then wait_for(host) end
end
local more = 0
local ids = redis.call('ZRANGEBYSCORE', root .. ':outbox', '-inf', int(now), 'LIMIT', 0, LOOK)
for i, due in ipairs(ids) do
  if taken == most then more = 1; break end
  take(due)
  if i == LOOK then more = 1 end
end
local answer = {now, more, waiting, expired}
for _, v in ipairs(events) do answer[#answer + 1] = v end
return answer
