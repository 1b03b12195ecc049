-- run, now, max_runs, nudge stream, then for every record: kind, key, text, and
--   v (a vector): step, time
--   c (a configuration): number of fields, then field and value of each
--   o (anything else): nothing more
-- Number of records that are new, -1 if the run is new and there are too many.

local run, now, most, nudges = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local main, log, keys = of(run, 'run'), of(run, 'log'), of(run, 'keys')
if not open(run, now, most) then
  return -1
end

local in_order = not goes_on(run, redis.call('HGET', main, 'admitted') or '0-0')
local accepted, at, id = 0, 5, nil

local function next_argument()
  at = at + 1
  return ARGV[at - 1]
end

local function add(key, text)
  if key == '' then
    key = '#' .. redis.call('HINCRBY', main, 'unnamed', 1)
  end
  id = redis.call('XADD', log, '*', 'entry', text, 'key', key)
  redis.call('HSET', keys, key, id)
  accepted = accepted + 1
end

while at <= #ARGV do
  local kind, key, text = next_argument(), next_argument(), next_argument()
  local known = key ~= '' and redis.call('HEXISTS', keys, key) == 1
  if kind == 'v' then
    local step, time = next_argument(), next_argument()
    if not known then
      add(key, text)
      count_vector(run, id, step, time, now, in_order)
    end
  elseif kind == 'c' then
    local changed = merge_config(run, next_argument)
    if changed and not known then
      add(key, text)
      config_changed(run, id)
    end
  elseif not known then
    add(key, text)
  end
end

if accepted > 0 then
  if in_order then
    redis.call('HSET', main, 'admitted', id)
  end
  redis.call('XADD', nudges, 'MAXLEN', '~', NUDGES_KEPT, '*', 'run', run)
end
return accepted
