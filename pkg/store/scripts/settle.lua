-- settle records what became of a try to deliver an event, if its claim still holds; sent
-- twice, it answers the same. The job's next event is due at once when this one is settled.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 the claim, 4 outcome, 5 HTTP status of the answer or 0, 6 why it
--       failed, for a person, or '', 7 ms until the next try; outcome is one of
--   delivered  the receiver has it
--   refused    it never will: the event is given up
--   retry      another try in so many ms, unless it was the last or the job is forgotten by then
--   release    it was not tried to the end: as if it had not been claimed
-- Answers {verdict, state of the event, ms until an event of the job is due (-1: none is left)}
--   done   recorded, now or by this claim before
--   stale  the claim does not hold: nothing changed
--# include outbox.lua
--# include job.lua
id, job = ARGV[2], KEYS[2]
local now = clock(ARGV[1])
local MAX_TRIES = 8 -- as in deliver.lua
local hook = job .. ':webhook'
local w = redis.call('HMGET', hook, 'claim', 'head', 'n', 'settled', 'host')
if not w[1] or w[1] ~= ARGV[3] then
  local nonce, n = string.match(w[4] or '', '^(%S+) (%d+)$')
  if nonce ~= ARGV[3] then return {'stale', '', -1} end
  local due = redis.call('ZSCORE', root .. ':outbox', id)
  return {'done', redis.call('HGET', hook, n .. '.state'), due and math.max(0, tonumber(due) - now) or -1}
end
-- A claim that was over, and whose event has waited for the receiver since, still holds.
redis.call('ZREM', root .. ':outbox:' .. w[5], id)
local n, outcome, wait = w[2], ARGV[4], tonumber(ARGV[7])
local state = 'pending'
if outcome == 'delivered' then
  state = 'delivered'
elseif outcome == 'refused' then
  state = 'failed'
elseif outcome == 'retry' then
  local expires = redis.call('HGET', job, 'expires')
  if tonumber(redis.call('HGET', hook, n .. '.tries')) >= MAX_TRIES or expires and now + wait >= tonumber(expires) then
    state = 'failed'
  end
else
  redis.call('HINCRBY', hook, n .. '.tries', -1)
  wait = 0
end
redis.call('HSET', hook, 'claim', '', 'settled', ARGV[3] .. ' ' .. n, n .. '.state', state)
if outcome ~= 'release' then redis.call('HSET', hook, n .. '.status', ARGV[5], n .. '.error', ARGV[6]) end
if state == 'delivered' then redis.call('HSET', hook, n .. '.delivered', int(now)) end
if state ~= 'pending' then
  wait, n = 0, tonumber(n) + 1
  redis.call('HSET', hook, 'head', n)
  if n > tonumber(w[3]) then
    redis.call('ZREM', root .. ':outbox', id)
    return {'done', state, -1}
  end
end
redis.call('HSET', hook, n .. '.next', int(now + wait))
redis.call('ZADD', root .. ':outbox', int(now + wait), id)
return {'done', state, wait}
