-- tenant_key_revoke ends a key at once.
--
-- KEYS  1 keys of the tenant
-- ARGV  1 now, 2 tenant, 3 id, 4 nonce of this call
-- Answers 1 when it ended the key, now or when the same call was sent before and its answer
-- was lost; 0 when the tenant has no such key
--# include clock.lua
--# include tenant.lua
local name, id = ARGV[2], ARGV[3]
if redis.call('GET', gone_of(name, id)) == ARGV[4] then return {1} end
local digest = redis.call('HGET', KEYS[1], id)
if not digest then return {0} end
if not key(digest, clock(ARGV[1])) then
  forget(KEYS[1], id, digest)
  return {0}
end
revoke(KEYS[1], name, id, digest, ARGV[4])
return {1}
