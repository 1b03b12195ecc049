-- run, expected, position, version, attempt, error, view, snapshot (each of the last four may be ''), time, then
--   number of subjects to forget: kind, id of each
--   number of events: id ('' for a change without an event), kind of subject, its id, state, severity, payload, id of the
--     log entry that caused it
--   number of notifications: receiver, incident, event
-- 1, or 0 if the run is not at `expected` any more: then nothing has happened.

local run, expected, position, version = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local attempt, problem, view, snapshot, time = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local main, log = of(run, 'run'), of(run, 'log')
local at = 10

local function next_argument()
  at = at + 1
  return ARGV[at - 1]
end

-- An index has one sorted set for every state and severity, of the run and of all runs, in the order of the first event.
local function index(kind, slot, id, score)
  redis.call('ZADD', of(run, kind .. ':' .. slot), score, id)
  redis.call('ZADD', 'tocsin:' .. kind .. ':' .. slot, score, id)
end

local function unindex(kind, slot, id)
  redis.call('ZREM', of(run, kind .. ':' .. slot), id)
  redis.call('ZREM', 'tocsin:' .. kind .. ':' .. slot, id)
end

-- Of a subject the run knows "<slot> <number of its first event> <log entry of its first event>".
local function look_up(kind, id)
  local found = redis.call('HGET', of(run, kind), id)
  if found then
    return string.match(found, '^(%S+) (%S+) (%S+)$')
  end
end

local function forget(kind, id)
  local slot = look_up(kind, id)
  if slot then
    unindex(kind, slot, id)
    redis.call('HDEL', of(run, kind), id)
    redis.call('HDEL', 'tocsin:' .. kind, id)
  end
end

local function store(kind, id, slot, payload, cause)
  local old, number, began = look_up(kind, id)
  if not old then
    number, began = redis.call('HINCRBY', COUNTS, 'subjects', 1), cause
  elseif old ~= slot then
    unindex(kind, old, id)
  end
  if old ~= slot then
    index(kind, slot, id, number)
    redis.call('HSET', of(run, kind), id, slot .. ' ' .. number .. ' ' .. began)
  end
  redis.call('HSET', 'tocsin:' .. kind, id, payload)
end

local state = redis.call('HMGET', main, 'created', 'committed', 'folded', 'given_at')
local committed = state[2] or '0-0'
if not state[1] or committed ~= expected then
  return 0
end
local is_end = not goes_on(run, position)
if is_end and position ~= committed and #redis.call('XRANGE', log, position, position) == 0 then
  return 0 -- it lies beyond the log
end

local folded = state[3] or 0
if is_end then
  folded = redis.call('XLEN', log)
elseif position ~= committed then
  folded = folded + #redis.call('XRANGE', log, '(' .. committed, position)
end
redis.call('HSET', main, 'committed', position, 'version', version, 'folded', folded)
if attempt ~= '' then
  redis.call('HSET', main, 'attempt', attempt)
end
if problem ~= '' then
  redis.call('HSET', main, 'error', problem)
end
if state[4] and before(position, state[4]) then
  redis.call('HDEL', main, 'view')
elseif view ~= '' then
  redis.call('HSET', main, 'view', view)
end
if snapshot ~= '' then
  redis.call('HSET', of(run, 'state'), 'version', version, 'position', position, 'snapshot', snapshot)
end

for _ = 1, tonumber(next_argument()) do
  forget(next_argument(), next_argument())
end
local new = {}
for _ = 1, tonumber(next_argument()) do
  local event, kind, id = next_argument(), next_argument(), next_argument()
  local slot = next_argument() .. ':' .. next_argument()
  store(kind, id, slot, next_argument(), next_argument())
  if event ~= '' and redis.call('SADD', of(run, 'events'), event) == 1 then
    new[event] = true
  end
end
for _ = 1, tonumber(next_argument()) do
  local receiver, incident, event = next_argument(), next_argument(), next_argument()
  if new[event] then
    notify(run, receiver, incident, time)
  end
end
return 1
