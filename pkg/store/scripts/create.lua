-- create stores a submission: idempotency, job, frontier and run gate, all or
-- nothing, so that what was answered 202 exists and what was refused left nothing.
--
-- KEYS  1 root, 2 job, 3 the idempotency record, or root again without a key
-- ARGV  1 now ('' = Redis time), 2 id, 3 input digest, 4 nonce of this submission,
--       5 spec, 6 plan, 7 tags as JSON, 8 max_running, 9 concurrency, 10 max_pages,
--       11 parallelism, 12 retention ms, 13 time limit ms (0 none), 14 site 1|0,
--       15 number of sitemaps to begin with, 16… dedupe key, url of each,
--       then dedupe key, url of each input
-- Answers {verdict, id, rings…}; verdict is one of
--       created  stored now, or by this same submission whose answer was lost
--       replay   stored before from the same input; id is that job's
--       reused   the key named another input; id is the first job's
--# include outbox.lua
--# include job.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local keyed = KEYS[3] ~= KEYS[1]

local first, digest
if keyed then
  local e = redis.call('HMGET', KEYS[3], 'job', 'digest')
  first, digest = e[1], e[2]
end
if not first and redis.call('EXISTS', job) == 1 then
  -- The tombstone, or the job, of a key that is itself forgotten.
  first, digest = id, redis.call('HGET', job, 'digest')
end
if first then
  local j = root .. ':j:' .. first
  if redis.call('HGET', j, 'nonce') == ARGV[4] then
    -- Our own submission, sent again because its answer was lost.
    local rings = {'created', first}
    if redis.call('SISMEMBER', root .. ':running', first) == 1 then
      rings[3], rings[4] = first, 0
    end
    return rings
  end
  if digest ~= ARGV[3] then return {'reused', first} end
  return {'replay', first}
end

local seq = redis.call('HINCRBY', root, 'seq', 1)
redis.call('HSET', root, 'max_running', ARGV[8])
redis.call('SET', job .. ':spec', ARGV[5])
redis.call('SET', job .. ':plan', ARGV[6])
local maps = tonumber(ARGV[15])
for i = 1, maps do
  local key, url = ARGV[14 + 2 * i], ARGV[15 + 2 * i]
  redis.call('SADD', job .. ':seen', 's' .. key)
  redis.call('ZADD', job .. ':maps', int(now), 's ' .. i .. ' 0 0 0 0 ' .. url)
  redis.call('HSET', job .. ':mapurls', i, url)
end
local n, rows = 0, {}
for i = 16 + 2 * maps, #ARGV, 2 do
  if redis.call('SADD', job .. ':seen', ARGV[i]) == 1 then
    n = n + 1
    rows[#rows + 1] = 'p ' .. n .. ' 0 0 0 0 ' .. ARGV[i + 1]
    if #rows == 1000 then redis.call('RPUSH', job .. ':queued', unpack(rows)); rows = {} end
  end
end
if #rows > 0 then redis.call('RPUSH', job .. ':queued', unpack(rows)) end
redis.call('HSET', job, 'state', 'queued', 'stop', '', 'seq', seq, 'digest', ARGV[3], 'nonce', ARGV[4],
  'idem', keyed and KEYS[3] or '', 'tags', ARGV[7], 'created', int(now),
  'concurrency', ARGV[9], 'max_pages', ARGV[10], 'parallelism', ARGV[11], 'retention', ARGV[12],
  'time_limit', ARGV[13], 'site', ARGV[14], 'total', n, 'accepted', 0, 'failed', 0, 'skipped', 0,
  'cancelled', 0, 'records', 0, 'errors', 0, 'bytes', 0, 'seeds_ok', 0, 'gen', 0, 'rings', 0)
if maps > 0 then redis.call('HSET', job, 'maps', maps) end
redis.call('ZADD', root .. ':jobs', seq, id)
if keyed then redis.call('HSET', KEYS[3], 'job', id, 'digest', ARGV[3]) end
redis.call('ZADD', root .. ':waiting', seq, id)
local answer = {'created', id}
gate(answer, now)
outbox('job.queued', now)
return answer
