-- Those of the given runs whose log is ahead of their committed position.

local found = {}
for _, run in ipairs(ARGV) do
  if goes_on(run, redis.call('HGET', of(run, 'run'), 'committed') or '0-0') then
    found[#found + 1] = run
  end
end
return found
