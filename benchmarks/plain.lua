-- A token bucket as tutorials write it, on the same hash. The exact script is compared with it.
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill', 'scale')
local tokens = tonumber(state[1]) or capacity
local last = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + (now - last) * rate)
local allowed = tokens >= cost
if allowed then
  tokens = tokens - cost
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'last_refill', tostring(now), 'scale', '1')
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000))
return {allowed and 1 or 0, math.floor(tokens)}
