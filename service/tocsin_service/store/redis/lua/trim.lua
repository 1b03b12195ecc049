-- run, first id kept so far, first id kept from now on, what stands for that entry, then the idempotency keys that go.
-- The number of entries that went; false if somebody else has trimmed this log meanwhile.

local run, expected, cut = ARGV[1], ARGV[2], ARGV[3]
local main = of(run, 'run')
if (redis.call('HGET', main, 'base') or '0-0') ~= expected then
  return false
end
redis.call('HSET', main, 'base', cut, 'base_entry', ARGV[4])
for at = 5, #ARGV do
  redis.call('HDEL', of(run, 'keys'), ARGV[at])
end
local mark = redis.call('ZRANGE', of(run, 'marks'), 0, 0)[1]
while mark and before(mark, cut) do
  redis.call('ZREM', of(run, 'marks'), mark)
  mark = redis.call('ZRANGE', of(run, 'marks'), 0, 0)[1]
end
local removed = redis.call('XTRIM', of(run, 'log'), 'MINID', cut)
redis.call('HINCRBY', main, 'folded', -removed)
return removed
