-- content.lua keeps what a job wants of its pages, and puts records where they are read.
-- job:rec:K and job:body:K HASHes have a thousand records each, and their content. The job's
-- hash has "kept_bytes", what the content of all its records takes, and "max_kept", what it
-- may take, if there is a bound.

local UPSERT_ARGS = 5 -- of each, see collection.lua

-- changed_to ends a record, which ends with a brace, with what it did to the collection.
local function changed_to(record, change)
  if not change then return record end
  return string.sub(record, 1, -2) .. ',"change":"' .. change .. '"}'
end

-- put writes records, the first of which has the number seq, which is number as text: at most as many
-- as one page gives.
local function put(seq, number, records)
  local n, i = #records, 1
  if n == 1 then
    redis.call('HSET', job .. ':rec:' .. int(math.floor((seq - 1) / 1000)), number, records[1])
    return
  end
  while i <= n do
    local k, fields = math.floor((seq + i - 2) / 1000), {}
    local till = math.min(n, 1000 * (k + 1) - seq + 1)
    for at = i, till do
      fields[#fields + 1] = int(seq + at - 1)
      fields[#fields + 1] = records[at]
    end
    redis.call('HSET', job .. ':rec:' .. k, unpack(fields))
    i = till + 1
  end
end

-- keep keeps the content of the record, unless the job keeps all that it may. It answers the
-- record, which says how many bytes of content it has, as stored and unpacked, or why it has
-- none, and whether there was room. The size unpacked stands behind the first byte.
local function keep(seq, record, content)
  if content == '' then return record, true end
  local h = redis.call('HMGET', job, 'kept_bytes', 'max_kept')
  if h[2] and (h[1] or 0) + #content > tonumber(h[2]) then
    return string.sub(record, 1, -2) .. ',"left_out":"byte_limit"}', false
  end
  redis.call('HSET', job .. ':body:' .. math.floor((seq - 1) / 1000), int(seq), content)
  redis.call('HINCRBY', job, 'kept_bytes', #content)
  local a, b, c, d = string.byte(content, 2, 5)
  return string.sub(record, 1, -2) .. ',"stored":' .. #content .. ',"size":' ..
    int(((a * 256 + b) * 256 + c) * 256 + d) .. '}', true
end
