-- prune deletes archived tasks that are too old or too many, the oldest first.
--
-- KEYS  1 archived
-- ARGV  1 Unix time in seconds up to which a task is too old, 2 how many are kept,
--       3 how many are deleted at most, 4 what the keys of tasks begin with
-- Answers how many were deleted.
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
if #ids == 0 then
  local over = math.min(redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2]), tonumber(ARGV[3]))
  if over <= 0 then return 0 end
  ids = redis.call('ZRANGE', KEYS[1], 0, over - 1)
end
for _, id in ipairs(ids) do
  redis.call('DEL', ARGV[4] .. id)
  redis.call('ZREM', KEYS[1], id)
end
return #ids
