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
-- As arguments of a command such numbers are written in full ('%.17g'); tostring would round.

local LARGEST = 9007199254740991
local STEP_TOLERANCE = 1000000
local TTL_MARGIN = 60000

local floor, ceil, call = math.floor, math.ceil, redis.call

local mode, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

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

-- Bring a stored bucket up to now, in the parts of the limit that is looking at it. Returns its
-- balance and last refill, and whether the clock was found set back.
local function refresh(balance, last, stored, full, scale, step, tick)
  if stored ~= scale then
    balance = rescale(balance, stored, scale)
  end
  if balance > full then
    balance = full
  elseif balance < full - LARGEST then
    balance = full - LARGEST -- a debt is kept within what can be counted exactly
  end
  local elapsed = now - last
  if elapsed >= 0 then
    local ticks = floor(elapsed / tick)
    if ticks >= ceil((full - balance) / step) then
      return full, now, false
    end
    return balance + ticks * step, last + ticks * tick, false
  end
  if elapsed < -STEP_TOLERANCE then
    return balance, now, true -- a failover or a reset clock: start over from here, mint nothing
  end
  return balance, last, false -- a late timestamp: refilling from it would mint the time twice
end

-- Write a bucket with its TTL: the time to full and a margin.
local function store(key, balance, last, stored, full, scale, step, tick)
  if stored == scale then
    call('HSET', key, 'tokens', balance, 'last_refill', last)
  else
    call('HSET', key, 'tokens', balance, 'last_refill', last, 'scale', scale)
  end
  local ticks = ceil((full - balance) / step)
  -- A tick is 1 us, 1 ms or 1 s. In this order no product is rounded that is not cut off anyway.
  local ms = tick < 1000 and ceil(ticks * tick / 1000) or ticks * (tick / 1000)
  call('PEXPIRE', key, math.min(ms + TTL_MARGIN, LARGEST))
end

-- The usual call, one limit, without the tables that many need: twice as fast.
if #KEYS == 1 and mode ~= 'settle' and ARGV[3] == 'take' then
  local key, cost, capacity = KEYS[1], tonumber(ARGV[4]), tonumber(ARGV[5])
  local scale, step, tick = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  local full = capacity * scale
  local hash = call('HMGET', key, 'tokens', 'last_refill', 'scale')
  local balance, last, stored, changed = full, now, tonumber(hash[3]), false
  if hash[1] then
    balance, last, changed =
      refresh(tonumber(hash[1]), tonumber(hash[2]), stored, full, scale, step, tick)
  end
  local affordable = cost == 0 or (cost <= capacity and cost * scale <= balance)
  if affordable and cost > 0 then
    balance, changed = balance - cost * scale, true
  end
  if changed and mode == 'take' then
    store(key, balance, last, stored, full, scale, step, tick)
  end
  affordable = affordable and 1 or 0
  return {affordable, now, affordable, balance, last, cost}
end

local reply, buckets, by_key = {1, now}, {}, {}

-- Charge i's capacity, and what its limit counts in.
local function numbers(i)
  local capacity, scale = tonumber(ARGV[6 * i - 1]), tonumber(ARGV[6 * i])
  return capacity, capacity * scale, scale, tonumber(ARGV[6 * i + 1]), tonumber(ARGV[6 * i + 2])
end

-- Read each bucket, and judge what is asked of it.
for i = 1, #KEYS do
  local key, kind, cost = KEYS[i], ARGV[6 * i - 3], tonumber(ARGV[6 * i - 2])
  local capacity, full, scale, step, tick = numbers(i)
  local bucket = by_key[key]
  if not bucket then
    local hash = call('HMGET', key, 'tokens', 'last_refill', 'scale')
    bucket = {
      absent = not hash[1], balance = tonumber(hash[1]), last = tonumber(hash[2]),
      stored = tonumber(hash[3]), scale = tonumber(hash[3]), wanted = 0, again = 0, changed = false,
    }
    by_key[key] = bucket
  end
  buckets[i] = bucket
  if bucket.absent then
    bucket.balance, bucket.last = full, now -- full for whoever looks
  else
    local rebased
    bucket.balance, bucket.last, rebased =
      refresh(bucket.balance, bucket.last, bucket.scale, full, scale, step, tick)
    bucket.changed = bucket.changed or rebased
  end
  bucket.full, bucket.scale, bucket.step, bucket.tick, bucket.seen = full, scale, step, tick, i
  if kind ~= 'held' and mode ~= 'settle' then
    local asked = bucket.wanted + cost
    local affordable = cost == 0 or (asked <= capacity and asked * scale <= bucket.balance)
    if affordable or kind == 'take' then
      bucket.wanted = asked
    end
    if not affordable and kind == 'take' then
      reply[1] = 0
    end
    reply[4 * i - 1], reply[4 * i], reply[4 * i + 1], reply[4 * i + 2] =
      affordable and 1 or 0, 0, 0, asked
  end
end

-- Take what was asked for; or, if that was refused, give back what was held.
for i, bucket in ipairs(buckets) do
  local kind, cost = ARGV[6 * i - 3], tonumber(ARGV[6 * i - 2])
  local amount = 0
  if mode == 'settle' or (kind ~= 'held' and reply[1] == 1 and reply[4 * i - 1] == 1) then
    amount = -cost
  elseif kind == 'held' and reply[1] == 0 then
    amount, bucket.again = cost, bucket.again + cost
  end
  if amount < 0 or (amount > 0 and not bucket.absent) then
    local lowest = bucket.full - LARGEST
    if amount > floor((bucket.full - bucket.balance) / bucket.scale) then
      bucket.balance = bucket.full
    elseif -amount > floor((bucket.balance - lowest) / bucket.scale) then
      bucket.balance = lowest
    else
      bucket.balance = bucket.balance + amount * bucket.scale
    end
    bucket.absent, bucket.changed = false, true
  end
end

for i, bucket in ipairs(buckets) do
  if reply[4 * i - 1] then
    local balance, last = bucket.balance, bucket.last
    if bucket.seen ~= i then -- by another limit, perhaps: answer in the parts of this one
      local _, full, scale, step, tick = numbers(i)
      balance, last = refresh(balance, last, bucket.scale, full, scale, step, tick)
    end
    -- What is given back must be taken again: a wait without it would end in a refusal.
    reply[4 * i], reply[4 * i + 1], reply[4 * i + 2] = balance, last, reply[4 * i + 2] + bucket.again
  end
  if bucket.changed and mode ~= 'peek' then
    bucket.changed = false
    store(KEYS[i], bucket.balance, bucket.last, bucket.stored,
      bucket.full, bucket.scale, bucket.step, bucket.tick)
  end
end
return reply
