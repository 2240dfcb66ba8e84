-- What a tenant's jobs may crawl from one midnight UTC to the next. root:day:D counts the
-- pages of all its jobs that were settled on day D since the epoch. A job whose day is used
-- up has "day_until", when it may go on: it has no slice until then.
local DAY = 86400000
local PEEK = 1000    -- ms after which a job looks again whether a page of another came back
local WIDEST = 1024  -- no job has more pages in flight: above crawl.DefaultLimits

-- day_left answers how many pages may be leased yet, and how many may be settled; nil
-- where the day has no limit. Each page that is leased is settled once at most, so that
-- the limit is exact, whatever becomes of them. limit is for a caller that has read it.
local function day_left(now, limit)
  limit = limit or bound('pages_per_day')
  if limit == 0 then return nil end
  local open = limit - (redis.call('GET', root .. ':day:' .. math.floor(now / DAY)) or 0)
  local left = open
  -- Those that are leased matter only near the limit. Jobs that were paused have some, too.
  if left > 0 and left < WIDEST * (redis.call('SCARD', root .. ':running') + redis.call('SCARD', root .. ':flying')) then
    for _, jobs in ipairs({root .. ':running', root .. ':flying'}) do -- none is in both
      for _, i in ipairs(redis.call('SMEMBERS', jobs)) do left = left - redis.call('ZCARD', root .. ':j:' .. i .. ':leased') end
    end
  end
  return left, open
end

local function tomorrow(now) return (math.floor(now / DAY) + 1) * DAY end

-- rest_for_day has the job rest until midnight, or only for a moment while pages in
-- flight have what is open: one that is given back is another's.
local function rest_for_day(now, open)
  local till = now + PEEK
  if open <= 0 or till > tomorrow(now) then till = tomorrow(now) end
  redis.call('HSET', job, 'day_until', int(till))
  wake(till)
end

-- resume has the jobs that rest for the day go on, if it has pages left.
local function resume(rings, now)
  local left = day_left(now)
  if left and left <= 0 then return end
  local was_id, was_job = id, job
  for _, i in ipairs(redis.call('SMEMBERS', root .. ':running')) do
    id, job = i, root .. ':j:' .. i
    if redis.call('HDEL', job, 'day_until') == 1 and short(now) > 0 then
      ring(rings, id, now) -- one: the slice that it becomes asks for more
      wake(now + REPEAT)   -- should the ring be lost
    end
  end
  id, job = was_id, was_job
end
