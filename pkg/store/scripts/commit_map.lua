-- commit_map records what one leased sitemap named, in as many parts as it takes, and its
-- end. It changes nothing unless the slice still holds the row. No page's count changes
-- but by the URLs that are admitted.
--
-- KEYS  1 root, 2 job
-- ARGV  1 now, 2 id, 3 gen, 4 n of the row, 5 row, 6 outcome; then by outcome
--   part    more is to come: the slice keeps the row
--   read    that was all
--   none    there is no sitemap: a guess that was wrong
--   listed  the place itself was not asked, because the site names others: its URL is
--           free for whoever names it
--   failed  it could not be read, or not to its end
--           7 number of the part, 8 key of its own URL, of listed, 9 depth of the sitemaps
--           that it names, 10 number of these, 11 number of links that may be admitted,
--           12 of links refused, 13 of links of a pattern, 14 of links with a time, 15 the part
--           that was recorded before this, 0 for none; then
--           key, url of each sitemap; index, ms of each link with a time; then the links
--           as in links.lua
--   retry   7 the row to come back, 8 ms until then
-- Answers {verdict, 1 when the job has no room for more pages, rings…}; verdict is one of
--   done    recorded, now or by this slice before
--   stale   the slice does not hold the row, or what it sent before is lost: nothing changed
--# include outbox.lua
--# include job.lua
--# include gate.lua
--# include ends.lua
--# include links.lua
id, job = ARGV[2], KEYS[2]
local gen, n, row, outcome = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local MOST = 1000  -- sitemaps of a job: 50 million URLs
local DEEPEST = 3  -- sitemaps that led to a sitemap
if not holds(gen, 'maps_leased', row) then
  if redis.call('ZSCORE', job .. ':slices', gen) and (redis.call('GETBIT', job .. ':maps_done', n) == 1
      or redis.call('SISMEMBER', job .. ':moved', gen .. ' ' .. row) == 1) then
    return {'done', 0}
  end
  return {'stale', 0}
end
if outcome ~= 'retry' and ARGV[15] ~= '0'
  and redis.call('SISMEMBER', job .. ':moved', gen .. ' s' .. n .. ' ' .. ARGV[15]) == 0 then
  return {'stale', 0} -- Redis went back: a part is lost
end
--# include when_full.lua
if outcome == 'retry' then
  local at = clock(ARGV[1]) + tonumber(ARGV[8])
  redis.call('ZREM', job .. ':maps_leased', row)
  redis.call('SADD', job .. ':moved', gen .. ' ' .. row)
  redis.call('ZADD', job .. ':maps', int(at), ARGV[7])
  redis.call('HSET', job, 'maps_for', 'retry')
  wake(at)
  return {'done', 0}
end
local h = redis.call('HMGET', job, 'state', 'total', 'max_pages', 'maps')
local total, max = tonumber(h[2]), tonumber(h[3])
local answer = {'done', 0}
-- A part that is sent twice must not count twice what is refused in it.
if outcome ~= 'part' or redis.call('SADD', job .. ':moved', gen .. ' s' .. n .. ' ' .. ARGV[7]) == 1 then
  local depth, nested, stamped = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[14])
  local parent = int(MAP_PARENT + tonumber(n))
  if outcome == 'listed' then redis.call('SREM', job .. ':seen', 's' .. ARGV[8]) end
  local maps, over = tonumber(h[4]), 0
  for i = 16, 15 + 2 * nested, 2 do
    local key, url = 's' .. ARGV[i], ARGV[i + 1]
    if maps >= MOST or depth > DEEPEST then
      over = over + 1 - redis.call('SISMEMBER', job .. ':seen', key)
    elseif redis.call('SADD', job .. ':seen', key) == 1 then
      maps = maps + 1
      redis.call('ZADD', job .. ':maps', int(clock(ARGV[1])), table.concat({'s', maps, depth, parent, 0, 0, url}, ' '))
      redis.call('HSET', job .. ':mapurls', maps, url)
    end
  end
  redis.call('HSET', job, 'maps', maps)
  if over > 0 then redis.call('HINCRBY', job, 'r:sitemap_limit', over) end
  local at, stamps = 16 + 2 * nested, {}
  for i = at, at + 2 * stamped - 1, 2 do stamps[tonumber(ARGV[i])] = ARGV[i + 1] end
  local admitted
  admitted, total = admit(at + 2 * stamped, tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), '1', parent,
    h[1], total, max, stamps)
  redis.call('HSET', job, 'total', total)
end
if total >= max then answer[2] = 1 end
if outcome ~= 'part' then
  redis.call('ZREM', job .. ':maps_leased', row)
  redis.call('SETBIT', job .. ':maps_done', n, 1)
  if outcome == 'read' or outcome == 'failed' then redis.call('HINCRBY', job, 'maps_' .. outcome, 1) end
  if idle() then complete(answer, clock(ARGV[1])) end
end
return answer
