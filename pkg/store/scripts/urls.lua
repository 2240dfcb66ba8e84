-- urls reads a page of the URLs that a job knows: container by container in the order
-- given, each from its first entry on. It looks at no more than LOOK entries a call,
-- however few of them fit: the work is bounded, the caller goes on.
--
-- KEYS  1 root, 2 job
-- ARGV  1 limit, 2 reason or '', 3 container to begin in ('' for the first), 4 entries
--       of it to pass over, then the names of the containers: queued, leased, deferred,
--       rec, err, skip (for skip:R of each reason R, by name), cancelled_queued,
--       cancelled_deferred, cancelled_leased, refused
-- Answers {state of the job ('' when there is none), container and offset to go on from,
--         1 when there is more, plan or '', then name, offset of its first entry looked
--         at, {entries} of each container}. The plan comes with refused URLs, which it
--         explains. An entry is a row, for deferred with a tab and when it is due, in
--         ms; for err it is what is stored, for rec its number and a space before that
local job, limit, reason = KEYS[2], tonumber(ARGV[1]), ARGV[2]
local LOOK = 1000 -- entries, as many as the longest page has
local CHUNK = 200 -- entries read at once where few may fit
local ZSETS = {leased = true, deferred = true, cancelled_deferred = true, cancelled_leased = true}

local h = redis.call('HMGET', job, 'state', 'records', 'errors')
if not h[1] then return {''} end

local names = {}
for i = 5, #ARGV do
  if ARGV[i] ~= 'skip' then
    names[#names + 1] = ARGV[i]
  else
    local lists = {}
    for _, field in ipairs(redis.call('HKEYS', job)) do
      local r = string.match(field, '^s:(.+)$')
      if r and (reason == '' or r == reason) then lists[#lists + 1] = 'skip:' .. r end
    end
    table.sort(lists)
    for _, name in ipairs(lists) do names[#names + 1] = name end
  end
end

local function size(name)
  if name == 'rec' then return tonumber(h[2]) end
  if name == 'err' then return tonumber(h[3]) end
  return redis.call(ZSETS[name] and 'ZCARD' or 'LLEN', job .. ':' .. name)
end

-- stored reads n of a sequence that has a thousand a hash, behind the given number.
local function stored(name, after, n)
  local out = {}
  while #out < n do
    local from = after + #out
    local k = math.floor(from / 1000)
    local fields = {}
    for i = from + 1, math.min(after + n, 1000 * (k + 1)) do fields[#fields + 1] = i end
    for _, text in ipairs(redis.call('HMGET', job .. ':' .. name .. ':' .. k, unpack(fields))) do
      out[#out + 1] = text
    end
  end
  return out
end

-- entries reads n entries from an offset on. In a LIST that is a walk over its nodes from
-- the nearer end, each of some hundred rows: microseconds in one of a million.
local function entries(name, from, n)
  if name == 'rec' or name == 'err' then return stored(name, from, n) end
  if not ZSETS[name] then return redis.call('LRANGE', job .. ':' .. name, from, from + n - 1) end
  if name ~= 'deferred' then return redis.call('ZRANGE', job .. ':' .. name, from, from + n - 1) end
  local flat, out = redis.call('ZRANGE', job .. ':' .. name, from, from + n - 1, 'WITHSCORES'), {}
  for i = 1, #flat, 2 do out[#out + 1] = flat[i] .. '\t' .. flat[i + 1] end
  return out
end

-- fits reports whether an entry belongs to the answer: only pages are URLs of a job, no
-- sitemap, and no item of a page, whose record begins with that of which it is. What
-- is quoted in a stored text is escaped, so that its error_type is found but once.
local function fits(name, entry)
  if name == 'rec' then return string.sub(entry, 1, 6) ~= '{"of":' end
  if name == 'err' then return reason == '' or string.find(entry, '"error_type":"' .. reason .. '"', 1, true) end
  if name == 'refused' then return reason == '' or string.sub(entry, 1, #reason + 1) == reason .. ' ' end
  return string.sub(entry, 1, 2) == 'p '
end

local answer = {h[1], ARGV[3], tonumber(ARGV[4]), 0, ''}
local found, left, at, offset = 0, LOOK, 1, 0
if ARGV[3] ~= '' then
  while names[at] and names[at] ~= ARGV[3] do at = at + 1 end
  offset = tonumber(ARGV[4])
end
while names[at] do
  local name, taken = names[at], {}
  local all = size(name)
  offset = math.min(offset, all) -- it has become shorter since
  local first = offset
  while offset < all and found < limit and left > 0 do
    local n = limit - found
    if reason ~= '' then n = math.max(n, CHUNK) end
    for _, entry in ipairs(entries(name, offset, math.min(n, left, all - offset))) do
      if found == limit then break end
      offset, left = offset + 1, left - 1
      if fits(name, entry) then
        found = found + 1
        if name == 'rec' then entry = offset .. ' ' .. entry end
        taken[#taken + 1] = entry
      end
    end
  end
  if #taken > 0 then
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = name, first, taken
    if name == 'refused' then answer[5] = redis.call('GET', job .. ':plan') or '' end
  end
  answer[2], answer[3] = name, offset
  if found == limit or left == 0 then
    local more = offset < all
    for i = at + 1, #names do more = more or size(names[i]) > 0 end
    if more then answer[4] = 1 end
    break
  end
  at, offset = at + 1, 0
end
return answer
