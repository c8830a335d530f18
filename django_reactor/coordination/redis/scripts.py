"""What Redis carries out at once, in Lua. The server's clock, in milliseconds, decides.

A key of locks or semaphores is a hash: slot → "owner epoch expiry text". A slot that was given up is deleted; one that
has expired stays for a day, so that an earlier claim of its owner (a zombie) is known as such. The rules are those of
`coordination.slots`.

An owner's set names the hashes in which it may have a slot. It may name too many, never too few. Nobody gets a slot
that looks free until its ttl has passed since the server began (`BOOT`), or was emptied: it may be another's.
"""

from __future__ import annotations

__all__ = ["BOOT", "CHARGE", "COUNTED", "EXTEND", "HOLDERS", "RELEASE", "TAKE"]

NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
DAY = "86400000"

INDEX = f"""
local function index(ttl)
  redis.call('SADD', KEYS[3], KEYS[1])
  if redis.call('PTTL', KEYS[3]) < ttl + {DAY} then redis.call('PEXPIRE', KEYS[3], ttl + 2 * {DAY}) end
end
"""

BOOT = f"""{NOW}
-- KEYS: run, since. ARGV: run id, its age in milliseconds.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('SET', KEYS[2], string.format('%d', now - ARGV[2]))
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
"""
"""This run of the server is noted, with its beginning: what was held before may have been forgotten."""

TAKE = f"""{NOW}{INDEX}
-- KEYS: hash, since, owner's set. ARGV: owner, epoch, ttl, limit, text. Returns the slot, or -1.
local owner, epoch, ttl, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local slots = redis.call('HGETALL', KEYS[1])
local held, kept_back, own, lapsed, latest = {{}}, 0, nil, nil, now + ttl
for i = 1, #slots, 2 do
  local number = tonumber(slots[i])
  local whose, since, expiry = string.match(slots[i + 1], '^(%x+) (%d+) (%d+) ')
  expiry = tonumber(expiry)
  local is_held = expiry > now
  if whose == owner then
    if tonumber(since) > epoch then return -1 end
    if is_held then own = number else lapsed = number end
  end
  if is_held then
    held[number] = true
    if number >= limit then kept_back = kept_back + 1 end
    if expiry > latest then latest = expiry end
  end
end
if not own then
  local began = redis.call('GET', KEYS[2])
  if not began then
    began = string.format('%d', now)
    redis.call('SET', KEYS[2], began)
  end
  if now < began + ttl then return -1 end
  local free = 0
  for number = limit - 1, 0, -1 do
    if not held[number] then
      free = free + 1
      own = number
    end
  end
  if free <= kept_back then return -1 end
end
if lapsed and lapsed ~= own then redis.call('HDEL', KEYS[1], lapsed) end
redis.call('HSET', KEYS[1], own, string.format('%s %d %d %s', owner, epoch, now + ttl, ARGV[5]))
redis.call('PEXPIREAT', KEYS[1], string.format('%d', latest + {DAY}))
index(ttl)
return own
"""

OURS = """
local stored = redis.call('HGET', KEYS[1], ARGV[3])
if not stored then return 0 end
local whose, since, expiry, text = string.match(stored, '^(%x+) (%d+) (%d+) (.*)$')
if whose ~= ARGV[1] or since ~= ARGV[2] then return 0 end
"""

EXTEND = f"""{NOW}{INDEX}
-- KEYS: hash, since, owner's set. ARGV: owner, epoch, slot, ttl.
{OURS}
if tonumber(expiry) <= now then return 0 end
local ttl = tonumber(ARGV[4])
redis.call('HSET', KEYS[1], ARGV[3], string.format('%s %s %d %s', whose, since, now + ttl, text))
if redis.call('PTTL', KEYS[1]) < ttl + {DAY} then redis.call('PEXPIRE', KEYS[1], ttl + {DAY}) end
index(ttl)
return 1
"""

RELEASE = f"""
-- KEYS: hash, since, owner's set. ARGV: owner, epoch, slot.
{OURS}
redis.call('HDEL', KEYS[1], ARGV[3])
redis.call('SREM', KEYS[3], KEYS[1])
return 1
"""

HOLDERS = f"""{NOW}
-- KEYS: hash. Returns slot, owner, epoch, expiry and text of each that is held.
local slots, found = redis.call('HGETALL', KEYS[1]), {{}}
for i = 1, #slots, 2 do
  local whose, since, expiry, text = string.match(slots[i + 1], '^(%x+) (%d+) (%d+) (.*)$')
  if tonumber(expiry) > now then
    table.insert(found, {{slots[i], whose, since, expiry, text}})
  end
end
return found
"""

CHARGE = """
-- KEYS: hash of seconds → "bucket count". ARGV: seconds and limit of each window, the shortest first.
-- Returns nothing, or which window is full (from 0) and the microseconds until it rolls.
local time = redis.call('TIME')
local seconds_now, longest, counts = tonumber(time[1]), 0, {}
for i = 1, #ARGV, 2 do
  local seconds, limit = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local bucket, count = math.floor(seconds_now / seconds), 0
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if stored then
    local counted, so_far = string.match(stored, '^(%d+) (%d+)$')
    if tonumber(counted) == bucket then count = tonumber(so_far) end
  end
  if count >= limit then
    return {(i - 1) / 2, ((bucket + 1) * seconds - seconds_now) * 1000000 - tonumber(time[2])}
  end
  counts[ARGV[i]] = string.format('%d %d', bucket, count + 1)
  if seconds > longest then longest = seconds end
end
for seconds, count in pairs(counts) do redis.call('HSET', KEYS[1], seconds, count) end
if redis.call('PTTL', KEYS[1]) < longest * 1000 then redis.call('PEXPIRE', KEYS[1], longest * 1000) end
return nil
"""

COUNTED = """
-- KEYS: hash of seconds → "bucket count". Returns seconds, count and end (in seconds) of each window that is open now.
local now, counts, found = tonumber(redis.call('TIME')[1]), redis.call('HGETALL', KEYS[1]), {}
for i = 1, #counts, 2 do
  local seconds = tonumber(counts[i])
  local bucket, count = string.match(counts[i + 1], '^(%d+) (%d+)$')
  if tonumber(bucket) == math.floor(now / seconds) then
    table.insert(found, {seconds, tonumber(count), (tonumber(bucket) + 1) * seconds})
  end
end
return found
"""
