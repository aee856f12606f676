-- Nexus link: lets a Nexus hub see and drive this computer. Needs CC:Tweaked 1.87 or newer, with http
-- and websockets; on Minecraft 1.18 and 1.19 that is 1.101 or newer: older ones send an `Origin` header there, as web pages do,
-- and a hub refuses those.
--
--     wget run http://HOST:3001/install.lua [TOKEN]
--                                                  installs this file, and starts it with the computer
--     nexus                                        in the foreground, Ctrl+T ends it
--     bg nexus                                     in a tab of its own (advanced computers)
--     nexus beside [program]                       in a tab, or under `parallel` beside the program and then a shell
--
-- In a program of your own; it says nothing on the screen then, `run` never returns by itself, and Ctrl+T is for your program
-- (hence the `pcall`: the link is to end in any case):
--
--     local nexus = require("/nexus") -- with the slash, wherever your program is
--     local ok, why = pcall(parallel.waitForAny, nexus.run, myProgram)
--     nexus.stop()
--     if not ok then error(why, 0) end
--
-- Settings (`set NAME VALUE`): nexus.address (HOST:PORT, or a whole ws:// or wss:// address), nexus.token, nexus.world (a
-- name that keeps computers of several worlds with equal ids apart). `set` makes a number of all that looks like one: give a
-- token to the installer instead. "Domain not permitted" means that the server's computercraft-server.toml needs, above its
-- rule for "$private":
--
--     [[http.rules]]
--         host = "HOST"
--         action = "allow"

local VERSION = "1.0.0"
local ADDRESS = "@ADDRESS@"

local LARGEST_ANSWER = 120000 -- CC closes a socket over 131,072 bytes a message
local LONGEST_OUTPUT = 48000
local MOST_ENTRIES = 500
local MOST_JOBS = 32
local LONGEST_WAIT = 30 -- s between two tries
local SPIN = 5000 -- ms without a yield; CC itself ends everything after 7 s
local SIDES = { "top", "bottom", "left", "right", "front", "back" }

local M = { version = VERSION }
local own = getfenv and getfenv() or _ENV -- has `shell` and `require`, which _G lacks
local unpack = table.unpack or unpack

local function pack(...) return { n = select("#", ...), ... } end

local function millis() -- goes on within a slice, as os.clock need not
    return os.epoch and os.epoch("utc") or os.clock() * 1000
end

-- The label, or nil: an unlabelled computer returns no value at all, which `tostring` and the like refuse.
local function label()
    local name = os.getComputerLabel()
    if name ~= "" then return name end
end

local function kind()
    return turtle and "turtle" or pocket and "pocket" or commands and "command" or "computer"
end

