-- receiver, now, end of the lease. The row that is due longest: incident, run, news, tries, told, incident's payload.

local due = 'tocsin:due:' .. ARGV[1]
local incident = redis.call('ZRANGEBYSCORE', due, '-inf', ARGV[2], 'LIMIT', 0, 1)[1]
if not incident then
  return false
end
redis.call('ZADD', due, ARGV[3], incident)
local row = redis.call('HMGET', 'tocsin:outbox:' .. ARGV[1] .. ':' .. incident, 'run', 'news', 'tries', 'told')
return {incident, row[1], row[2], row[3], row[4], redis.call('HGET', 'tocsin:incidents', incident)}
