-- tenant_create keeps a new tenant: its record and its name in the directory, or nothing.
--
-- KEYS  1 the directory of tenants, 2 record of the tenant
-- ARGV  1 now, 2 name, 3 nonce of this call, 4 sources as a JSON list or '' for none,
--       5 quota as JSON, 6 suspended 1|0
-- Answers {verdict, record}; verdict is one of
--       created  now, or by this same call whose answer was lost
--       exists   there is a tenant of this name; nothing was changed
--# include clock.lua
local nonce = redis.call('HGET', KEYS[2], 'nonce')
if nonce and nonce ~= ARGV[3] then return {'exists', {}} end
if not nonce then
  local now = int(clock(ARGV[1]))
  redis.call('HSET', KEYS[2], 'nonce', ARGV[3], 'created', now, 'updated', now, 'quota', ARGV[5], 'suspended', ARGV[6])
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], 'sources', ARGV[4]) end
  redis.call('ZADD', KEYS[1], 0, ARGV[2])
end
return {'created', redis.call('HGETALL', KEYS[2])}
