-- release gives leased URLs back, without an attempt burnt: at once, or deferred
-- when their host has no slot for a while. A cancelled job's become cancelled.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, then row, ms until it is due (0: at once), what for of each
-- Answers {number given back, rings…}; rows that the slice does not hold are passed over
--# include job.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local gen, held = ARGV[3], 0
local state = redis.call('HGET', job, 'state')
local back, dropped = {}, {}
for i = 4, #ARGV, 3 do
  local row, delay = ARGV[i], tonumber(ARGV[i + 1])
  if string.sub(row, 1, 1) == 's' then
    if holds(gen, 'maps_leased', row) then
      held = held + 1
      redis.call('ZREM', job .. ':maps_leased', row)
      redis.call('ZADD', job .. ':maps', int(now + delay), row)
      if delay > 0 then
        redis.call('HSET', job, 'maps_for', ARGV[i + 2])
        wake(now + delay)
      end
    end
  elseif holds(gen, 'leased', row) then
    held = held + 1
    redis.call('ZREM', job .. ':leased', row)
    if state == 'cancelling' then
      dropped[#dropped + 1] = row
    elseif delay > 0 then
      redis.call('ZADD', job .. ':deferred', int(now + delay), row)
      redis.call('HSET', job, 'deferred_for', ARGV[i + 2])
      wake(now + delay)
    else
      table.insert(back, 1, row) -- LPUSH reverses: the first released is the first leased again
    end
  end
end
if #back > 0 then redis.call('LPUSH', job .. ':queued', unpack(back)) end
local answer = {held}
if #dropped > 0 then
  redis.call('RPUSH', job .. ':cancelled_queued', unpack(dropped))
  redis.call('HINCRBY', job, 'cancelled', #dropped)
  if redis.call('EXISTS', job .. ':leased') == 0 then
--# include outbox.lua
--# include gate.lua
--# include ends.lua
    finish(answer, now, 'cancelled', redis.call('HGET', job, 'stop'))
  end
end
return answer
