-- receiver, incident, news, told or '', error or '', time at which it is due again or ''.
-- Several senders may have had the row, one after the other's lease: nothing that is settled becomes news again. Nor
-- does it count if the run has begun anew since the claim.

local receiver, incident, claimed = ARGV[1], ARGV[2], tonumber(ARGV[3])
local told, problem, again = ARGV[4], ARGV[5], ARGV[6]
local key = row(receiver, incident)
local counts = redis.call('HMGET', key, 'news', 'settled')
local news, settled = tonumber(counts[1] or 0), tonumber(counts[2] or 0)
if claimed <= settled or claimed > news then
  return 0
end

redis.call('HDEL', key, 'taken')
local is_new = news > claimed -- since the claim
local waits = again ~= '' and (problem ~= '' or not is_new)
local done = told ~= '' or again == ''
if problem ~= '' then
  redis.call('HINCRBY', key, 'tries', 1)
  redis.call('HSET', key, 'error', problem)
elseif done then
  redis.call('HSET', key, 'tries', 0, 'error', '')
end
if told ~= '' then
  redis.call('HSET', key, 'told', told)
end
if done then
  redis.call('HSET', key, 'settled', claimed)
end
if told ~= '' and waits then
  redis.call('HINCRBY', key, 'news', 1) -- a reminder is a piece of news that comes later
end

redis.call('ZREM', postponed(receiver), incident)
if waits then
  redis.call('ZADD', due(receiver), again, incident)
  if problem == '' then
    redis.call('ZADD', postponed(receiver), again, incident)
  end
elseif is_new then
  redis.call('ZADD', due(receiver), 0, incident)
else
  redis.call('ZREM', due(receiver), incident)
end
return 1
