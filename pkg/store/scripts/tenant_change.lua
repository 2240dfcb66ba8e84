-- tenant_change replaces what is kept of a tenant, but for when it was created. Sent twice
-- it does the same twice.
--
-- KEYS  1 record of the tenant
-- ARGV  1 now, 2 sources as a JSON list or '' for none, 3 quota as JSON, 4 suspended 1|0
-- Answers the record; empty when there is no such tenant
--# include clock.lua
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
-- First what needs no memory: Redis refuses none of the writes behind it, and a tenant can be
-- suspended that has filled it.
redis.call('HDEL', KEYS[1], 'sources')
redis.call('HSET', KEYS[1], 'updated', int(clock(ARGV[1])), 'quota', ARGV[3], 'suspended', ARGV[4])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'sources', ARGV[2]) end
return redis.call('HGETALL', KEYS[1])
