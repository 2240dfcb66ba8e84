-- stats counts what a tenant has that has not ended, and what of it ever ended. It only reads,
-- and it looks into no more jobs than it is told, at some 4 µs each: those that passed the run
-- gate first, then those that are paused, then those that wait, in their order.
--
-- KEYS  1 root
-- ARGV  1 now, 2 jobs to look into at most
-- Answers {jobs looked into, jobs not looked into,
--          jobs queued, running, paused, cancelling,
--          ms since the first that waits at the gate was submitted, or resumed (0: none waits),
--          URLs queued, active, deferred, due,
--          jobs with events of webhooks that are due,
--          jobs that ever ended completed, completed_with_errors, failed, cancelled}
-- Of a job past the gate, or paused, that is not looked into the state is not counted. URLs are due that a
-- slice could lease now: none of a job that waits at the gate, is paused or cancelled, or rests.
--# include clock.lua
local root, now, most = KEYS[1], clock(ARGV[1]), tonumber(ARGV[2])
local states = {queued = 0, running = 0, paused = 0, cancelling = 0}
local looked, queued, active, deferred, due = 0, 0, 0, 0, 0

-- rests reports whether a job is to be left alone until a time that has not come.
local function rests(till) return till and now < tonumber(till) end

-- look counts the URLs of a job, and answers how many wait and how many are deferred.
local function look(job)
  looked = looked + 1
  local waits, later = redis.call('LLEN', job .. ':queued'), redis.call('ZCARD', job .. ':deferred')
  queued, deferred = queued + waits, deferred + later
  active = active + redis.call('ZCARD', job .. ':leased')
  return waits, later
end

-- passed counts jobs that are past the gate, or were: what they are stands in their hashes.
local function passed(jobs)
  for i = 1, math.min(#jobs, most - looked) do
    local job = root .. ':j:' .. jobs[i]
    local h = redis.call('HMGET', job, 'state', 'rest_until', 'day_until')
    local waits, later = look(job)
    if states[h[1]] then
      states[h[1]] = states[h[1]] + 1
      if (h[1] == 'queued' or h[1] == 'running') and not rests(h[2]) and not rests(h[3]) then
        due = due + waits
        if later > 0 then due = due + redis.call('ZCOUNT', job .. ':deferred', '-inf', int(now)) end
      end
    end
  end
end

local running, aside = redis.call('SMEMBERS', root .. ':running'), redis.call('SMEMBERS', root .. ':paused')
passed(running)
passed(aside)

local waiting, oldest = redis.call('ZCARD', root .. ':waiting'), 0
states.queued = states.queued + waiting
if waiting > 0 then
  local first = redis.call('ZRANGE', root .. ':waiting', 0, 0)[1]
  local since = redis.call('HMGET', root .. ':j:' .. first, 'resumed', 'created')
  oldest = math.max(0, now - tonumber(since[1] or since[2] or now))
  if looked < most then
    for _, i in ipairs(redis.call('ZRANGE', root .. ':waiting', 0, most - looked - 1)) do look(root .. ':j:' .. i) end
  end
end

local ended = redis.call('HMGET', root, 'ended:completed', 'ended:completed_with_errors', 'ended:failed',
  'ended:cancelled')
for i = 1, 4 do ended[i] = tonumber(ended[i] or 0) end
return {looked, #running + #aside + waiting - looked, states.queued, states.running, states.paused, states.cancelling, oldest,
  queued, active, deferred, due, redis.call('ZCOUNT', root .. ':outbox', '-inf', int(now)), unpack(ended)}
