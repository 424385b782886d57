-- wrk script: claims one coupon, each request for another user. Prints its counts as one line of JSON.
--
--   COUPON=1024 TOKENS=tokens.txt THREADS=2 wrk -t2 -c64 -d10s -s loadtest/wrk/claim.lua http://127.0.0.1:8080
--
-- COUPON is the coupon's id; TOKENS a file with one access token a line, each for another user; THREADS what -t says.
-- Each thread of wrk reads its own part of the file, so no token is used twice in a run. A thread whose part is used
-- up stops, `void` in the line of JSON is true, and the run shows nothing.
--
-- In the line: requests = sent; accepted (202), sold_out (410), already_claimed (409) and other = replies by status
-- and code; unknown = requests without a reply: those under way at the end, at most one for each connection;
-- socket_errors = connections that failed or timed out, by wrk's own count.

local threads = {}

local function give_up(message)
  io.stderr:write('claim.lua: ', message, '\n')
  os.exit(2)
end

-- Runs in wrk's main thread, once for each thread, which may start before the next one is set up.
function setup(thread)
  threads[#threads + 1] = thread
  thread:set('part', #threads)
  local parts = tonumber(os.getenv('THREADS') or '2')
  if not parts or #threads > parts then give_up('set THREADS to what -t says') end
end

-- From here to `response`, each thread has a state and globals of its own; `done` reads the globals.
sent, accepted, sold_out, already_claimed, other, ran_out = 0, 0, 0, 0, 0, false
example = ''

local before_token, after_token, tokens, left_bytes, trial

-- Opens the thread's part of the file: the lines that begin in it.
local function open_part(path)
  local file, problem = io.open(path, 'rb')
  if not file then give_up('TOKENS: ' .. problem) end
  file:setvbuf('full', 65536)
  local size, parts = file:seek('end'), tonumber(os.getenv('THREADS') or '2')
  local from, to = math.floor(size * (part - 1) / parts), math.floor(size * part / parts)
  if from == 0 then
    file:seek('set', 0)
  else
    -- The line that the byte before belongs to is the part before's.
    file:seek('set', from - 1)
    from = from - 1 + #(file:read('*l') or '') + 1
  end
  return file, to - from
end

function init()
  local coupon, path = os.getenv('COUPON'), os.getenv('TOKENS')
  if not (coupon and coupon:find('^%d+$')) then give_up('set COUPON to the id of a coupon') end
  if not path then give_up('set TOKENS to a file with one access token a line') end
  tokens, left_bytes = open_part(path)
  before_token = 'POST /v1/coupons/' .. coupon .. '/claims HTTP/1.1\r\nHost: ' .. wrk.headers['Host']
    .. '\r\nContent-Length: 0\r\nAuthorization: Bearer '
  after_token = '\r\n\r\n'
  -- wrk asks the first thread for a request that it does not send.
  if part == 1 then trial = before_token .. 'none' .. after_token end
end

function request()
  if trial then
    local unsent = trial
    trial = nil
    return unsent
  end
  local token = left_bytes > 0 and tokens:read('*l')
  if not token then
    ran_out = true
    wrk.thread:stop()
    return before_token .. 'none' .. after_token
  end
  left_bytes = left_bytes - #token - 1
  sent = sent + 1
  return before_token .. token .. after_token
end

function response(status, _, body)
  if ran_out then return end
  if status == 202 then
    accepted = accepted + 1
  elseif status == 410 and body:find('"code":"sold_out"', 1, true) then
    sold_out = sold_out + 1
  elseif status == 409 and body:find('"code":"already_claimed"', 1, true) then
    already_claimed = already_claimed + 1
  else
    other = other + 1
    if example == '' then example = status .. ' ' .. body:sub(1, 300) end
  end
end

function done(summary)
  local function total(name)
    local sum = 0
    for _, thread in ipairs(threads) do sum = sum + thread:get(name) end
    return sum
  end
  local void = false
  for _, thread in ipairs(threads) do
    void = void or thread:get('ran_out')
    local reply = thread:get('example')
    if reply ~= '' then io.stderr:write('claim.lua: unexpected reply: ', reply, '\n') end
  end
  if void then
    io.stderr:write('claim.lua: the tokens ran out, so this run is void: make more of them, or run for less time\n')
  end
  local replies = total('accepted') + total('sold_out') + total('already_claimed') + total('other')
  local errors = summary.errors
  local line = '{"requests":%d,"accepted":%d,"sold_out":%d,"already_claimed":%d,"other":%d,"unknown":%d,'
    .. '"socket_errors":%d,"duration_ms":%d,"void":%s}\n'
  io.write(line:format(total('sent'), total('accepted'), total('sold_out'), total('already_claimed'), total('other'),
    total('sent') - replies, errors.connect + errors.read + errors.write + errors.timeout,
    summary.duration / 1000, tostring(void)))
end
