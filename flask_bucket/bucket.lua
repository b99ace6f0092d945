-- The bucket, atomic: the arithmetic of bucket.py on Redis hashes. All buckets of a call are
-- looked at and judged, then charged, then written: all or nothing.
--
-- KEYS[i]    the bucket of charge i
-- ARGV[1]    the mode: 'take'; 'peek', which answers the same and writes nothing; or 'settle',
--            which applies the costs without asking
-- ARGV[2]    now in microseconds; empty for the server's clock
-- ARGV[3..]  a row of six for each charge: its kind ('take', 'shadow' or 'held'), its cost, and
--            the capacity, scale, step and tick (1, 1000 or 1000000 us) of its limit
--
-- Returns a flat list of integers: now and, for each charge, how many tokens its bucket needs to
-- afford it (0 if it does), and the tokens and last_refill of its bucket after the call.
--
-- Lua's numbers are doubles, exact for integers up to 2^53 in size. Times and balances stay
-- within that. Larger products and sums are rounded, but they are only compared with exact
-- integers or cut off at them, and rounding moves no number past an exact integer. The floor of a
-- quotient is exact as well: its rounding error is less than its distance from the next integer.

local LARGEST = 9007199254740991 -- 2^53 - 1; a debt goes no further below full
local STEP_TOLERANCE = 1000000 -- microseconds
local TTL_MARGIN = 60000 -- milliseconds

local KEYS, ARGV, call, tonumber = KEYS, ARGV, redis.call, tonumber -- faster than globals

local mode, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Return floor(tokens * new / old) without forming the product: by long division, one binary
-- digit of `new` at a time. Needed only where a limit's numbers have changed.
local function rescale(tokens, old, new)
  local size = tokens < 0 and -tokens or tokens
  local whole = math.floor(size / old)
  local part, quotient, rest = size - whole * old, 0, 0
  local function add(amount) -- to the rest, which stays below `old`
    if rest >= old - amount then
      quotient, rest = quotient + 1, rest - (old - amount)
    else
      rest = rest + amount
    end
  end
  for power = 52, 0, -1 do
    quotient = quotient * 2
    add(rest)
    if math.floor(new / 2 ^ power) % 2 == 1 then
      add(part)
    end
  end
  local result = whole * new + quotient
  return tokens < 0 and -result - (rest > 0 and 1 or 0) or result
end

-- Set the bucket of a charge as it stands now, in the parts of the charge's limit, from a state
-- in parts of `scale`. Return whether the clock was set back.
local function refresh(charge, tokens, last_refill, scale)
  if scale ~= charge.scale then
    tokens = rescale(tokens, scale, charge.scale)
  end
  tokens = math.max(math.min(tokens, charge.full), charge.full - LARGEST)
  local elapsed = now - last_refill
  local set_back = elapsed < -STEP_TOLERANCE
  if set_back then
    last_refill = now -- start over, or the client is locked out; mint nothing for the step
  elseif elapsed >= 0 then -- a late timestamp refills nothing: it would mint that time twice
    local ticks = math.floor(elapsed / charge.tick)
    if ticks * charge.step >= charge.full - tokens then
      tokens, last_refill = charge.full, now
    else -- only whole ticks are used up: the rest of this one counts towards the next
      tokens, last_refill = tokens + ticks * charge.step, last_refill + ticks * charge.tick
    end
  end
  charge.tokens, charge.last_refill = tokens, last_refill
  return set_back
end

-- Look at each bucket, and judge whether it affords its charge. If several charges have one key,
-- the last of them holds the bucket, and is the `bucket` of the others.
local charges, allowed = {}, true
for i = 1, #KEYS do
  local key, row = KEYS[i], 6 * i - 3
  local scale = tonumber(ARGV[row + 3])
  local charge = {
    kind = ARGV[row], cost = tonumber(ARGV[row + 1]), full = tonumber(ARGV[row + 2]) * scale,
    scale = scale, step = tonumber(ARGV[row + 4]), tick = tonumber(ARGV[row + 5]),
    wanted = 0, needed = 0, returned = 0,
  }
  local seen, tokens, last_refill, stored
  for earlier = 1, i - 1 do
    if KEYS[earlier] == key then
      seen = charges[earlier]
      seen.bucket = charge
    end
  end
  if seen then
    tokens, last_refill, stored = seen.tokens, seen.last_refill, seen.scale
    charge.absent, charge.changed, charge.wanted = seen.absent, seen.changed, seen.wanted
  else
    local hash = call('HMGET', key, 'tokens', 'last_refill', 'scale')
    tokens, last_refill, stored = tonumber(hash[1]), tonumber(hash[2]), tonumber(hash[3])
    charge.absent = not hash[1]
  end
  if charge.absent then -- it is full for whoever looks
    charge.tokens, charge.last_refill = charge.full, now
  elseif refresh(charge, tokens, last_refill, stored) then
    charge.changed = true
  end
  if mode ~= 'settle' and charge.kind ~= 'held' then
    local wanted = charge.wanted + charge.cost
    local affordable = charge.cost == 0 or wanted * scale <= charge.tokens
    if affordable or charge.kind == 'take' then
      charge.wanted = wanted
    end
    if not affordable then
      charge.needed, allowed = wanted, allowed and charge.kind ~= 'take'
    end
  end
  charges[i] = charge
end

-- Take what was asked for; or, if the request is refused, give back what was held.
for i = 1, #KEYS do
  local charge, amount = charges[i], 0
  local bucket = charge.bucket or charge
  if charge.kind == 'held' then
    amount = allowed and 0 or charge.cost
    bucket.returned = bucket.returned + amount
  elseif allowed and charge.needed == 0 then
    amount = -charge.cost
  end
  if amount < 0 or (amount > 0 and not bucket.absent) then
    local tokens = math.min(bucket.tokens + amount * bucket.scale, bucket.full)
    bucket.tokens = math.max(tokens, bucket.full - LARGEST)
    bucket.absent, bucket.changed = false, true
  end
end

-- Answer, and write each bucket that changed. Its TTL is the time to full and a margin.
local reply = {now, 0, 0, 0} -- room for one charge, as in most calls
for i = 1, #KEYS do
  local key, charge = KEYS[i], charges[i]
  local bucket = charge.bucket or charge
  if charge ~= bucket then -- which may count in another limit's parts
    refresh(charge, bucket.tokens, bucket.last_refill, bucket.scale)
  elseif charge.changed and mode ~= 'peek' then
    local ticks = math.ceil((charge.full - charge.tokens) / charge.step)
    local ms = charge.tick == 1 and math.ceil(ticks / 1000) or ticks * (charge.tick / 1000)
    call('HSET', key,
      'tokens', charge.tokens, 'last_refill', charge.last_refill, 'scale', charge.scale)
    call('PEXPIRE', key, math.min(ms + TTL_MARGIN, LARGEST))
  end
  -- What is given back must be taken again: a wait without it would end in a refusal.
  reply[3 * i - 1] = charge.needed > 0 and charge.needed + bucket.returned or 0
  reply[3 * i], reply[3 * i + 1] = charge.tokens, charge.last_refill
end
return reply
