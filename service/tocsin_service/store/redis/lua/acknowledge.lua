-- run, incident, its acknowledgement, Unix time in seconds. 1, or 0 if the run has no such incident.

local run, incident = ARGV[1], ARGV[2]
if redis.call('HEXISTS', of(run, 'incidents'), incident) == 0 then
  return 0
end
redis.call('HSET', ACKNOWLEDGED, incident, ARGV[3])
redis.call('SADD', of(run, 'acknowledged'), incident)
for _, receiver in ipairs(redis.call('SMEMBERS', RECEIVERS)) do
  if redis.call('HEXISTS', row(receiver, incident), 'told') == 1 then
    notify(run, receiver, incident, ARGV[4])
  end
end
return 1
