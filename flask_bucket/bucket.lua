-- The bucket, atomic: the arithmetic of bucket.py on Redis hashes. All buckets of a call are
-- read, then judged, then written: all or nothing.
--
-- KEYS[i]   the bucket of charge i
-- ARGV[1]   'take', 'peek' (the same, writing nothing) or 'settle' (unconditional)
-- ARGV[2]   now in microseconds; '' reads the server's clock
-- ARGV[3..] six for each charge: kind ('take', 'shadow' or 'held'), cost, capacity, scale,
--           step, tick; shadow behind take, held behind both
--
-- Returns {allowed, now} and, for each charge but the held ones, {affordable, tokens,
-- last_refill, wanted} in one flat list of integers.
--
-- Lua's numbers are doubles. Every value here is an integer below 2^53 in size; a product is
-- formed only where it is known to stay there; and floor(a / b) of two such integers is exact,
-- because the quotient's rounding error is smaller than its distance from the next integer.

local LARGEST = 9007199254740991
local STEP_TOLERANCE = 1000000
local TTL_MARGIN = 60000

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local format, call = string.format, redis.call

local mode, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- By key: the buckets as this call sees them.
local tokens, last_refill, scales = {}, {}, {}
local absent, written, wanted, again = {}, {}, {}, {}

-- floor(balance * to / from), saturating, without ever forming the product.
local function rescale(balance, from, to)
  local size = balance < 0 and -balance or balance
  local whole = floor(size / from)
  if whole > floor(LARGEST / to) then
    return balance < 0 and -LARGEST or LARGEST
  end
  -- part * to / from by long division, a binary digit at a time; rest stays below from.
  local part = size - whole * from
  local quotient, rest, digits, digit = 0, 0, to, 4503599627370496
  while digit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if rest >= from then
      quotient, rest = quotient + 1, rest - from
    end
    if digits >= digit then
      digits = digits - digit
      if rest >= from - part then
        quotient, rest = quotient + 1, rest - (from - part)
      else
        rest = rest + part
      end
    end
    digit = digit / 2
  end
  local result = whole * to + quotient
  if balance < 0 then
    return rest > 0 and -result - 1 or -result
  end
  return result
end

-- A balance is never above full, and a debt never beyond what can be counted exactly.
local function bounded(balance, full)
  return max(min(balance, full), full - LARGEST)
end

-- The numbers of charge i.
local function charge(i)
  local at = 6 * i - 3
  local scale = tonumber(ARGV[at + 3])
  return KEYS[i], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), scale,
    tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
end

-- Bring a bucket up to now, in the parts of the limit that is looking at it.
local function refresh(key, full, scale, step, tick)
  local balance, last, stored = tokens[key], last_refill[key], scales[key]
  if not balance then
    local hash = call('HMGET', key, 'tokens', 'last_refill', 'scale')
    absent[key] = not hash[1]
    balance, last, stored = tonumber(hash[1] or full), tonumber(hash[2]), tonumber(hash[3])
  end
  if absent[key] then
    tokens[key], last_refill[key], scales[key] = full, now, scale
    return
  end
  if stored ~= scale then
    balance = rescale(balance, stored, scale)
  end
  balance = bounded(balance, full)
  local elapsed = now - last
  if elapsed < -STEP_TOLERANCE then
    -- A failover or a reset clock: start over from here, mint nothing, and keep that.
    last, written[key] = now, true
  elseif elapsed >= 0 then
    local ticks = floor(elapsed / tick)
    if ticks >= ceil((full - balance) / step) then
      balance, last = full, now
    else
      balance, last = balance + ticks * step, last + ticks * tick
    end
  end
  tokens[key], last_refill[key], scales[key] = balance, last, scale
end

-- Add whole tokens to charge i's bucket (take them, when negative), within its bounds.
local function add(i, amount)
  local key, _, capacity, scale, step, tick = charge(i)
  local full = capacity * scale
  refresh(key, full, scale, step, tick)
  if amount == 0 or (amount > 0 and absent[key]) then
    return
  end
  local balance, lowest = tokens[key], full - LARGEST
  if amount > floor((full - balance) / scale) then
    balance = full
  elseif -amount > floor((balance - lowest) / scale) then
    balance = lowest
  else
    balance = balance + amount * scale
  end
  tokens[key], written[key], absent[key] = balance, true, false
end

-- The milliseconds until a bucket is surely full, and a margin.
local function ttl(missing, step, tick)
  local ticks = ceil(missing / step)
  -- A tick is 1 us, 1 ms or 1 s. In this order no product is rounded that is not capped anyway.
  local ms = tick < 1000 and ceil(ticks * tick / 1000) or ticks * (tick / 1000)
  return min(ms + TTL_MARGIN, LARGEST)
end

-- Write what was touched, each with its TTL.
local function store()
  for i = #KEYS, 1, -1 do
    local key, _, capacity, scale, step, tick = charge(i)
    if written[key] and scales[key] == scale then
      written[key] = nil
      call('HSET', key, 'tokens', format('%.0f', tokens[key]),
        'last_refill', format('%.0f', last_refill[key]), 'scale', format('%.0f', scale))
      call('PEXPIRE', key, format('%.0f', ttl(capacity * scale - tokens[key], step, tick)))
    end
  end
end

if mode == 'settle' then
  for i = 1, #KEYS do
    local _, cost = charge(i)
    add(i, -cost)
  end
  store()
  return {1, now}
end

local reply, judged = {1, now}, 0
for i = 1, #KEYS do
  local kind = ARGV[6 * i - 3]
  if kind == 'held' then
    break
  end
  judged = i
  local key, cost, capacity, scale, step, tick = charge(i)
  refresh(key, capacity * scale, scale, step, tick)
  local asked = (wanted[key] or 0) + cost
  local affordable = cost == 0 or (asked <= capacity and asked * scale <= tokens[key])
  if affordable or kind == 'take' then
    wanted[key] = asked
  end
  if not affordable and kind == 'take' then
    reply[1] = 0
  end
  reply[4 * i - 1], reply[4 * i], reply[4 * i + 1], reply[4 * i + 2] =
    affordable and 1 or 0, 0, 0, asked
end

if reply[1] == 1 then
  for i = 1, judged do
    if reply[4 * i - 1] == 1 then
      local _, cost = charge(i)
      add(i, -cost)
    end
  end
else
  for i = judged + 1, #KEYS do
    local key, cost = charge(i)
    add(i, cost)
    again[key] = (again[key] or 0) + cost
  end
end

for i = 1, judged do
  local key, _, capacity, scale, step, tick = charge(i)
  refresh(key, capacity * scale, scale, step, tick)
  reply[4 * i], reply[4 * i + 1] = tokens[key], last_refill[key]
  reply[4 * i + 2] = reply[4 * i + 2] + (again[key] or 0)
end
if mode == 'take' then
  store()
end
return reply
