-- commit records the outcome of one leased URL: token, outcome, final URL, links,
-- counters, collection, outbox and the end of the job, in one step. It changes
-- nothing unless the slice still holds the row.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 n of the row, 5 row, 6 outcome; then by outcome
--   accepted  7 key of the final URL, 8 record, 9 bytes, 10 depth of its links,
--             11 number of links that may be admitted, 12 of links refused,
--             then the keys of the former, their urls, key, reason, url of each of the
--             latter, then reason, count of links that are no URLs
--   failed    7 error type, 8 error record, 9 why, for a person, of an input; or ''
--   skipped   7 reason, 8 where it led or '', 9 as of failed
--   retry     7 the row to come back, 8 ms until then
--   redirect  7 the row to come back, at once
-- Answers {verdict, seq, rings…}; verdict is one of
--   done   recorded, now or by this slice before; seq is the record's number, 0 if none
--   alias  done, but another page ended at the same URL first: seq is that record's
--   stale  the slice does not hold the row: nothing changed
--# include outbox.lua
--# include collection.lua
--# include job.lua
id, job = ARGV[2], KEYS[2]
local gen, n, row, outcome = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if redis.call('ZSCORE', job .. ':leased', row) ~= gen then
  if redis.call('ZSCORE', job .. ':slices', gen) and (redis.call('GETBIT', job .. ':done', n) == 1
      or redis.call('SISMEMBER', job .. ':moved', gen .. ' ' .. row) == 1) then
    return {'done', 0}
  end
  return {'stale', 0}
end
local h = redis.call('HMGET', job, 'state', 'total', 'max_pages', 'accepted', 'records', 'bytes', 'seeds_ok')
local state = h[1]
local answer = {'done', 0}
local admitted = 0
redis.call('ZREM', job .. ':leased', row)

-- blame keeps why the first input was not accepted: the error of a job without any.
local function blame(why)
  if why ~= '' then redis.call('HSETNX', job, 'blame', why) end
end

local function skip(reason, detail)
  redis.call('RPUSH', job .. ':skip:' .. reason, detail)
  redis.call('HINCRBY', job, 'skipped', 1)
  redis.call('HINCRBY', job, 's:' .. reason, 1)
end

if outcome == 'retry' or outcome == 'redirect' then
  if state == 'cancelling' then
    redis.call('RPUSH', job .. ':cancelled_queued', ARGV[7])
    redis.call('HINCRBY', job, 'cancelled', 1)
    redis.call('SETBIT', job .. ':done', n, 1)
  else
    redis.call('SADD', job .. ':moved', gen .. ' ' .. row)
    if outcome == 'redirect' then
      redis.call('LPUSH', job .. ':queued', ARGV[7])
    else
      local at = clock(ARGV[1]) + tonumber(ARGV[8])
      redis.call('ZADD', job .. ':deferred', int(at), ARGV[7])
      redis.call('HSET', job, 'deferred_for', 'retry')
      wake(at)
    end
  end
else
  redis.call('SETBIT', job .. ':done', n, 1)
end

if outcome == 'accepted' then
  local first = redis.call('HGET', job .. ':claims', ARGV[7])
  if first then
    answer[1], answer[2] = 'alias', tonumber(first)
    skip('alias', row .. '\t' .. first)
  else
    local total, max, seq = tonumber(h[2]), tonumber(h[3]), tonumber(h[5]) + 1
    redis.call('HSET', job .. ':claims', ARGV[7], seq)
    redis.call('HSET', job .. ':rec:' .. math.floor((seq - 1) / 1000), seq, ARGV[8])
    answer[2] = seq
    local links, refusals = tonumber(ARGV[11]), tonumber(ARGV[12])
    local depth, at = ARGV[10], 13
    local late = {} -- links that came after max_pages was reached
    if links > 0 and (state == 'running' or state == 'paused') then
      local seen = redis.call('SMISMEMBER', job .. ':seen', unpack(ARGV, at, at + links - 1))
      local fresh, rows, tail = {}, {}, ' ' .. depth .. ' ' .. seq .. ' 0 0 '
      for i = 1, links do
        if seen[i] == 0 then
          local key, url = ARGV[at + i - 1], ARGV[at + links + i - 1]
          if total < max then
            total = total + 1
            admitted = admitted + 1
            fresh[admitted] = key
            rows[admitted] = 'p ' .. total .. tail .. url
          else
            local k = #late
            late[k + 1], late[k + 2], late[k + 3] = key, 'page_limit', url
          end
        end
      end
      if admitted > 0 then
        redis.call('SADD', job .. ':seen', unpack(fresh))
        redis.call('RPUSH', job .. ':queued', unpack(rows))
      end
    end
    at = at + 2 * links
    for i = at, at + 3 * refusals - 1 do late[#late + 1] = ARGV[i] end
    if #late > 0 then
      local keys = {}
      for i = 1, #late, 3 do keys[#keys + 1] = late[i] end
      local seen = redis.call('SMISMEMBER', job .. ':refseen', unpack(keys))
      -- A refused URL is counted once. Past REMEMBERED of them none is
      -- remembered any more, and each occurrence counts.
      local REMEMBERED = 10000
      local room = REMEMBERED - redis.call('SCARD', job .. ':refseen')
      for i = 1, #keys do
        if seen[i] == 0 then
          local reason = late[3 * i - 1]
          redis.call('HINCRBY', job, 'r:' .. reason, 1)
          if room > 0 then
            room = room - 1
            redis.call('SADD', job .. ':refseen', keys[i])
            redis.call('RPUSH', job .. ':refused', reason .. ' ' .. depth .. ' ' .. int(seq) .. ' ' .. late[3 * i])
          end
        end
      end
    end
    for i = at + 3 * refusals, #ARGV, 2 do redis.call('HINCRBY', job, 'r:' .. ARGV[i], ARGV[i + 1]) end
    local seeds = tonumber(h[7])
    if depth == '1' then seeds = seeds + 1 end
    redis.call('HSET', job, 'total', total, 'accepted', h[4] + 1, 'records', seq, 'bytes', int(h[6] + ARGV[9]),
      'seeds_ok', seeds)
    upsert(seq, ARGV[8])
  end
elseif outcome == 'failed' then
  local seq = redis.call('HINCRBY', job, 'errors', 1)
  redis.call('HSET', job .. ':err:' .. math.floor((seq - 1) / 1000), seq, ARGV[8])
  redis.call('HINCRBY', job, 'failed', 1)
  redis.call('HINCRBY', job, 'f:' .. ARGV[7], 1)
  blame(ARGV[9])
elseif outcome == 'skipped' then
  skip(ARGV[7], row .. '\t' .. ARGV[8])
  blame(ARGV[9])
end

if admitted == 0 then
  if state == 'cancelling' then
    if redis.call('EXISTS', job .. ':leased') == 0 then
      finish(answer, clock(ARGV[1]), 'cancelled', redis.call('HGET', job, 'stop'))
    end
  elseif idle() then
    complete(answer, clock(ARGV[1]))
  end
end
return answer
