-- What scripts about tenants and their keys share. All of it carries the hash tag {a}, so
-- that these names, which come out of data, are on the shard that KEYS named.
local function record_of(name) return '{a}:t:' .. name end
local function key_of(digest) return '{a}:key:' .. digest end
local function gone_of(name, id) return '{a}:gone:' .. name .. ':' .. id end

-- GONE is how long the id of a key that was ended by hand is remembered, in ms: a call whose
-- answer was lost is sent again within seconds.
local GONE = 60000

-- key answers what is kept of a key; nil for one that is unknown or has expired. Redis removes
-- what has expired, but by its own clock, and a test has another.
local function key(digest, now)
  local h = redis.call('HMGET', key_of(digest), 'tenant', 'id', 'label', 'created', 'expires', 'life')
  if not h[1] or (h[5] and tonumber(h[5]) <= now) then return nil end
  return {tenant = h[1], id = h[2], label = h[3], created = h[4], expires = h[5] or '', life = h[6]}
end

-- shown is a key as scripts answer it.
local function shown(k) return {k.tenant, k.id, k.label, k.created, k.expires} end

-- forget removes a key from the keys of its tenant.
local function forget(keys, id, digest)
  redis.call('UNLINK', key_of(digest))
  redis.call('HDEL', keys, id)
end

-- revoke ends a key by hand. Removing comes first: it needs no memory, and what a script does after
-- its first write is not refused either when Redis is full.
local function revoke(keys, name, id, digest, nonce)
  forget(keys, id, digest)
  redis.call('SET', gone_of(name, id), nonce, 'PX', GONE)
end

-- living answers the keys of a tenant that have not expired, and forgets the ids of those
-- that have: so the hash stays bounded.
local function living(keys, now)
  local held, live = redis.call('HGETALL', keys), {}
  for i = 1, #held, 2 do
    local k = key(held[i + 1], now)
    if k then live[#live + 1] = k else forget(keys, held[i], held[i + 1]) end
  end
  return live
end

-- taken reports whether a new key cannot have this id or digest: another has it, or one that was
-- ended just now, which a call that is sent again must not bring back.
local function taken(keys, name, id, digest)
  return redis.call('HEXISTS', keys, id) == 1 or
    redis.call('EXISTS', key_of(digest), gone_of(name, id)) > 0
end

-- lasts makes a key end at a time in ms; '' is never.
local function lasts(digest, expires, now)
  if expires == '' then return end
  expires = tonumber(expires)
  redis.call('HSET', key_of(digest), 'expires', int(expires))
  -- What is left, not the time itself: the clock of a test is not that of its Redis.
  redis.call('PEXPIRE', key_of(digest), int(expires - now))
end

-- keep stores a new key that ends at expires, and answers it.
local function keep(keys, name, id, digest, label, expires, now)
  redis.call('HSET', key_of(digest), 'tenant', name, 'id', id, 'label', label, 'created', int(now))
  if expires ~= '' then redis.call('HSET', key_of(digest), 'life', int(tonumber(expires) - now)) end
  lasts(digest, expires, now)
  redis.call('HSET', keys, id, digest)
  return {'kept', shown(key(digest, now))}
end
