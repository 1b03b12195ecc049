-- Beginning of every script.

local RUNS, DEAD, COUNTS = 'tocsin:runs', 'tocsin:dead', 'tocsin:counts'
local RECEIVERS, ACKNOWLEDGED = 'tocsin:receivers', 'tocsin:acknowledged'
local DEAD_KEPT = 10000
local NUDGES_KEPT = 100000
local TIMES_KEPT = 64 -- latest steps and times of a run
local MARK_EVERY = 64 -- vectors

local function of(run, what)
  return 'tocsin:{' .. run .. '}:' .. what
end

-- The incidents that wait for a receiver, by when they are due; those of them that are put off; a row of the outbox.
local function due(receiver)
  return 'tocsin:due:' .. receiver
end

local function postponed(receiver)
  return 'tocsin:postponed:' .. receiver
end

local function row(receiver, incident)
  return 'tocsin:outbox:' .. receiver .. ':' .. incident
end

-- Whether stream id a is before b. Numbers of the store's own ids are small enough for Lua to be exact.
local function before(a, b)
  local a_time, a_sequence = string.match(a, '^(%d+)-(%d+)$')
  local b_time, b_sequence = string.match(b, '^(%d+)-(%d+)$')
  a_time, b_time = tonumber(a_time), tonumber(b_time)
  return a_time < b_time or (a_time == b_time and tonumber(a_sequence) < tonumber(b_sequence))
end

-- Whether the log has entries behind an id.
local function goes_on(run, id)
  return #redis.call('XRANGE', of(run, 'log'), '(' .. id, '+', 'COUNT', 1) > 0
end

-- Whether the run is there, or could be made. Unseen runs stand behind all others, the latest first.
local function open(run, created, most)
  if redis.call('EXISTS', of(run, 'run')) == 1 then
    return true
  end
  if redis.call('ZCARD', RUNS) >= tonumber(most) then
    return false
  end
  redis.call('HSET', of(run, 'run'), 'created', created)
  redis.call('ZADD', RUNS, string.format('%.3f', tonumber(created) - 1e11), run)
  return true
end

-- The configuration given at id is newer than the engine's view of it.
local function config_changed(run, id)
  redis.call('HSET', of(run, 'run'), 'given_at', id)
  redis.call('HDEL', of(run, 'run'), 'view')
end

-- Merges a configuration, given as a number of fields and then field and value of each; whether that changes anything.
local function merge_config(run, next_argument)
  local changed = false
  for _ = 1, tonumber(next_argument()) do
    local field, value = next_argument(), next_argument()
    if redis.call('HGET', of(run, 'config'), field) ~= value then
      redis.call('HSET', of(run, 'config'), field, value)
      changed = true
    end
  end
  return changed
end

-- Takes note of a vector that is new in the log. in_order: every vector before it has been counted already.
local function count_vector(run, id, step, time, seen, in_order)
  local main = of(run, 'run')
  local old = redis.call('HMGET', main, 'step_at', 'last_seen', 'furthest')
  if not old[1] or before(old[1], id) then
    redis.call('HSET', main, 'step', step, 'step_at', id)
  end
  if not old[2] or tonumber(old[2]) < tonumber(seen) then
    redis.call('HSET', main, 'last_seen', seen)
    redis.call('ZADD', RUNS, seen, run)
  end
  local furthest = old[3]
  if not furthest or tonumber(furthest) < tonumber(step) then
    furthest = step
    redis.call('HSET', main, 'furthest', step)
  end
  -- A mark says: no step up to this entry is beyond the mark's. From there on seek has to look.
  if redis.call('HINCRBY', main, 'vectors', 1) % MARK_EVERY == 0 and in_order then
    redis.call('ZADD', of(run, 'marks'), furthest, id)
  end
  if time ~= '' then
    redis.call('LPUSH', of(run, 'times'), step .. ' ' .. time)
    redis.call('LTRIM', of(run, 'times'), 0, TIMES_KEPT - 1)
  end
  if redis.call('HGET', of(run, 'config'), 'finished') == 'true' then
    -- A vector takes it back, here as in the fold.
    redis.call('HDEL', of(run, 'config'), 'finished')
    config_changed(run, id)
  end
end

-- A piece of news for a receiver. A row that waits keeps its time, as a sender has it or it is backing off; but not if
-- it is only put off.
local function notify(run, receiver, incident, time)
  local key = row(receiver, incident)
  local counts = redis.call('HMGET', key, 'news', 'settled')
  local waits = tonumber(counts[1] or 0) > tonumber(counts[2] or 0)
  if redis.call('ZREM', postponed(receiver), incident) == 1 or not waits then
    redis.call('ZADD', due(receiver), time, incident)
  end
  redis.call('HSETNX', key, 'run', run)
  redis.call('HINCRBY', key, 'news', 1)
  redis.call('SADD', RECEIVERS, receiver)
  redis.call('SADD', of(run, 'outbox'), receiver .. ':' .. incident)
end
