-- tenant_authenticate answers whose key it is that has a digest.
--
-- KEYS  1 the key
-- ARGV  1 now, 2 digest in hex
-- Answers {key, record of its tenant}; nothing when the key is unknown, revoked or expired, or
-- when nothing is kept of its tenant
--# include clock.lua
--# include tenant.lua
local k = key(ARGV[2], clock(ARGV[1]))
if not k then return {} end
local record = redis.call('HGETALL', record_of(k.tenant))
if #record == 0 then return {} end
return {shown(k), record}
