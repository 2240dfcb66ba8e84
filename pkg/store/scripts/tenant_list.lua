-- tenant_list reads tenants in the order of their names.
--
-- KEYS  1 the directory of tenants
-- ARGV  1 the name to begin after, or '', 2 limit
-- Answers {1 when there is more, then name, record of each}
--# include clock.lua
--# include tenant.lua
local from, limit = '-', tonumber(ARGV[2])
if ARGV[1] ~= '' then from = '(' .. ARGV[1] end
local names = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, limit + 1)
local answer = {#names > limit and 1 or 0}
for i = 1, math.min(#names, limit) do
  answer[#answer + 1] = names[i]
  answer[#answer + 1] = redis.call('HGETALL', record_of(names[i]))
end
return answer
