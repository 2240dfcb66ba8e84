-- tenant_keys lists the keys of a tenant that have not ended, in no order.
--
-- KEYS  1 record of the tenant, 2 keys of the tenant
-- ARGV  1 now
-- Answers {1, each key}; {0} when there is no such tenant
--# include clock.lua
--# include tenant.lua
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
local answer = {1}
for _, k in ipairs(living(KEYS[2], clock(ARGV[1]))) do answer[#answer + 1] = shown(k) end
return answer
