-- Takes entries that somebody wrote into the log himself, each of them once: counts them or buries them.
--
-- run, the id up to which all is admitted, max_runs, then in order for every entry behind that: id, kind, and
--   v (a vector): key or '', step, time
--   c (a configuration): number of fields, then field and value of each
--   o (written by append, it says): key
--   x (malformed): reason
-- The ids that stay; false if somebody else has admitted entries meanwhile.

local run, expected, most = ARGV[1], ARGV[2], ARGV[3]
local main, log, keys = of(run, 'run'), of(run, 'log'), of(run, 'keys')
if (redis.call('HGET', main, 'admitted') or '0-0') ~= expected then
  return false
end

local function bury(id, reason)
  local found = redis.call('XRANGE', log, id, id)[1]
  if found then
    local shown = {}
    for _, text in ipairs(found[2]) do
      shown[#shown + 1] = string.sub(text, 1, 1000)
    end
    local entry = string.sub(table.concat(shown, ' '), 1, 1000)
    redis.call('XADD', DEAD, 'MAXLEN', '~', DEAD_KEPT, '*', 'run', run, 'id', id, 'reason', reason, 'entry', entry)
    redis.call('XDEL', log, id)
    redis.call('HINCRBY', COUNTS, 'dead', 1)
  end
end

local function seconds(id)
  return string.format('%.3f', tonumber(string.match(id, '^%d+')) / 1000)
end

local kept, opened, at = {}, nil, 4

local function next_argument()
  at = at + 1
  return ARGV[at - 1]
end

-- Whether the run is there, or could be made; if not, the entry is buried.
local function has_run(id)
  if opened == nil then
    opened = open(run, seconds(id), most)
  end
  if not opened then
    bury(id, 'there are ' .. most .. ' runs already; raise max_runs')
  end
  return opened
end

local function admit_vector(id, key, step, time)
  if not has_run(id) then
    return
  end
  if key ~= '' and redis.call('HSETNX', keys, key, id) == 0 and redis.call('HGET', keys, key) ~= id then
    redis.call('XDEL', log, id)
    redis.call('HINCRBY', main, 'repeated', 1)
  else
    count_vector(run, id, step, time, seconds(id), true)
    kept[#kept + 1] = id
  end
end

local function skip(count)
  at = at + count
end

local function admit_config(id)
  if not has_run(id) then
    skip(2 * tonumber(next_argument()))
  elseif merge_config(run, next_argument) then
    config_changed(run, id)
    kept[#kept + 1] = id
  else
    redis.call('XDEL', log, id)
  end
end

local last
while at <= #ARGV do
  local id, kind = next_argument(), next_argument()
  if kind == 'v' then
    admit_vector(id, next_argument(), next_argument(), next_argument())
  elseif kind == 'c' then
    admit_config(id)
  elseif kind == 'o' then
    if redis.call('HGET', keys, next_argument()) == id then
      kept[#kept + 1] = id
    else
      bury(id, "the field 'entry' is the service's own; send 'vector'")
    end
  else
    bury(id, next_argument())
  end
  last = id
end
if redis.call('EXISTS', main) == 1 then
  redis.call('HSET', main, 'admitted', last)
elseif redis.call('XLEN', log) == 0 then
  redis.call('DEL', log)
end
return kept
