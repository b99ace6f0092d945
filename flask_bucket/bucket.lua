-- The bucket, atomic: the arithmetic of bucket.py on Redis hashes. All buckets of a call are
-- read, then judged, then written: all or nothing.
--
-- KEYS[i]   the bucket of charge i
-- ARGV[1]   'take', 'peek' (the same, writing nothing) or 'settle' (unconditional)
-- ARGV[2..] five for each charge: cost, capacity, scale, step, tick. Behind the charges come the
--           shadow ones, with an 's' before the cost, and behind these the held, with an 'h'
-- then      now in microseconds, or nothing more: the server's clock counts
--
-- Returns a flat list of integers: now and, for each charge but the held ones, what was wanted of
-- its bucket (0 if that was affordable), tokens, last_refill.
--
-- Lua's numbers are doubles. Every value here is an integer below 2^53 in size; a product is
-- formed only where it is known to stay there; and floor(a / b) of two such integers is exact,
-- because the quotient's rounding error is smaller than its distance from the next integer.
-- As arguments of a command such numbers are written in full ('%.17g'); tostring would round.

local LARGEST = 9007199254740991
local STEP_TOLERANCE = 1000000
local TTL_MARGIN = 60000

local floor, ceil, min, call = math.floor, math.ceil, math.min, redis.call

local mode, now = ARGV[1], tonumber(ARGV[5 * #KEYS + 2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The usual call, in straight lines: limits that are the same as before, on keys that differ, and
-- a clock that went on. What the functions further down do for all others; to make these, and a
-- table for each bucket, would take half as long again. Nothing is written before all is known.
local count, reply, allowed, usual, absent = #KEYS, {now, 0, 0, 0}, true, mode ~= 'settle', nil
for i = 1, count do
  local key, at, cost = KEYS[i], 5 * i - 3, tonumber(ARGV[5 * i - 3])
  for earlier = 1, i - 1 do
    usual = usual and KEYS[earlier] ~= key
  end
  if not usual or not cost then
    usual = false
    break
  end
  local capacity, scale = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local step, tick, full = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), capacity * scale
  local hash = call('HMGET', key, 'tokens', 'last_refill', 'scale')
  local balance, last = full, now -- an absent bucket is full for whoever looks
  if hash[1] then
    balance, last = tonumber(hash[1]), tonumber(hash[2])
    usual = hash[3] == ARGV[at + 2] and now >= last and balance >= 0
    if not usual then
      break
    end
  else
    absent = absent or {}
    absent[i] = true
  end
  local ticks = floor((now - last) / tick)
  if ticks >= ceil((full - balance) / step) then
    balance, last = full, now
  else
    balance, last = balance + ticks * step, last + ticks * tick
  end
  local affordable = cost == 0 or (cost <= capacity and cost * scale <= balance)
  allowed = allowed and affordable
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = affordable and 0 or cost, balance, last
end

if usual then
  for i = 1, allowed and count or 0 do
    local at, cost = 5 * i - 3, tonumber(ARGV[5 * i - 3])
    if cost > 0 then
      local key, last, scale = KEYS[i], reply[3 * i + 1], tonumber(ARGV[at + 2])
      local balance = reply[3 * i] - cost * scale
      reply[3 * i] = balance
      if mode == 'take' then
        if absent and absent[i] then
          call('HSET', key, 'tokens', balance, 'last_refill', last, 'scale', scale)
        else
          call('HSET', key, 'tokens', balance, 'last_refill', last)
        end
        local step, tick = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
        local ticks = ceil((tonumber(ARGV[at + 1]) * scale - balance) / step)
        local wait = tick < 1000 and ceil(ticks * tick / 1000) or ticks * (tick / 1000)
        call('PEXPIRE', key, min(wait + TTL_MARGIN, LARGEST))
      end
    end
  end
  return reply
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
  call('PEXPIRE', key, min(ms + TTL_MARGIN, LARGEST))
end

local buckets, by_key, kinds, costs = {}, {}, {}, {}
reply, allowed = {now}, true

-- Charge i's capacity, and what its limit counts in.
local function numbers(i)
  local at = 5 * i - 2
  local capacity, scale = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  return capacity, capacity * scale, scale, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
end

-- Read each bucket, and judge what is asked of it.
for i = 1, #KEYS do
  local key, kind, cost = KEYS[i], 'take', tonumber(ARGV[5 * i - 3])
  if not cost then
    local text = ARGV[5 * i - 3]
    kind, cost = text:sub(1, 1) == 's' and 'shadow' or 'held', tonumber(text:sub(2))
  end
  kinds[i], costs[i] = kind, cost
  local capacity, full, scale, step, tick = numbers(i)
  local bucket = by_key[key]
  if not bucket then
    local hash = call('HMGET', key, 'tokens', 'last_refill', 'scale')
    local stored = tonumber(hash[3])
    bucket = {
      absent = not hash[1], balance = tonumber(hash[1]), last = tonumber(hash[2]),
      stored = stored, scale = stored, wanted = 0, again = 0, changed = false,
      full = 0, step = 0, tick = 0, seen = 0,
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
      allowed = false
    end
    reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = affordable and 0 or asked, 0, 0
  end
end

-- Take what was asked for; or, if that was refused, give back what was held.
for i, bucket in ipairs(buckets) do
  local kind, cost, amount = kinds[i], costs[i], 0
  if mode == 'settle' or (kind ~= 'held' and allowed and reply[3 * i - 1] == 0) then
    amount = -cost
  elseif kind == 'held' and not allowed then
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
  local wanted = reply[3 * i - 1]
  if wanted then
    local balance, last = bucket.balance, bucket.last
    if bucket.seen ~= i then -- by another limit, perhaps: answer in the parts of this one
      local _, full, scale, step, tick = numbers(i)
      balance, last = refresh(balance, last, bucket.scale, full, scale, step, tick)
    end
    if wanted > 0 then
      -- What is given back must be taken again: a wait without it would end in a refusal.
      reply[3 * i - 1] = wanted + bucket.again
    end
    reply[3 * i], reply[3 * i + 1] = balance, last
  end
  if bucket.changed and mode ~= 'peek' then
    bucket.changed = false
    store(KEYS[i], bucket.balance, bucket.last, bucket.stored,
      bucket.full, bucket.scale, bucket.step, bucket.tick)
  end
end
return reply
