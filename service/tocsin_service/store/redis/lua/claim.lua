-- receiver, now, end of the lease.
-- The row that is due longest: incident, run, news, tries, told, error, incident's payload, acknowledgement,
-- whether it was taken before and never settled.

local receiver = ARGV[1]
local incident = redis.call('ZRANGEBYSCORE', due(receiver), '-inf', ARGV[2], 'LIMIT', 0, 1)[1]
if not incident then
  return false
end
redis.call('ZADD', due(receiver), ARGV[3], incident)
redis.call('ZREM', postponed(receiver), incident)
local found = redis.call('HMGET', row(receiver, incident), 'run', 'news', 'tries', 'told', 'error', 'taken')
redis.call('HSET', row(receiver, incident), 'taken', 1)
return {
  incident, found[1], found[2], found[3], found[4], found[5],
  redis.call('HGET', 'tocsin:incidents', incident), redis.call('HGET', ACKNOWLEDGED, incident), found[6],
}
