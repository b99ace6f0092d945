-- The bucket, atomic: the arithmetic of bucket.py on Redis hashes, and of slots.py on sorted sets.
-- All buckets of a call are looked at and judged, then charged, then written: all or nothing.
-- KEYS[i]    the bucket of charge i
-- ARGV[1]    the mode: 'take', 'peek' (answers the same, writes nothing), 'settle' (does not ask)
-- ARGV[2]    now in microseconds; empty for the server's clock
-- ARGV[3..]  a row of six for each charge: its role ('take', 'shadow' or 'held'), its cost, and
--            the capacity, scale, step and tick (1, 1000 or 1000000 us) of its limit. After the
--            role may stand a kind, and a text to keep for people: 'take rate 5/day'. Each kind has
--            two more arguments, which follow all the rows (of 'rate', they are empty):
--            'up-to'  the most tokens that it takes, and how many its bucket gets back first
--            'slot'   the microseconds that it is held at most, and the member that holds it
--            'ban'    the microseconds that it lasts, and which charges' refusals it counts
--
-- Returns integers: now and, for each charge, the tokens that its bucket needs to afford it (or 0),
-- those taken, and the bucket's tokens and last_refill; of slots, those held and when all are free.
--
-- Lua's numbers are doubles, exact for integers up to 2^53. Times and balances stay within that.
-- Larger products and sums are only compared with exact integers or cut off at them, and rounding
-- moves no number past one. The floor of a quotient is exact: the error is below the distance.

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
  local whole = math.floor(tokens / old)
  local part, quotient, rest = tokens - whole * old, 0, 0
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
  return whole * new + quotient
end

-- Set a charge's bucket as it stands now, in parts of the charge's limit, from a state in parts of
-- `scale`. Return whether the clock was set back.
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
local kinds, more = nil, 6 * #KEYS + 3 -- where the kinds' next arguments are
for i = 1, #KEYS do
  local key, row = KEYS[i], 6 * i - 3
  local role, scale = ARGV[row], tonumber(ARGV[row + 3])
  local charge = {
    role = role, cost = tonumber(ARGV[row + 1]), full = tonumber(ARGV[row + 2]) * scale,
    scale = scale, step = tonumber(ARGV[row + 4]), tick = tonumber(ARGV[row + 5]),
    wanted = 0, needed = 0, returned = 0, taken = 0,
  }
  if #role > 6 then
    role, charge.kind, charge.text = string.match(role, '(%S+) (%S+) ?(.*)')
    charge.role, charge.most, charge.extra = role, tonumber(ARGV[more]), ARGV[more + 1]
    kinds, more = kinds or {}, more + 2
  end
  local asks, seen = mode ~= 'settle' and role ~= 'held', nil
  for earlier = 1, i - 1 do
    if KEYS[earlier] == key then
      seen = charges[earlier]
      seen.bucket = charge
    end
  end
  if charge.kind == 'slot' then -- all charges of a key share its slots
    local member, free_at = charge.extra, math.min(now + charge.most, LARGEST)
    local slots = seen and seen.slots or
      {held = call('ZCOUNT', key, now + 1, '+inf'), wanted = 0, holds = {}}
    charge.slots, charge.free_at = slots, free_at
    local late = slots.held > 0 and call('ZRANGEBYSCORE', key, free_at + 1, '+inf') or {}
    for n = 1, mode == 'peek' and 0 or #late do -- since the clock was set back
      slots.changed = true
      call('ZADD', key, free_at, late[n])
    end
    slots.holds[member] = slots.holds[member] or
      slots.held > 0 and tonumber(call('ZSCORE', key, member) or now) > now
    if asks and not slots.holds[member] then
      charge.needed = (slots.held + slots.wanted) * scale < charge.full and 0 or 1
      slots.wanted = slots.wanted + 1 - charge.needed
      slots.holds[member] = charge.needed == 0 and 'soon'
    end
  else
    local tokens, last_refill, stored
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
    if charge.kind == 'up-to' and charge.extra ~= '0' and not charge.absent then
      charge.tokens = math.min(charge.tokens + charge.extra * scale, charge.full)
      charge.changed = true
    end
    if asks and charge.kind == 'ban' then -- it must hold a token, and takes none as yet
      charge.needed = charge.tokens < scale and 1 or 0
      kinds[role] = kinds[role] or charge.needed > 0 -- whether a ban refuses
    elseif asks then
      local wanted = charge.wanted + charge.cost
      local affordable = charge.cost == 0 or wanted * scale <= charge.tokens
      if affordable or role == 'take' then
        charge.wanted = wanted
      end
      charge.needed = affordable and 0 or wanted
    end
  end
  allowed = allowed and (charge.needed == 0 or role ~= 'take')
  charges[i] = charge
