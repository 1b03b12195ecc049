-- run, count. The id behind which the latest so many entries lie.

local log, wanted = of(ARGV[1], 'log'), tonumber(ARGV[2]) + 1
local id = '+'
while wanted > 0 do
  local page = redis.call('XREVRANGE', log, id, '-', 'COUNT', math.min(wanted, 256))
  if #page == 0 then
    return '0-0'
  end
  wanted, id = wanted - #page, '(' .. page[#page][1]
  if wanted == 0 then
    return page[#page][1]
  end
end
return '0-0'
