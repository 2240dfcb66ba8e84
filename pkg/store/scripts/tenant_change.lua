-- tenant_change replaces what is kept of a tenant, but for when it was created, if it is still
-- what the caller read. Each change has an `updated` of its own, later than all before it: by
-- that a caller tells them apart.
--
-- KEYS  1 record of the tenant
-- ARGV  1 now, 2 nonce of this call, 3 `updated` that was read or '' for any, 4 sources as a
--       JSON list or '' for none, 5 quota as JSON, 6 suspended 1|0
-- Answers {verdict, record}; verdict is one of
--       changed  now, or by this same call whose answer was lost
--       stale    another change came in between; nothing was changed
--       absent   there is no such tenant
--# include clock.lua
local was = redis.call('HMGET', KEYS[1], 'created', 'updated', 'change')
if not was[1] then return {'absent', {}} end
if was[3] ~= ARGV[2] then
  if ARGV[3] ~= '' and was[2] ~= ARGV[3] then return {'stale', {}} end
  local updated = math.max(clock(ARGV[1]), (tonumber(was[2] or '') or 0) + 1)
  -- First what needs no memory: Redis refuses none of the writes behind it, and a tenant can be
  -- suspended that has filled it.
  redis.call('HDEL', KEYS[1], 'sources')
  redis.call('HSET', KEYS[1], 'updated', int(updated), 'change', ARGV[2], 'quota', ARGV[5], 'suspended', ARGV[6])
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'sources', ARGV[4]) end
end
return {'changed', redis.call('HGETALL', KEYS[1])}