end

-- Take what was asked for; or, if the request is refused, give back what was held.
for i = 1, #KEYS do
  local charge, amount = charges[i], 0
  local bucket, slots, member = charge.bucket or charge, charge.slots, charge.extra
  if charge.role == 'held' then
    amount = allowed and 0 or charge.cost
  elseif allowed and charge.needed == 0 then
    amount = -charge.cost
  end
  if slots and amount ~= 0 and (slots.holds[member] == true) == (amount > 0) then
    slots.holds[member], slots.held, slots.changed = amount < 0, slots.held - amount, true
    charge.taken, slots.last = amount < 0 and 1 or 0, mode == 'peek' and charge.free_at
    if mode ~= 'peek' then -- whoever is free by now is dropped below
      call('ZADD', KEYS[i], amount < 0 and charge.free_at or now, member)
    end
  elseif not slots and (amount < 0 or amount > 0 and not bucket.absent) then
    local tokens = math.min(bucket.tokens + amount * bucket.scale, bucket.full)
    bucket.tokens = math.max(tokens, bucket.full - LARGEST)
    bucket.absent, bucket.changed = false, true
    charge.taken = amount < 0 and -amount or 0
  end
  bucket.returned = bucket.returned + (amount > 0 and amount or 0)
end

-- Last, take up to a maximum of what is left. Let each ban count a refusal of its charges, once;
-- unless a ban refused. One that is left without a token begins.
for i = 1, kinds and mode ~= 'settle' and #KEYS or 0 do
  local charge, refused, extra = charges[i], false, 0
  local bucket, kind = charge.bucket or charge, charge.kind
  if kind == 'up-to' and charge.role ~= 'held' and allowed and charge.needed == 0 then
    extra = math.min(charge.most - charge.cost, math.floor(bucket.tokens / bucket.scale))
  elseif kind == 'ban' and not (kinds.take or kinds[charge.role] or bucket.counted) then
    for place in string.gmatch(charge.extra, '%d+') do
      refused = refused or charges[tonumber(place)].needed > 0
    end
    extra = refused and bucket.tokens >= bucket.scale and 1 or 0
    bucket.counted = extra > 0
  end
  if extra > 0 then
    charge.taken, bucket.tokens = charge.taken + extra, bucket.tokens - extra * bucket.scale
    bucket.absent, bucket.changed = false, true
    if kind == 'ban' and bucket.tokens < bucket.scale then
      local debt = math.floor(charge.most / bucket.tick) * bucket.step
      bucket.tokens = math.max(bucket.scale - debt, bucket.full - LARGEST)
      bucket.last_refill, charge.needed = now, 1
    end
  end
end

-- Answer, and write each bucket that changed, with a TTL until it is full or free, and a margin.
local reply = {now, 0, 0, 0, 0} -- room for one charge, as in most calls
for i = 1, #KEYS do
  local key, charge = KEYS[i], charges[i]
  local bucket, slots = charge.bucket or charge, charge.slots
  if slots then
    local last = slots.last or call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or now
    charge.tokens, charge.last_refill = slots.held, math.max(math.min(last, charge.free_at), now)
    if slots.changed and mode ~= 'peek' then
      call('ZREMRANGEBYSCORE', key, '-inf', now)
      call('PEXPIRE', key, math.min(math.ceil((last - now) / 1000) + TTL_MARGIN, LARGEST))
    end
  elseif charge ~= bucket then -- which may count in another limit's parts
    refresh(charge, bucket.tokens, bucket.last_refill, bucket.scale)
  elseif charge.changed and mode ~= 'peek' then
    local ticks = math.ceil((charge.full - charge.tokens) / charge.step)
    local ms = charge.tick == 1 and math.ceil(ticks / 1000) or ticks * (charge.tick / 1000)
    call('HSET', key,
      'tokens', charge.tokens, 'last_refill', charge.last_refill, 'scale', charge.scale)
    if (charge.text or '') ~= '' then call('HSET', key, 'limit', charge.text) end
    call('PEXPIRE', key, math.min(ms + TTL_MARGIN, LARGEST))
  end
  -- What is given back must be taken again: a wait without it would end in a refusal.
  reply[4 * i - 2] = charge.needed > 0 and charge.needed + bucket.returned or 0
  reply[4 * i - 1], reply[4 * i], reply[4 * i + 1] = charge.taken, charge.tokens, charge.last_refill
end
return reply
