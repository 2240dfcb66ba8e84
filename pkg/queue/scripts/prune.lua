-- prune deletes archived tasks that are too old or too many, the oldest first, and ids without a task.
--
-- KEYS  1 archived, 2 completed, 3 scheduled, 4 retry
-- ARGV  1 Unix time in seconds up to which a task is too old, 2 how many are kept,
--       3 how many are deleted at most, 4 what the keys of tasks begin with,
--       5 how many ids of each key are looked at for their task
-- Answers how many ids were deleted.
--
-- asynq's inspector, and with it the monitor, breaks on an id without a task among the first 20 of
-- a key: so the first are looked at, and those behind them when they have become that. A key that
-- is no sorted set is left for a person: it must not keep the others from being pruned.
local function range(...)
  local ids = redis.pcall(...)
  if not ids.err then return ids end
  if string.find(ids.err, 'WRONGTYPE', 1, true) then return nil end
  error(ids.err)
end

local deleted = 0
for _, key in ipairs(KEYS) do
  for _, id in ipairs(range('ZRANGE', key, 0, ARGV[5] - 1) or {}) do
    if redis.call('EXISTS', ARGV[4] .. id) == 0 then
      deleted = deleted + redis.call('ZREM', key, id)
    end
  end
end

local ids = range('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
if not ids then return deleted end
if #ids == 0 then
  local over = math.min(redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2]), tonumber(ARGV[3]))
  if over <= 0 then return deleted end
  ids = redis.call('ZRANGE', KEYS[1], 0, over - 1)
end
for _, id in ipairs(ids) do
  redis.call('DEL', ARGV[4] .. id)
  redis.call('ZREM', KEYS[1], id)
end
return deleted + #ids
