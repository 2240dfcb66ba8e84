-- define makes a collection of the tenant.
--
--   root:collections ZSET  names, all with score 0
--   root:c:NAME HASH       def, its definition as JSON; form, the same in one form, so that two
--                          definitions compare; data, the number in the names of what it holds;
--                          created, updated, ms; seq, the number of its last item; series, how many
--                          there are; missing, how many items are
local MAX_COLLECTIONS = 1000 -- of one tenant

local function define(name, form, def, now)
  local data = redis.call('HINCRBY', root, 'collections', 1)
  redis.call('HSET', root .. ':c:' .. name, 'form', form, 'def', def, 'data', data, 'created', int(now),
    'updated', int(now), 'seq', 0, 'series', 0, 'missing', 0)
  redis.call('ZADD', root .. ':collections', 0, name)
end
