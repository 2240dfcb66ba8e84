-- expire frees all that an ended job holds and leaves a tombstone, so that its id
-- answers 410 for as long as its idempotency key is remembered. Each UNLINK frees
-- in the background; no key is bigger than a thousand records. Events that nobody was told
-- of when the retention ends stay in the outbox as a number, for a worker to report.
local function expire(now)
  local h = redis.call('HMGET', job, 'records', 'errors', 'digest', 'idem', 'expires', 'kept_bytes')
  local w, untold = redis.call('HMGET', job .. ':webhook', 'host', 'head', 'n'), 0
  if w[1] then
    redis.call('ZREM', root .. ':outbox:' .. w[1], id)
    if now >= tonumber(h[5]) then untold = tonumber(w[3]) - tonumber(w[2]) + 1 end
  end
  local fields, names = redis.call('HKEYS', job), {':spec', ':plan', ':queued', ':leased', ':deferred', ':seen',
    ':refseen', ':refused', ':claims', ':done', ':moved', ':slices', ':retiring', ':cancelled_queued', ':cancelled_deferred',
    ':cancelled_leased', ':patterns', ':bodies', ':maps', ':maps_leased', ':maps_done', ':mapurls', ':lastmod', ':webhook'}
  for _, f in ipairs(fields) do
    if string.sub(f, 1, 2) == 's:' then names[#names + 1] = ':skip:' .. string.sub(f, 3) end
  end
  for k = 0, math.ceil(tonumber(h[1]) / 1000) - 1 do
    names[#names + 1] = ':rec:' .. k
    if h[6] then names[#names + 1] = ':body:' .. k end
  end
  for k = 0, math.ceil(tonumber(h[2]) / 1000) - 1 do names[#names + 1] = ':err:' .. k end
  for _, name in ipairs(names) do redis.call('UNLINK', job .. name) end
  local memory = KEY_MEMORY
  if h[4] and h[4] ~= '' then memory = math.max(1, redis.call('PTTL', h[4])) end
  redis.call('DEL', job)
  redis.call('HSET', job, 'gone', int(now), 'digest', h[3])
  redis.call('PEXPIRE', job, int(memory))
  redis.call('ZREM', root .. ':jobs', id)
  redis.call('ZREM', root .. ':due', id)
  redis.call('ZREM', root .. ':outbox', id)
  if untold > 0 then
    redis.call('HSET', job, 'untold', untold)
    redis.call('ZADD', root .. ':outbox', int(now), id)
  end
end