-- JSON. textutils does not do: it fails on strings that are not UTF-8 (CC's own letters are not), decodes surrogate pairs
-- to broken letters, writes nan, and joins long strings piece by piece. Written in ASCII only, as CC before 1.109
-- mangles anything else.

local NULL, LIST, RAW = {}, {}, {}

local function list(values) return setmetatable(values, LIST) end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escaped(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end

-- A run of bytes over 127: as UTF-8 if it is that, else byte by byte as Latin-1, which CC's screen shows.
local function letters(run)
    local out, at, size = {}, 1, #run
    while at <= size do
        local first, count, point = run:byte(at), 0, nil
        if first >= 0xC2 and first <= 0xDF then count, point = 1, first - 0xC0
        elseif first >= 0xE0 and first <= 0xEF then count, point = 2, first - 0xE0
        elseif first >= 0xF0 and first <= 0xF4 then count, point = 3, first - 0xF0
        else return (run:gsub(".", escaped)) end
        for i = at + 1, at + count do
            local byte = run:byte(i)
            if not byte or byte < 0x80 or byte > 0xBF then return (run:gsub(".", escaped)) end
            point = point * 64 + byte - 0x80
        end
        if count == 2 and (point < 0x800 or point >= 0xD800 and point <= 0xDFFF)
            or count == 3 and (point < 0x10000 or point > 0x10FFFF) then
            return (run:gsub(".", escaped))
        end
        if point >= 0x10000 then
            point = point - 0x10000
            out[#out + 1] = ("\\u%04x\\u%04x"):format(0xD800 + math.floor(point / 1024), 0xDC00 + point % 1024)
        else
            out[#out + 1] = ("\\u%04x"):format(point)
        end
        at = at + count + 1
    end
    return table.concat(out)
end

local function quoted(text)
    return '"' .. text:gsub('[%c"\\]', escaped):gsub("[\127-\255]+", letters) .. '"'
end

local function digits(number)
    if number ~= number or number == math.huge or number == -math.huge then return quoted(tostring(number)) end
    if number == math.floor(number) and math.abs(number) < 2 ^ 53 then return ("%.0f"):format(number) end
    local short = ("%.15g"):format(number)
    return tonumber(short) == number and short or ("%.17g"):format(number)
end

local function encode_into(out, value)
    local sort = type(value)
    if value == nil or value == NULL then out[#out + 1] = "null"
    elseif sort == "boolean" then out[#out + 1] = tostring(value)
    elseif sort == "number" then out[#out + 1] = digits(value)
    elseif sort == "string" then out[#out + 1] = quoted(value)
    elseif getmetatable(value) == RAW then out[#out + 1] = value[1]
    elseif getmetatable(value) == LIST then
        out[#out + 1] = "["
        for i = 1, #value do
            if i > 1 then out[#out + 1] = "," end
            encode_into(out, value[i])
        end
        out[#out + 1] = "]"
    else
        local before = "{"
        for key, item in pairs(value) do
            out[#out + 1] = before .. quoted(tostring(key)) .. ":"
            encode_into(out, item)
            before = ","
        end
        out[#out + 1] = before == "{" and "{}" or "}"
    end
end

local function encode(value)
    local out = {}
    encode_into(out, value)
    return table.concat(out)
end

local function utf8_of(point)
    if point < 0x80 then return string.char(point) end
    if point < 0x800 then return string.char(0xC0 + math.floor(point / 64), 0x80 + point % 64) end
    if point < 0x10000 then
        return string.char(0xE0 + math.floor(point / 4096), 0x80 + math.floor(point / 64) % 64, 0x80 + point % 64)
    end
    return string.char(0xF0 + math.floor(point / 262144), 0x80 + math.floor(point / 4096) % 64,
        0x80 + math.floor(point / 64) % 64, 0x80 + point % 64)
end

local UNESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function decode(text)
    local at = 1
    local value

    local function skip() at = text:find("[^ \n\r\t]", at) or #text + 1 end
    local function wrong() error("bad JSON at " .. at, 0) end

    local function hex()
        local found = text:match("^\\u(%x%x%x%x)", at)
        return found and tonumber(found, 16)
    end

    local function str()
        local parts = {}
        at = at + 1
        while true do
            local stop = text:find('[%c"\\]', at) or wrong()
            parts[#parts + 1] = text:sub(at, stop - 1)
            at = stop
            local c = text:sub(at, at)
            if c == '"' then
                at = at + 1
                return table.concat(parts)
            elseif c == "\\" then
                local point = hex()
                if point then
                    at = at + 6
                    if point >= 0xD800 and point <= 0xDFFF then
                        local low = point < 0xDC00 and hex()
                        if low and low >= 0xDC00 and low <= 0xDFFF then
                            at = at + 6
                            point = 0x10000 + (point - 0xD800) * 1024 + low - 0xDC00
                        else
                            point = 0xFFFD
                        end
                    end
                    parts[#parts + 1] = utf8_of(point)
                else
                    parts[#parts + 1] = UNESCAPES[text:sub(at + 1, at + 1)] or wrong()
                    at = at + 2
                end
            elseif c == "\127" then
                parts[#parts + 1] = c
                at = at + 1
            else
                wrong()
            end
        end
    end

    local function items(depth, close, item)
        at = at + 1
        skip()
        if text:sub(at, at) == close then
            at = at + 1
            return
        end
        while true do
            item(depth)
            skip()
            local c = text:sub(at, at)
            at = at + 1
            if c == close then return end
            if c ~= "," then wrong() end
            skip()
        end
    end

    local WORDS = { t = { "true", true }, f = { "false", false }, n = { "null", NULL } }

    function value(depth)
        if depth > 100 then wrong() end
        skip()
        local c = text:sub(at, at)
        if c == '"' then return str() end
        if c == "{" then
            local object = {}
            items(depth, "}", function()
                if text:sub(at, at) ~= '"' then wrong() end
                local key = str()
                skip()
                if text:sub(at, at) ~= ":" then wrong() end
                at = at + 1
                object[key] = value(depth + 1)
            end)
            return object
        end
        if c == "[" then
            local array = list({})
            items(depth, "]", function() array[#array + 1] = value(depth + 1) end)
            return array
        end
        local word = WORDS[c]
        if word and text:sub(at, at + #word[1] - 1) == word[1] then
            at = at + #word[1]
            return word[2]
        end
        local number = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at)
        local found = number and tonumber(number)
        if not found then wrong() end
        at = at + #number
        return found
    end

    local found = value(0)
    skip()
    if at <= #text then wrong() end
    return found
end

-- A Lua value as JSON can hold it: what it cannot becomes text.
local function plain(value, depth, around, count)
    local sort = type(value)
    if value == nil or textutils and value == textutils.json_null then return NULL end
    if sort == "boolean" or sort == "number" or sort == "string" then return value end
    if textutils and value == textutils.empty_json_array then return list({}) end
    count.n = count.n + 1
    if sort ~= "table" or around[value] or depth > 16 or count.n > 20000 then
        local ok, text = pcall(tostring, value)
        return ok and type(text) == "string" and text or sort
    end
    around[value] = true
    local out, keys, last = {}, 0, #value
    for key in next, value do
        keys = keys + 1
        if type(key) ~= "number" or key < 1 or key > last or key ~= math.floor(key) then last = 0 end
    end
    if last > 0 and keys == last then
        list(out)
        for i = 1, last do out[i] = plain(value[i], depth + 1, around, count) end
    else
        for key, item in next, value do
            out[tostring(key)] = plain(item, depth + 1, around, count)
        end
    end
    around[value] = nil
    return out
end

-- The head of a text that takes at most so many bytes as JSON, never half a letter.
local function head(text, room)
    local size = math.min(#text, room)
    while size > 0 do
        for _ = 1, 3 do
            local after = text:byte(size + 1)
            if not after or after < 0x80 or after > 0xBF then break end
            size = size - 1
        end
        local takes = #quoted(text:sub(1, size)) - 2
        if takes <= room then break end
        size = math.min(size - 1, math.floor(size * room / takes))
    end
    return text:sub(1, math.max(size, 0))
end

-- Values as a JSON list of at most so many bytes, and whether something was left out for that.
local function fitting(values, from, room)
    local out, cut, used = list({}), false, 0
    for i = from, values.n do
        local value = plain(values[i], 0, {}, { n = 0 })
        local text = encode(value)
        if used + #text > room then
            cut = true
            text = type(value) == "string" and room - used > 16 and quoted(head(value, room - used - 2)) or "null"
        end
        used = used + #text + 1
        if used > room + 4096 then break end
        out[#out + 1] = setmetatable({ text }, RAW)
    end
    return out, cut
end

-- Base64

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local LETTER, VALUE = {}, {}
for i = 0, 63 do
    local letter = ALPHABET:sub(i + 1, i + 1)
    LETTER[i], VALUE[letter:byte()] = letter, i
end

local function to_base64(bytes)
    local out, floor = {}, math.floor
    for i = 1, #bytes, 3 do
        local a, b, c = bytes:byte(i, i + 2)
        local whole = a * 65536 + (b or 0) * 256 + (c or 0)
        out[#out + 1] = LETTER[floor(whole / 262144)] .. LETTER[floor(whole / 4096) % 64]
            .. (b and LETTER[floor(whole / 64) % 64] or "=") .. (c and LETTER[whole % 64] or "=")
    end
    return table.concat(out)
end

local function from_base64(text)
    if #text % 4 ~= 0 or not text:find("^[A-Za-z0-9+/]*=?=?$") then error("data is no base64", 0) end
    local out, floor, char = {}, math.floor, string.char
    for i = 1, #text, 4 do
        local a, b, c, d = text:byte(i, i + 3)
        local whole = VALUE[a] * 262144 + VALUE[b] * 4096 + (VALUE[c] or 0) * 64 + (VALUE[d] or 0)
        if not VALUE[c] then out[#out + 1] = char(floor(whole / 65536))
        elseif not VALUE[d] then out[#out + 1] = char(floor(whole / 65536), floor(whole / 256) % 256)
        else out[#out + 1] = char(floor(whole / 65536), floor(whole / 256) % 256, whole % 256) end
    end
    return table.concat(out)
end

-- What a request gives, checked

local function need(params, name, sort)
    local value = params[name]
    if type(value) ~= sort then error(name .. " must be a " .. sort, 0) end
    return value
end

local function whole(params, name, from, to)
    local value = need(params, name, "number")
    if value ~= math.floor(value) or value < from or value > to then
        error(("%s must be a whole number from %d to %d"):format(name, from, to), 0)
    end
    return value
end

local function given(params, name) return params[name] ~= nil and params[name] ~= NULL end

-- Where we are: told by GPS, then kept up to date with every move. Moves of other programs are seen too: while we run,
-- the six functions of `turtle` that move it are ours and hand on to the true ones.

local FACINGS = { [0] = "north", "east", "south", "west" }
local AHEAD = { [0] = { 0, -1 }, { 1, 0 }, { 0, 1 }, { -1, 0 } }
local MOVES = { "forward", "back", "up", "down", "turnLeft", "turnRight" }

local place, facing -- {x, y, z}; 0 to 3
local moves, moving = 0, setmetatable({}, { __mode = "k" }) -- how many so far; which coroutines are at it
local gps_answers, asked_gps = false, nil
local hand_back = {}

local function moved(name)
    moves = moves + 1
    if name == "turnLeft" then facing = facing and (facing + 3) % 4
    elseif name == "turnRight" then facing = facing and (facing + 1) % 4
    elseif not place then return
    elseif name == "up" then place = { x = place.x, y = place.y + 1, z = place.z }
    elseif name == "down" then place = { x = place.x, y = place.y - 1, z = place.z }
    elseif not facing then place = nil
    else
        local sign, step = name == "forward" and 1 or -1, AHEAD[facing]
        place = { x = place.x + sign * step[1], y = place.y, z = place.z + sign * step[2] }
    end
end

local function watch_moves()
    if not turtle then return end
    for _, name in ipairs(MOVES) do
        local true_one = turtle[name]
        local function ours(...)
            local me = coroutine.running() or "main"
            moving[me] = true
            local result = pack(pcall(true_one, ...))
            moving[me] = nil
            if not result[1] then -- Ctrl+T in the middle of it, say: nobody knows whether it moved
                moves, place, facing = moves + 1, nil, nil
                error(result[2], 0)
            end
            if result[2] then moved(name) end
            return unpack(result, 2, result.n)
        end
        turtle[name] = ours
        hand_back[#hand_back + 1] = function()
            if turtle[name] == ours then turtle[name] = true_one end
        end
    end
end

-- Whether another program asks GPS just now. Whoever is first there opens the channel and closes it in the end, and the
-- other hears nothing more. One that is open for long is that of a GPS host, or was left behind: it stays open.
local GPS_CHANNEL = 65534
local open_since

local function gps_is_busy()
    local open = false
    for _, side in ipairs(peripheral and SIDES or {}) do
        if peripheral.getType(side) == "modem" and peripheral.call(side, "isWireless") then
            open = open or peripheral.call(side, "isOpen", GPS_CHANNEL)
        end
    end
    open_since = open and (open_since or os.clock()) or nil
    return open and os.clock() - open_since < 10
end

local function locate(patience)
    if not gps or not gps.locate or gps_is_busy() then return end
    local before = moves
    asked_gps = os.clock()
    local x, y, z = gps.locate(patience)
    gps_answers = x ~= nil
    if not x or moves ~= before or next(moving) then return end
    if place and (place.x ~= x or place.y ~= y or place.z ~= z) then facing = nil end
    place = { x = x, y = y, z = z }
end

-- The state of the link. One of them runs on a computer; `session` is the one that runs here.

local session

local function is_running() -- any on this computer: all tabs share _G, and a beat that stopped is one that was killed
    local other = _G.nexus_link
    return type(other) == "table" and type(other.beat) == "number" and math.abs(os.clock() - other.beat) < 20
end

local function settings_of(name)
    local value = settings and settings.get(name)
    if value ~= nil and value ~= "" then return tostring(value) end
end

local function address()
    local at = settings_of("nexus.address") or ADDRESS
    if at:sub(1, 1) == "@" then error("no address: say `set nexus.address HOST:3001`", 0) end
    at = at:gsub("^http(s?://)", "ws%1")
    if not at:find("^wss?://") then at = "ws://" .. at end
    if not at:find("^wss?://[^/]+/") then at = at .. "/" end
    return at, at:match("^wss?://([^/]+)")
end

local function capabilities()
    local can = list({ "status", "lua", "files" })
    if peripheral then can[#can + 1] = "peripherals" end
    if turtle then can[#can + 1] = "turtle" end
    if redstone then can[#can + 1] = "redstone" end
    can[#can + 1] = "stop"
    return can
end

local function called()
    local name = label()
    return os.getComputerID() .. (name and " (" .. name .. ")" or "")
end

local function status()
    local now = { kind = kind(), label = label(), uptime = os.clock(), position = place, version = _HOST }
    local free = fs.getFreeSpace("/")
    if type(free) == "number" and free < 2 ^ 53 then now.freeSpace = free end
    if turtle then
        now.fuel = turtle.getFuelLevel()
        now.fuelLimit = turtle.getFuelLimit and turtle.getFuelLimit() or nil
    end
    return now
end

-- The methods. They run as coroutines of their own and may wait; an error is what the hub is told.

local methods = {}

-- A screen that keeps the text. Huge, so that nothing wraps, scrolls or asks for a key.
local function recorder()
    local parts, size, cut = {}, 0, false
    local x, y, row, column = 1, 1, 1, 1 -- where the cursor is, and where the text ends
    local colours = { text = colors and colors.white or 1, back = colors and colors.black or 32768 }

    local function keep(text)
        local room = LONGEST_OUTPUT - size
        if #text > room then text, cut = text:sub(1, math.max(room, 0)), true end
        if #text > 0 then
            parts[#parts + 1] = text
            size = size + #text
        end
    end

    local function put(text)
        if y ~= row or x < column then
            keep(("\n"):rep(math.max(1, math.min(y - row, 3))))
            column = 1
        end
        if x > column then keep((" "):rep(math.min(x - column, 200))) end
        keep(text)
        x = x + #text
        row, column = y, x
    end

    local function nothing() end
    local screen = {
        write = function(text) put(tostring(text)) end,
        blit = function(text) put(tostring(text)) end,
        clear = nothing, clearLine = nothing, setCursorBlink = nothing,
        getCursorPos = function() return x, y end,
        setCursorPos = function(to_x, to_y) x, y = math.floor(to_x), math.floor(to_y) end,
        getCursorBlink = function() return false end,
        getSize = function() return 200, 100000 end,
        scroll = function(lines) y = y + lines end,
    }
    for _, word in ipairs({ "Color", "Colour" }) do
        screen["is" .. word] = function() return true end
        screen["setText" .. word] = function(to) colours.text = to end
        screen["getText" .. word] = function() return colours.text end
        screen["setBackground" .. word] = function(to) colours.back = to end
        screen["getBackground" .. word] = function() return colours.back end
        screen["setPalette" .. word] = nothing
        screen["getPalette" .. word] = function() return 1, 1, 1 end
    end

    -- What `print` and `write` of the code itself say, as it was said.
    local function say(text)
        if y ~= row or x ~= column then put("") end
        keep(text)
        local lines, last = select(2, text:gsub("\n", "")), text:match("^.*\n(.*)$") or text
        y = y + lines
        x = (lines > 0 and 1 or x) + #last
        row, column = y, x
    end

    return screen, say, function()
        local text = table.concat(parts)
        local fits = head(text, LONGEST_OUTPUT + 12000) -- as JSON, with its escapes; a frame holds that and the results
        return fits, cut or #fits < #text
    end
end

local function compiled(code, env)
    if code:sub(1, 1) == "\27" then return nil, "only text is run" end
    local function try(text)
        if setfenv and loadstring then
            local chunk, why = loadstring(text, "=run")
            return chunk and setfenv(chunk, env), why
        end
        return load(text, "=run", "t", env)
    end
    local chunk = try("return " .. code) -- an expression, as at Lua's prompt
    if chunk then return chunk end
    return try(code)
end

methods["lua.run"] = function(params, job)
    local code, patience = need(params, "code", "string"), params.timeout
    patience = type(patience) == "number" and math.max(0.05, math.min(patience, 3600)) or 10
    local screen, say, said = recorder()

    local env = {}
    function env.write(text) say(tostring(text)) end
    function env.print(...)
        local words = pack(...)
        for i = 1, words.n do words[i] = tostring(words[i]) end
        say(table.concat(words, "\t") .. "\n")
    end
    env.printError = env.print
    setmetatable(env, { __index = own })

    local function report(results, from, why)
        local output, cut = said()
        local values, values_cut = fitting(results, from, LONGEST_OUTPUT)
        return { output = output, outputCut = cut, results = values, resultsCut = values_cut or nil, error = why }
    end
    -- However the code ends, that is a result.
    function job.failed(why)
        local ok, text = pcall(tostring, type(why) == "table" and rawget(why, "message") or why)
        return report({ n = 0 }, 1, head(ok and text or "an error that has no text", 4000))
    end
    job.limit(patience, function() return job.failed("stopped after " .. digits(patience) .. " s") end)

    local chunk, why = compiled(code, env)
    if not chunk then return job.failed(why) end
    job.enter(screen)
    local results = pack(chunk())
    job.leave()
    return report(results, 1)
end

local function modified(path)
    if not fs.attributes then return end
    local known, about = pcall(fs.attributes, path)
    local at = known and (about.modified or about.modification)
    if type(at) == "number" and at > 0 then return math.floor(at) end
end

local function tidy(path) return "/" .. fs.combine("", path) end

methods["files.list"] = function(params)
    local path = tidy(need(params, "path", "string"))
    if not fs.exists(path) then error("no such folder: " .. path, 0) end
    if not fs.isDir(path) then error("not a folder: " .. path, 0) end
    local names, after = fs.list(path), given(params, "after") and need(params, "after", "string") or nil
    table.sort(names)
    local entries, more, size = list({}), false, 0
    for _, name in ipairs(names) do
        if not after or name > after then
            if #entries >= MOST_ENTRIES or size > 90000 then
                more = true
                break
            end
            local full = fs.combine(path, name)
            local folder = fs.isDir(full)
            local entry = { name = name, kind = folder and "folder" or "file", size = folder and 0 or fs.getSize(full),
                readOnly = fs.isReadOnly(full), modified = modified(full) }
            entries[#entries + 1] = entry
            size = size + #quoted(name) + 100
        end
    end
    return { path = path, entries = entries, more = more }
end

methods["files.read"] = function(params)
    local path = tidy(need(params, "path", "string"))
    local offset, length = whole(params, "offset", 0, 2 ^ 52), whole(params, "length", 0, 60000)
    if not fs.exists(path) then error("no such file: " .. path, 0) end
    if fs.isDir(path) then error("a folder: " .. path, 0) end
    local size = fs.getSize(path)
    local file, why = fs.open(path, "rb")
    if not file then error(why or "cannot be opened: " .. path, 0) end
    local parts, left = {}, math.min(length, math.max(size - offset, 0))
    if left > 0 and offset > 0 then file.seek("set", offset) end
    while left > 0 do
        local part = file.read(left)
        if not part or part == "" then break end
        parts[#parts + 1] = part
        left = left - #part
    end
    file.close()
    return { data = to_base64(table.concat(parts)), size = size, modified = modified(path) }
end

local transfers = {} -- id -> { path, part }

local function drop_transfer(id)
    local transfer = transfers[id]
    transfers[id] = nil
    if transfer then pcall(fs.delete, transfer.part) end
end

-- Puts a finished file in another's place. The old one is moved aside first, so that one of them is always there.
local function replace(part, path)
    local aside = part .. ".old"
    local had = fs.exists(path)
    if had then fs.move(path, aside) end
    local ok, why = pcall(fs.move, part, path)
    if not ok then
        if had then fs.move(aside, path) end
        error(why, 0)
    end
    if had then fs.delete(aside) end
end

methods["files.write"] = function(params, job)
    local id, path = need(params, "transfer", "string"), tidy(need(params, "path", "string"))
    local offset, size = whole(params, "offset", 0, 2 ^ 52), whole(params, "size", 0, 2 ^ 52)
    local data = from_base64(need(params, "data", "string"))
    if not id:find("^%x+$") or #id > 64 then error("transfer must be hexadecimal", 0) end
    job.transfer = id
    function job.failed(why) -- whole or not at all
        drop_transfer(id)
        error(tostring(why), 0)
    end

    if offset == 0 then
        drop_transfer(id)
        if path == "/" or fs.isDir(path) then error("a folder: " .. path, 0) end
        if fs.isReadOnly(path) then error("read-only: " .. path, 0) end
        local folder = fs.getDir(path)
        local free = fs.getFreeSpace(fs.exists(folder) and folder or "/")
        if type(free) == "number" and size > free then
            error(("no space: %d bytes to write, %d free"):format(size, free), 0)
        end
        if not fs.exists(folder) then fs.makeDir(folder) end
        local active = {}
        for _, transfer in pairs(transfers) do active[transfer.part] = true end
        for _, name in ipairs(fs.list(folder)) do -- what a reboot left behind
            local full = tidy(fs.combine(folder, name))
            if name:find("^%.nexus%-%x+%.part$") and not active[full] then fs.delete(full) end
        end
        transfers[id] = { path = path, part = tidy(fs.combine(folder, ".nexus-" .. id .. ".part")) }
    end
    local transfer = transfers[id]
    if not transfer or transfer.path ~= path then error("no such transfer; begin at offset 0", 0) end
    local has = offset == 0 and 0 or fs.getSize(transfer.part)
    if has ~= offset then error(("wrong offset: %d bytes are here, not %d"):format(has, offset), 0) end
    if has + #data > size then error("more bytes than were announced", 0) end

    local file, why = fs.open(transfer.part, offset == 0 and "wb" or "ab")
    if not file then error(why or "cannot be written: " .. path, 0) end
    local ok, problem = pcall(function()
        file.write(data)
        if file.flush then file.flush() end
    end)
    local closed, trouble = pcall(file.close)
    if not ok or not closed then error(problem or trouble, 0) end

    session.after("transfer " .. id, 120, function() drop_transfer(id) end)
    if params.last == true then
        session.forget("transfer " .. id)
        local came = fs.getSize(transfer.part)
        if came ~= size then error(("%d bytes came, %d were announced"):format(came, size), 0) end
        replace(transfer.part, path)
        transfers[id] = nil
    end
    return { written = #data }
end

methods["peripherals.list"] = peripheral and function()
    local found, size = list({}), 0
    local names = peripheral.getNames()
    table.sort(names)
    for _, name in ipairs(names) do
        local types = list({ peripheral.getType(name) })
        local calls = list(size < 90000 and peripheral.getMethods(name) or {}) -- past a frame: names and types only
        table.sort(calls)
        local entry = { name = name, types = types, methods = calls }
        size = size + #encode(entry)
        found[#found + 1] = entry
    end
    return { peripherals = found }
end

methods["peripherals.call"] = peripheral and function(params)
    local name, method = need(params, "name", "string"), need(params, "method", "string")
    if not peripheral.isPresent(name) then error("no peripheral named " .. name, 0) end
    local known = false
    for _, other in ipairs(peripheral.getMethods(name) or {}) do known = known or other == method end
    if not known then error(name .. " has no method " .. method, 0) end
    local arguments = { n = 0 }
    if given(params, "arguments") then
        for i, value in ipairs(need(params, "arguments", "table")) do
            if value ~= NULL then arguments[i] = value end
            arguments.n = i
        end
    end
    local function without_nulls(value) -- inside of tables, a null is a field that is not there
        if type(value) ~= "table" then return end
        setmetatable(value, nil)
        for key, item in pairs(value) do
            if item == NULL then value[key] = nil else without_nulls(item) end
        end
    end
    for i = 1, arguments.n do without_nulls(arguments[i]) end
    local results, cut = fitting(pack(peripheral.call(name, method, unpack(arguments, 1, arguments.n))), 1, LONGEST_OUTPUT)
    return { results = results, resultsCut = cut or nil }
end

-- Turtle actions by what they take and what their first value means.
local DOES = {} -- ok, reason
for _, name in ipairs({ "dig", "attack", "place", "suck", "drop" }) do
    for _, way in ipairs({ "", "Up", "Down" }) do DOES[name .. way] = name end
end
for _, name in ipairs({ "forward", "back", "up", "down", "turnLeft", "turnRight", "select", "refuel", "transferTo",
    "equipLeft", "equipRight", "craft" }) do DOES[name] = name end
local TELLS = {} -- a value
for _, name in ipairs({ "detect", "compare", "inspect" }) do
    for _, way in ipairs({ "", "Up", "Down" }) do TELLS[name .. way] = name end
end

local function inventory()
    local slots = list({})
    for slot = 1, 16 do
        local item = turtle.getItemDetail(slot)
        if item then slots[#slots + 1] = { slot = slot, name = item.name, count = item.count, damage = item.damage } end
    end
    return { slots = slots, selected = turtle.getSelectedSlot() }
end

-- Which way a turtle looks is only seen by walking: GPS before and after a step.
local function find_facing(from, sign)
    locate(1)
    if not place or not from or place.y ~= from.y then return end
    for way, step in pairs(AHEAD) do
        if (place.x - from.x) * sign == step[1] and (place.z - from.z) * sign == step[2] then facing = way end
    end
end

methods["turtle"] = turtle and function(params)
    local action = need(params, "action", "string")
    local does, arguments = DOES[action], { n = 0 }
    local function give(value)
        arguments.n = arguments.n + 1
        arguments[arguments.n] = value
    end
    if does == "select" or does == "transferTo" then give(whole(params, "slot", 1, 16)) end
    if given(params, "count") and (does == "suck" or does == "drop" or does == "refuel" or does == "transferTo"
        or does == "craft") then give(whole(params, "count", 0, 64)) end
    if given(params, "text") and does == "place" then give(need(params, "text", "string")) end

    local said = {}
    if action == "inventory" then
        said.ok, said.result = true, inventory()
    elseif not does and not TELLS[action] then
        error("unknown action " .. action, 0)
    elseif not turtle[action] then
        said.ok, said.reason = false, action == "craft" and "needs a crafting table" or "this turtle cannot " .. action
    else
        local from = place
        if (action == "forward" or action == "back") and not facing and not from and gps_answers then
            locate(1)
            from = place
        end
        local first, second = turtle[action](unpack(arguments, 1, arguments.n))
        if TELLS[action] == "detect" or TELLS[action] == "compare" then
            said.ok, said.result = true, first == true
        elseif TELLS[action] == "inspect" then
            said.ok = first == true
            if first then said.result = plain(second, 0, {}, { n = 0 }) else said.reason = tostring(second) end
        else
            said.ok = first == true
            if not first then said.reason = second and tostring(second) or "it did not work" end
        end
        if first and not facing and gps_answers and (action == "forward" or action == "back") then
            find_facing(from, action == "forward" and 1 or -1)
        end
    end
    said.fuel, said.selected = turtle.getFuelLevel(), turtle.getSelectedSlot()
    said.position, said.facing = place, facing and FACINGS[facing]
    return said
end

local function redstone_now()
    local sides = {}
    for _, side in ipairs(SIDES) do
        local now = { input = redstone.getAnalogInput(side), output = redstone.getAnalogOutput(side) }
        local into, out = redstone.getBundledInput(side), redstone.getBundledOutput(side)
        if into ~= 0 then now.bundledInput = into end
        if out ~= 0 then now.bundledOutput = out end
        sides[side] = now
    end
    return { sides = sides }
end

methods["redstone.get"] = redstone and redstone_now

methods["redstone.set"] = redstone and function(params)
    local side = need(params, "side", "string")
    local known = false
    for _, other in ipairs(SIDES) do known = known or other == side end
    if not known then error("no side " .. side, 0) end
    if given(params, "bundled") then redstone.setBundledOutput(side, whole(params, "bundled", 0, 65535))
    else redstone.setAnalogOutput(side, whole(params, "strength", 0, 15)) end
    return redstone_now()
end

-- The link itself: one loop over all events, which never waits for any one of them.

local function start_session(loud)
    local self = {}
    local url, host, socket
    local state = "idle" -- "connecting", "greeting", "linked"
    local tries, linked_at, refused, shown, said_label = 0, nil, false, nil, nil
    local jobs = {} -- by request id
    local backlog = {}
    local slice = millis()

    local function show(text, colour)
        if not loud then return end
        local before = term.getTextColour and term.getTextColour()
        if before and colour and term.isColour() then term.setTextColour(colour) end
        print("Nexus: " .. text)
        if before then term.setTextColour(before) end
    end

    -- Deadlines. Kept here rather than one timer each: a full queue of events loses timers without a word.

    local due, alarm, alarm_at = {}, nil, 0

    function self.after(what, seconds, act) due[what] = { at = os.clock() + seconds, act = act } end
    function self.forget(what) due[what] = nil end

    local function set_alarm()
        local first
        for _, deadline in pairs(due) do first = math.min(first or deadline.at, deadline.at) end
        if not first then return end
        local now = os.clock()
        if alarm and alarm_at <= first and now < alarm_at then return end
        if alarm and os.cancelTimer then os.cancelTimer(alarm) end
        alarm_at = math.max(first, now + 0.05)
        alarm = os.startTimer(alarm_at - now)
    end

    local function run_due()
        local now, acts = os.clock(), {}
        for what, deadline in pairs(due) do
            if deadline.at <= now then acts[#acts + 1] = what end
        end
        for _, what in ipairs(acts) do
            local deadline = due[what]
            if deadline and deadline.at <= now then
                due[what] = nil
                deadline.act()
            end
        end
    end

    -- Jobs

    local lost -- below: what to do when the link breaks

    local function send(message)
        if not socket then return end
        local text = encode(message)
        if #text > LARGEST_ANSWER then
            text = encode({ type = "response", id = message.id, ok = false, error = "answer too large" })
        end
        local ok, why = pcall(socket.send, text)
        if not ok then lost(tostring(why)) end
    end

    local function answer(id, result) send({ type = "response", id = id, ok = true, result = result }) end
    local function refuse(id, why)
        send({ type = "response", id = id, ok = false, error = head(tostring(why), 4000) })
    end

    local function end_job(job)
        job.over = true
        if jobs[job.id] == job then jobs[job.id] = nil end
        due[job] = nil
        if turtle and (moving[job.thread] or next(moving) and job.method == "lua.run") then
            for thread in pairs(moving) do moving[thread] = nil end
            place, facing = nil, nil -- a move is under way, and nobody will hear how it ends
        end
    end

    local at_work = false -- whether a job runs just now, or anybody else

    local function watch(thread)
        if not debug or not debug.sethook then return end
        local close = false
        local function hook()
            if at_work and millis() - slice > SPIN then
                close = true
                debug.sethook(thread, hook, "", 1) -- again at once, should the code catch this
                error("ran 5 s without yielding; call sleep(0) now and then", 0)
            elseif close then
                close = false
                debug.sethook(thread, hook, "", 10000)
            end
        end
        pcall(debug.sethook, thread, hook, "", 10000)
    end

    -- While a job runs, all coroutines are made by these two, those of `parallel` and of the shell's programs included: what
    -- the code starts is watched like the code itself.
    local true_create = coroutine.create

    local function watched(body)
        local thread = true_create(body)
        watch(thread)
        return thread
    end

    local function watched_wrap(body)
        local thread = watched(body)
        return function(...)
            local result = pack(coroutine.resume(thread, ...))
            if not result[1] then error(result[2], 0) end
            return unpack(result, 2, result.n)
        end
    end

    local function resume(job, ...)
        if job.screen then job.enter(job.screen) end
        local create, wrap = coroutine.create, coroutine.wrap
        at_work, coroutine.create, coroutine.wrap = true, watched, watched_wrap
        local result = pack(coroutine.resume(job.thread, ...))
        at_work, coroutine.create, coroutine.wrap = false, create, wrap
        if job.behind then job.screen = job.leave() end
        if coroutine.status(job.thread) ~= "dead" then
            job.filter = result[2]
            return
        end
        if job.over then return end
        end_job(job)
        if result[1] then
            if job.done then job.done(result[2]) end
            return
        end
        local why = result[2]
        if job.failed then
            local ok, told = pcall(job.failed, why)
            if ok then return job.done(told) end
            why = told
        end
        if job.refuse then job.refuse(why) end
    end

    local function start(job, body)
        job.thread = watched(body)
        function job.enter(screen) job.behind = term.redirect(screen) end -- all it writes goes there, also after a wait
        function job.leave()
            local behind = job.behind
            job.screen, job.behind = nil, nil
            return term.redirect(behind)
        end
        jobs[job.id] = job
        resume(job)
    end

    local function job_count()
        local count = 0
        for _, job in pairs(jobs) do
            if not job.quiet then count = count + 1 end
        end
        return count
    end

    local function refresh_place(age)
        if not gps or jobs.gps or asked_gps and os.clock() - asked_gps < age then return end
        local job = { id = "gps", quiet = true }
        self.after(job, 15, function() end_job(job) end)
        start(job, function() locate(2) end)
    end

    local function begin(id, method, params)
        if job_count() >= MOST_JOBS then return refuse(id, "too many requests at once") end
        if jobs[id] then return end
        local job = { id = id, method = method }
        function job.done(result) answer(id, result) end
        function job.refuse(why) refuse(id, why) end
        function job.limit(seconds, last_words)
            self.after(job, seconds, function()
                end_job(job)
                if last_words then answer(id, last_words()) else refuse(id, "no end within " .. seconds .. " s") end
            end)
        end
        job.limit(600)
        start(job, function() return methods[method](params, job) end)
    end

    local function drop_jobs(tell)
        local ended = {}
        for _, job in pairs(jobs) do
            if not job.quiet then ended[#ended + 1] = job end
        end
        for _, job in ipairs(ended) do end_job(job) end
        for id in pairs(transfers) do
            self.forget("transfer " .. id)
            drop_transfer(id)
        end
        if tell then
            for _, job in ipairs(ended) do refuse(job.id, "stopped") end
        end
        return #ended
    end

    -- Lets CC's watch over us begin anew, keeping whatever comes meanwhile.
    local function breathe()
        os.queueEvent("nexus_breath")
        backlog[#backlog + 1] = pack(os.pullEventRaw())
        slice = millis()
    end

    local function hand_out(event)
        local waiting = {}
        for _, job in pairs(jobs) do
            if job.filter == nil or job.filter == event[1] then waiting[#waiting + 1] = job end
        end
        for _, job in ipairs(waiting) do
            if not job.over then
                if millis() - slice > 1000 then breathe() end
                slice = millis()
                resume(job, unpack(event, 1, event.n))
            end
        end
    end

    -- The link

    local function say_hello()
        said_label = label()
        send({ type = "hello", computerId = os.getComputerID(), computerLabel = said_label, version = VERSION, kind = kind(),
            capabilities = capabilities(), world = settings_of("nexus.world"), token = settings_of("nexus.token") })
        self.after("hello", 10, function() lost("the hub does not answer") end)
    end

    local function jitter() -- 0 to 1; computers that start together must not come back together
        return (os.getComputerID() * 7919 + millis()) % 1000 / 1000
    end

    local function connect()
        local known, why
        known, url, host = pcall(address)
        if not known then
            why, host, url = url, "the hub", nil
        elseif not http then
            why = "http is turned off on this server (http.enabled)"
        else
            state = "connecting"
            self.after("connect", 40, function() lost("no answer") end)
            local ok, begun, problem = pcall(http.websocketAsync, url)
            if ok and begun ~= false then return end
            why = tostring(ok and problem or begun)
        end
        lost(why)
    end

    function lost(why, code)
        if state == "idle" then return end
        local was = state
        state = "idle"
        if socket then pcall(socket.close) end
        socket = nil
        self.forget("connect")
        self.forget("hello")
        self.forget("quiet")
        drop_jobs(false)
        if linked_at and os.clock() - linked_at >= 10 then tries = 0 end
        linked_at = nil
        local wait = math.min(LONGEST_WAIT, 2 ^ tries)
        if code == 4001 or code == 4003 or refused then wait = LONGEST_WAIT end
        if code == 4001 then why = "another computer, or another program here, linked as " .. called() end
        if code == 4003 then why = "the token was refused: give the installer the right one" end
        tries, refused = math.min(tries + 1, 10), false
        wait = wait * (0.75 + 0.25 * jitter())
        why = why and why ~= "" and why or "closed"
        if shown ~= why then
            shown = why
            local what = was == "linked" and "link to " .. host .. " lost" or "no link to " .. host
            show(("%s (%s); next try in %d s"):format(what, why, math.ceil(wait)), colors and colors.orange)
            if why:find("Domain not permitted") then
                show("the server's http.rules must allow " .. host .. ", above the rule for $private", colors and colors.orange)
            elseif why:find("Websocket connections are disabled") then
                show("http.websocket_enabled must be true in the server's computercraft-server.toml", colors and colors.orange)
            end
        end
        self.after("retry", wait, function()
            state = "connecting"
            connect()
        end)
    end

    local function hear(text)
        local ok, message = pcall(decode, text)
        if not ok or type(message) ~= "table" then return end
        self.after("quiet", 90, say_hello)
        local sort, id = message.type, message.id
        if sort == "hello-ok" then
            self.forget("hello")
            if state ~= "linked" then
                state, linked_at, shown, refused = "linked", os.clock(), nil, false
                show("linked to " .. host .. " as " .. called(), colors and colors.lime)
            end
        elseif sort == "error" then
            refused = refused or state == "greeting"
            local why = "the hub says: " .. tostring(message.error)
            if shown ~= why then
                shown = why
                show(why, colors and colors.orange)
            end
        elseif type(id) ~= "string" then
            return
        elseif sort == "cancel" then
            if jobs[id] and not jobs[id].quiet then
                if jobs[id].transfer then drop_transfer(jobs[id].transfer) end
                end_job(jobs[id])
            end
        elseif sort == "request" then
            local method, params = message.method, message.params
            if type(params) ~= "table" or params == NULL then params = {} end
            if method == "ping" then
                answer(id, ("pong from %d (Label: %s)"):format(os.getComputerID(), label() or "null"))
            elseif method == "status" then
                answer(id, status())
                refresh_place(30)
            elseif method == "stop" then
                answer(id, { stopped = drop_jobs(true) })
            elseif type(method) == "string" and methods[method] then
                begin(id, method, params)
            else
                refuse(id, "unknown method")
            end
        end
    end

    local function beat()
        _G.nexus_link.beat = os.clock()
        if state == "linked" and label() ~= said_label then say_hello() end
        self.after("beat", 5, beat)
    end

    function self.finish()
        if session ~= self then return end
        session = nil
        drop_jobs(false)
        if socket then pcall(socket.close) end
        socket = nil
        for _, undo in ipairs(hand_back) do undo() end
        hand_back = {}
        if alarm and os.cancelTimer then os.cancelTimer(alarm) end
        _G.nexus_link = nil
    end

    local function mine(event)
        local name = event[1]
        if name == "timer" and event[2] == alarm then
            alarm = nil
        elseif name:find("^websocket_") and event[2] == url and url then
            if name == "websocket_success" then
                if state == "connecting" then
                    socket, state = event[3], "greeting"
                    self.forget("connect")
                    say_hello()
                else
                    pcall(event[3].close)
                end
            elseif name == "websocket_failure" then
                if state == "connecting" then lost(tostring(event[3])) end
            elseif name == "websocket_closed" then
                if state == "greeting" or state == "linked" then lost(event[3], event[4]) end
            elseif name == "websocket_message" and socket and not event[4] then
                hear(event[3])
            end
        else
            return false
        end
        return true
    end

    -- Ends with the file's newer version in its place, or in the foreground by an error: Ctrl+T. Beside another program that
    -- is none of our business: `parallel` tells both of us, and it is the other that is meant.
    function self.loop()
        _G.nexus_link = { beat = os.clock() }
        watch_moves()
        refresh_place(0)
        beat()
        state = "connecting"
        connect()
        while session == self do
            set_alarm()
            local event = table.remove(backlog, 1) or pack(os.pullEventRaw())
            slice = millis()
            if session ~= self then return end
            if event[1] == "terminate" and loud then
                self.finish()
                error("Terminated", 0)
            elseif event[1] == "nexus_reload" then
                self.finish()
                return "reload"
            end
            local ok, ours = pcall(mine, event)
            if not ok then lost("a fault of this program: " .. tostring(ours)) end
            if not ours and event[1] ~= "nexus_breath" and event[1] ~= "terminate" then hand_out(event) end
            ok, ours = pcall(run_due)
            if not ok then lost("a fault of this program: " .. tostring(ours)) end
        end
    end

    return self
end

local function fresh_copy()
    local ok, chunk = pcall(loadfile, "/nexus.lua", nil, own)
    if not ok then ok, chunk = pcall(loadfile, "/nexus.lua", own) end -- as it was once
    if not ok or not chunk then return M end
    local made, newer = pcall(chunk, "nexus")
    return made and type(newer) == "table" and newer or M
end

local successor -- the newer version that took over

--- Keeps the link for ever. Under `parallel`, beside a program; `loud` is the foreground: it shows on the screen what becomes
--- of the link, and Ctrl+T ends it.
function M.run(loud)
    loud = loud == true
    local look
    while is_running() do -- another tab has it; a program that waits for us must not end for that
        if loud then error("Nexus already runs on this computer", 0) end
        look = look or os.startTimer(10)
        local name, id = os.pullEventRaw()
        if name == "timer" and id == look then look = nil end
    end
    session = start_session(loud)
    if session.loop() == "reload" then
        local newer = fresh_copy()
        successor = newer ~= M and newer or nil
        return newer.run(loud)
    end
end

--- Ends the link, for a program whose `parallel.waitForAny` came back.
function M.stop()
    if session then session.finish() end
    if successor then successor.stop() end
end

local function beside(program, ...)
    local here = "/" .. (shell.getRunningProgram() or "nexus.lua")
    local arguments = pack(...)
    local function theirs()
        if program then shell.run(program, unpack(arguments, 1, arguments.n)) end
    end
    if multishell and shell.openTab then
        if not is_running() then multishell.setTitle(shell.openTab(here), "Nexus") end
        theirs()
    else
        parallel.waitForAny(M.run, function()
            theirs()
            local began
            repeat -- Ctrl+T ends a shell, too; `exit` is what leaves this one, or that it cannot even start
                began = os.clock()
            until shell.run("shell") or os.clock() == began
        end)
        M.stop()
    end
end

local USAGE = [[
nexus                   link in the foreground
bg nexus                in a tab of its own
nexus beside [program]  beside it, then a shell
Settings: nexus.address nexus.token nexus.world]]

-- `require` gives the name that it was told; the shell gives what was typed behind `nexus`.
local function is_required(name)
    local program = shell and shell.getRunningProgram() or ""
    return name:find("nexus$") or fs.getName(program):gsub("%.lua$", "") ~= "nexus"
end

local how = ...
if how == nil then
    if not http then error("Nexus needs http, which is turned off on this server (http.enabled)", 0) end
    address()
    M.run(true)
elseif how == "beside" then
    beside(select(2, ...))
elseif is_required(how) then
    return M
else
    print(USAGE)
end
