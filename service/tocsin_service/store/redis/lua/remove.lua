-- run, Unix time in seconds. Removes a run of which nothing has been heard since, if all of it is folded.
-- The number of log entries that went; false if the run stays.

local run = ARGV[1]
local state = redis.call('HMGET', of(run, 'run'), 'created', 'last_seen', 'committed')
if not state[1] or tonumber(state[2] or state[1]) >= tonumber(ARGV[2]) or goes_on(run, state[3] or '0-0') then
  return false
end

for _, kind in ipairs({'alerts', 'incidents'}) do
  local subjects = redis.call('HGETALL', of(run, kind))
  for at = 1, #subjects, 2 do
    local slot = string.match(subjects[at + 1], '^%S+')
    redis.call('ZREM', 'tocsin:' .. kind .. ':' .. slot, subjects[at])
    redis.call('HDEL', 'tocsin:' .. kind, subjects[at])
    redis.call('DEL', of(run, kind .. ':' .. slot))
  end
  redis.call('DEL', of(run, kind))
end
for _, name in ipairs(redis.call('SMEMBERS', of(run, 'outbox'))) do
  local receiver, incident = string.match(name, '^(.*):([^:]*)$')
  redis.call('DEL', row(receiver, incident))
  redis.call('ZREM', due(receiver), incident)
  redis.call('ZREM', postponed(receiver), incident)
end
for _, incident in ipairs(redis.call('SMEMBERS', of(run, 'acknowledged'))) do
  redis.call('HDEL', ACKNOWLEDGED, incident)
end
local entries = redis.call('XLEN', of(run, 'log'))
local parts = {'run', 'config', 'keys', 'log', 'state', 'times', 'marks', 'events', 'outbox', 'acknowledged'}
for _, part in ipairs(parts) do
  redis.call('UNLINK', of(run, part))
end
redis.call('ZREM', RUNS, run)
return entries
