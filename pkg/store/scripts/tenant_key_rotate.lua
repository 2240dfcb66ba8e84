-- tenant_key_rotate keeps a key that takes the place of another: the new one begins and
-- the end of the old one is set in the same step. The digest names the call, as in
-- tenant_key_add.
--
-- KEYS  1 record of the tenant, 2 keys of the tenant, 3 the new key
-- ARGV  1 now, 2 tenant, 3 id, 4 digest in hex, 5 id of the old key, 6 expires in ms, or ''
--       for as long a life as the old one was given, 7 keys that a tenant may have,
--       8 ms for which the old key still holds
-- Answers {verdict, new key}; verdict as in tenant_key_add, and
--       no_key     the tenant has no such old key
--# include clock.lua
--# include tenant.lua
if redis.call('EXISTS', KEYS[1]) == 0 then return {'no_tenant'} end
local now, name, id, digest, expires = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local live, own = living(KEYS[2], now), key(digest, now)
if own and own.tenant == name and id ~= ARGV[5] then return {'kept', shown(own)} end
local old = redis.call('HGET', KEYS[2], ARGV[5])
if not old then return {'no_key'} end
if taken(KEYS[2], name, id, digest) then return {'taken'} end
local was = key(old, now)
local ends = now + tonumber(ARGV[8])
if was.expires ~= '' then ends = math.min(ends, tonumber(was.expires)) end
local others = #live
if ends <= now then others = others - 1 end
if others >= tonumber(ARGV[7]) then return {'full'} end
if expires == '' and was.life then expires = int(now + tonumber(was.life)) end
if expires ~= '' and tonumber(expires) <= now then return {'over'} end
local answer = keep(KEYS[2], name, id, digest, was.label, expires, now)
if ends <= now then revoke(KEYS[2], name, ARGV[5], old, '') else lasts(old, ends, now) end
return answer
