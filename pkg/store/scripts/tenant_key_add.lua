-- tenant_key_add keeps a key of a tenant. Its digest names the call too: no other call has
-- the same random key, so one that is sent again finds its own.
--
-- KEYS  1 record of the tenant, 2 keys of the tenant, 3 the key
-- ARGV  1 now, 2 tenant, 3 id, 4 digest in hex, 5 label, 6 expires in ms or '', 7 keys that
--       a tenant may have
-- Answers {verdict, key}; verdict is one of
--       kept       now, or by this same call whose answer was lost
--       no_tenant  there is no such tenant
--       full       it has as many keys as it may
--       taken      another key has this id
--       over       the key would have ended by now
--# include clock.lua
--# include tenant.lua
if redis.call('EXISTS', KEYS[1]) == 0 then return {'no_tenant'} end
local now, name, id, digest, expires = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local live, own = living(KEYS[2], now), key(digest, now)
if own and own.tenant == name then return {'kept', shown(own)} end
if taken(KEYS[2], name, id, digest) then return {'taken'} end
if #live >= tonumber(ARGV[7]) then return {'full'} end
if expires ~= '' and tonumber(expires) <= now then return {'over'} end
return keep(KEYS[2], name, id, digest, ARGV[5], expires, now)
