-- status answers one consistent picture of a job: its hash as field, value…, and
-- what its containers count. O(1) in the number of pages.
local function status()
  local first = redis.call('ZRANGE', job .. ':deferred', 0, 0, 'WITHSCORES')
  return {redis.call('HGETALL', job), redis.call('LLEN', job .. ':queued'), redis.call('ZCARD', job .. ':leased'),
    redis.call('ZCARD', job .. ':deferred'), redis.call('ZRANK', root .. ':waiting', id) or -1,
    redis.call('ZCARD', job .. ':slices'), first[2] or ''}
end
