-- receiver, incident, news, told or '', error or '', time of the next attempt or ''.
-- Several senders may have had the row, one after the other's lease: nothing that is settled becomes news again.

local row, due = 'tocsin:outbox:' .. ARGV[1] .. ':' .. ARGV[2], 'tocsin:due:' .. ARGV[1]
local counts = redis.call('HMGET', row, 'news', 'settled')
if not counts[1] then
  return 0
end
local news, settled = tonumber(counts[1]), tonumber(counts[2] or 0)
redis.call('HSET', row, 'error', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HINCRBY', row, 'tries', 1)
  if news > settled then
    redis.call('ZADD', due, ARGV[6], ARGV[2])
  end
  return 1
end
if ARGV[4] ~= '' and tonumber(ARGV[3]) >= settled then
  redis.call('HSET', row, 'told', ARGV[4])
end
settled = math.max(settled, tonumber(ARGV[3]))
redis.call('HSET', row, 'settled', settled, 'tries', 0)
if news > settled then
  redis.call('ZADD', due, 0, ARGV[2])
else
  redis.call('ZREM', due, ARGV[2])
end
return 1
