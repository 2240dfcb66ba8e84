-- outbox is where an event of a job enters the tenant's outbox, in the same step as the
-- change that it tells of: a snapshot of the job, if its webhook asks for such events.
-- root:outbox ZSET has the jobs with events to deliver, by the time of the next try or, of
-- one that is claimed, by the end of the claim. The first event of a job that is not settled
-- is its head, and no other is ever delivered: so they go in order. root:outbox:RECEIVER ZSET
-- has those of them that were due when their receiver had enough in flight, by when they were.
local function outbox(id, event, now)
  local root = KEYS[1]
  local job = root .. ':j:' .. id
  local w = redis.call('HMGET', job .. ':webhook', 'events', 'n', 'head', 'claim')
  if not w[1] or not string.find(w[1], ' ' .. event .. ' ', 1, true) then return end
  local n, at = tonumber(w[2]) + 1, string.format('%.0f', now)
  local snapshot = redis.call('HMGET', job, 'state', 'stop', 'error', 'total', 'accepted', 'failed', 'skipped',
    'cancelled', 'records', 'bytes', 'created', 'started', 'ended', 'expires', 'tags')
  for i = 1, 15 do snapshot[i] = snapshot[i] or '' end
  snapshot[16] = tostring(redis.call('LLEN', job .. ':queued'))
  snapshot[17] = tostring(redis.call('ZCARD', job .. ':leased'))
  snapshot[18] = tostring(redis.call('ZCARD', job .. ':deferred'))
  redis.call('HSET', job .. ':webhook', 'n', n, n .. '.type', event, n .. '.at', at,
    n .. '.job', cjson.encode(snapshot), n .. '.state', 'pending', n .. '.tries', 0, n .. '.next', at)
  if w[4] and w[4] ~= '' then return end
  -- A head that waits for its next try is tried now: nobody is to hear hours late that the
  -- job has ended, because the news of its beginning could not be delivered.
  redis.call('HSET', job .. ':webhook', w[3] .. '.next', at)
  redis.call('ZADD', root .. ':outbox', at, id)
end
