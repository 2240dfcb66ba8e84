-- ring_failed notes that the queue refused a ring, so that a reader sees why the
-- job waits; the sweep rings again within about a second.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 message for a person
--# include outbox.lua
--# include job.lua
--# include slices.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local state = redis.call('HGET', job, 'state')
if not state or terminal(state) then return end
-- A job outside the gate needs no ring: it was paused meanwhile.
if redis.call('SISMEMBER', root .. ':running', id) == 0 then return end
-- Nor does one that has slices, as when it was resumed: they go on, and ring for what lacks.
if live(now) > 0 then return end
--# include when_full.lua
redis.call('HSET', job, 'error', ARGV[3], 'rung', 0)
wake(now + 1000)
