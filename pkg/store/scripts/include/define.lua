-- define makes a collection of the tenant.
--
--   root:collections ZSET  names, all with score 0
--   root:c:NAME HASH       def, its definition as JSON; form, the same in one form, so that two
--                          definitions compare; data, the number in the names of what it holds;
--                          created, updated, ms; seq, the number of its last item; series, how many
--                          there are; missing, how many items are
--                          format, that of all that is kept of it, 1 without one
local MAX_COLLECTIONS = 1000 -- of one tenant

-- COLLECTION_FORMAT is to a collection what FORMAT in job.lua is to a job. A collection lives
-- long: a process that gives it a greater one keeps those from it, and their jobs, that are older.
local COLLECTION_FORMAT = 1

local function beyond(format) return format and tonumber(format) > COLLECTION_FORMAT end

local function define(name, form, def, now)
  local data = redis.call('HINCRBY', root, 'collections', 1)
  redis.call('HSET', root .. ':c:' .. name, 'format', COLLECTION_FORMAT, 'form', form, 'def', def, 'data', data,
    'created', int(now), 'updated', int(now), 'seq', 0, 'series', 0, 'missing', 0)
  redis.call('ZADD', root .. ':collections', 0, name)
end
