-- admit takes in the links of a page: new ones that the job has room for join the
-- frontier, the others are counted as refused. They stand in ARGV from at: the keys of the
-- links that may be admitted, one argument with their urls, then key, reason, url of each that was
-- refused, then index, pattern of each that belongs to a pattern, then reason, count of links that are
-- no URLs. stamps, if given, has by the index of a link when its page was last changed,
-- in ms. Answers how many were admitted, and the job's total then.
--
-- The urls are one argument because most links of a page are known, and then nobody asks for theirs: each
-- argument is made in Redis and again in Lua, which for twenty of them is a tenth of a commit. It begins
-- with the size of each url, in two bytes, the greater first. The keys are all asked for: to cut them
-- out of one argument would cost more than it saves.
local function admit(at, links, refusals, patterned, depth, parent, state, total, max, stamps)
  local admitted = 0
  local late = {} -- links that the job has no room for: key, reason, url
  local urls = at + links -- then what comes after them
  local base = urls + 1 + 3 * refusals
  if links > 0 and state ~= 'cancelling' then
    local pattern, budget
    if patterned > 0 then
      pattern = {}
      for i = base, base + 2 * patterned - 2, 2 do pattern[tonumber(ARGV[i])] = ARGV[i + 1] end
      budget = math.min(math.max(math.floor(max / 4), 20), 10000, max) -- as crawl.Plan.PatternBudget
    end
    local seen = redis.call('SMISMEMBER', job .. ':seen', unpack(ARGV, at, at + links - 1))
    local fresh, rows, tail = {}, {}, ' ' .. depth .. ' ' .. parent .. ' 0 0 '
    -- The numbers of new rows follow each other: all but the last digit is written for ten of them.
    local DIGITS, head = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}, nil
    local packed, sizes, ends, nth = ARGV[urls], nil, 2 * links, 0 -- where the url of the nth link ends
    for i = 1, links do
      if seen[i] == 0 then
        sizes = sizes or {string.byte(packed, 1, 2 * links)}
        local size
        while nth < i do
          nth = nth + 1
          size = 256 * sizes[2 * nth - 1] + sizes[2 * nth]
          ends = ends + size
        end
        local key, url, refused = ARGV[at + i - 1], string.sub(packed, ends - size + 1, ends), nil
        if total >= max then
          refused = 'page_limit'
        elseif pattern and pattern[i] and redis.call('HINCRBY', job .. ':patterns', pattern[i], 1) > budget then
          refused = 'trap'
        end
        if refused then
          local k = #late
          late[k + 1], late[k + 2], late[k + 3] = key, refused, url
        else
          total = total + 1
          admitted = admitted + 1
          fresh[admitted] = key
          local digit = total % 10
          if digit == 0 or not head then head = total < 10 and 'p ' or 'p ' .. int((total - digit) / 10) end
          rows[admitted] = head .. DIGITS[digit] .. tail .. url
          if stamps and stamps[i] then redis.call('HSET', job .. ':lastmod', total, stamps[i]) end
        end
      end
    end
    if admitted > 0 then
      redis.call('SADD', job .. ':seen', unpack(fresh))
      redis.call('RPUSH', job .. ':queued', unpack(rows))
    end
  end
  at = urls + 1
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
          redis.call('RPUSH', job .. ':refused', reason .. ' ' .. depth .. ' ' .. parent .. ' ' .. late[3 * i])
        end
      end
    end
  end
  for i = base + 2 * patterned, #ARGV, 2 do redis.call('HINCRBY', job, 'r:' .. ARGV[i], ARGV[i + 1]) end
  return admitted, total
end
