-- A stand-in for a computer of CC:Tweaked, in plain Lua 5.1: the APIs that a program there sees, with the behaviour that CC
-- documents. Time, sockets and the queue of events are kept by computer.mjs, which runs this and speaks with it in lines.
--
--     lua5.1 computer.lua SCENARIO MILLISECONDS SPEED
--
-- SCENARIO is a Lua file that returns { id, label, kind, files, settings, run or boot, … }. A line to us is the time and one
-- event; a line from us is a wish, and `wait` when there is nothing to do until the next event.

local scenario = dofile(arg[1])
local base, speed, cpu = tonumber(arg[2]), tonumber(arg[3]), os.clock()
local first_ms = base
local unpack = unpack
local kind = scenario.kind or "advanced" -- basic, advanced, turtle, pocket, command
local has_tabs = kind == "advanced" or kind == "turtle"

local function now() return base + (os.clock() - cpu) * 1000 * speed end
local function pack(...) return { n = select("#", ...), ... } end
local function escape(text)
    return "=" .. text:gsub("[^%w_./:%-]", function(c) return ("%%%02X"):format(c:byte()) end)
end
local function unescape(word)
    return (word:sub(2):gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end
local function tell(...)
    io.stdout:write(table.concat({ ... }, " "), "\n")
    io.stdout:flush()
end

local G = {} -- the computer's _G
local procs, current_proc = {}, nil

for _, name in ipairs({ "assert", "error", "getfenv", "getmetatable", "ipairs", "loadstring", "next", "pairs", "rawequal",
    "rawget", "rawset", "select", "setfenv", "setmetatable", "tonumber", "type", "unpack", "string", "math" }) do
    G[name] = _G[name]
end
if scenario.lua51 == false then G.getfenv, G.setfenv, G.loadstring = nil, nil, nil end -- as `disable_lua51_features` does
G._G = G
G._HOST = "ComputerCraft 1.113.1 (stand-in in Lua 5.1)"
G.table = setmetatable({ unpack = unpack, pack = pack }, { __index = table })

function G.tostring(...) -- no value is not nil: that is what an unset label gives
    if select("#", ...) == 0 then error("bad argument #1 (value expected)", 2) end
    return tostring((...))
end

-- Coroutines. CC ends what runs for 7 s without a yield by an error, and the whole computer if that does not help. For
-- that every coroutine here has a hook; one that a program sets comes on top of it.

local began, warned = math.huge, false -- the event that is being handled: since when; whether its 7 s were over
local owner = setmetatable({}, { __mode = "k" }) -- whose `pcall` a coroutine of ours is
local hooks = setmetatable({}, { __mode = "k" }) -- what programs have set

local function watchdog()
    local ran = now() - began
    if ran < 7000 then return end
    if not warned then tell("overrun", math.floor(ran)) end
    warned = true
    if ran > 8500 then
        tell("error", 0, escape("Too long without yielding"))
        tell("exit", "killed")
        os.exit(0)
    end
    error("Too long without yielding", 0)
end

local function arm(thread, hook, count)
    hooks[thread] = hook and { hook, count } or nil
    debug.sethook(thread, function(...)
        if hook then hook(...) end
        watchdog()
    end, "", count or 10000)
    return thread
end

local coroutines = setmetatable({}, { __index = coroutine })
G.coroutine, G.debug = coroutines, setmetatable({}, { __index = debug })
function coroutines.create(body) return arm(coroutine.create(body)) end
function coroutines.wrap(body)
    local thread = coroutines.create(body)
    return function(...)
        local result = pack(coroutine.resume(thread, ...))
        if not result[1] then error(result[2], 0) end
        return unpack(result, 2, result.n)
    end
end
function coroutines.running()
    local thread = coroutine.running()
    while owner[thread] do thread = owner[thread] end
    return thread
end
function G.debug.sethook(thread, hook, mask, count)
    if type(thread) ~= "thread" then thread, hook, count = coroutine.running(), thread, mask end
    arm(thread, hook, count)
end
function G.debug.gethook(thread) return unpack(hooks[thread or coroutine.running()] or {}) end

-- CC's pcall lets yields through, Lua 5.1's does not. This one runs in a coroutine, but as nobody is to notice.
function G.pcall(body, ...)
    local me = coroutine.running()
    local thread = arm(coroutine.create(function(...) return body(...) end), unpack(hooks[me] or {}))
    owner[thread] = me
    local function step(ok, ...)
        if not ok then return false, ... end
        if coroutine.status(thread) == "dead" then return true, ... end
        return step(coroutine.resume(thread, coroutine.yield(...)))
    end
    return step(coroutine.resume(thread, ...))
end

-- As CC's shell runs a program: in a coroutine of its own, for the trace of an error.
local function try(body, ...)
    local thread = coroutines.create(body)
    local result = pack(coroutine.resume(thread, ...))
    while result[1] and coroutine.status(thread) ~= "dead" do
        result = pack(coroutine.resume(thread, coroutine.yield(unpack(result, 2, result.n))))
    end
    if not result[1] then G.printError(result[2]) end
    return result[1]
end

function G.load(chunk, name, _, env)
    if type(chunk) == "function" then
        local parts = {}
        for part in chunk do parts[#parts + 1] = part end
        chunk = table.concat(parts)
    end
    local compiled, why = loadstring(chunk, name)
    if compiled then setfenv(compiled, env or G) end
    return compiled, why
end

-- os

local os_api, next_id, payloads = {}, 0, {}
local label = scenario.label
local function fresh_id()
    next_id = next_id + 1
    return next_id
end

function os_api.version() return "CraftOS 1.8" end
function os_api.getComputerID() return scenario.id or 0 end
os_api.computerID = os_api.getComputerID
function os_api.getComputerLabel() if label then return label end end
function os_api.setComputerLabel(text) label = text end
function os_api.epoch(where) return math.floor(where == "utc" and now() or os_api.clock() * 72000) end
function os_api.clock() return math.floor((now() - first_ms) / 50) * 0.05 end
function os_api.time() return 12 end
function os_api.day() return 1 end
function os_api.date() return "date" end
function os_api.startTimer(seconds)
    local id = fresh_id()
    tell("timer", id, math.ceil(math.max(seconds, 0.05) * 20) / 20)
    return id
end
function os_api.cancelTimer(id) tell("cancel", id) end
function os_api.queueEvent(...)
    local id = fresh_id()
    payloads[id] = pack(...)
    tell("queue", id)
end
function os_api.pullEventRaw(filter) return coroutine.yield(filter) end
function os_api.pullEvent(filter)
    local event = pack(coroutine.yield(filter))
    if event[1] == "terminate" then error("Terminated", 0) end
    return unpack(event, 1, event.n)
end
function os_api.reboot()
    tell("exit", "reboot")
    os.exit(0)
end
function os_api.shutdown()
    tell("exit", "shutdown")
    os.exit(0)
end
function os_api.sleep(seconds)
    local id = os_api.startTimer(seconds or 0)
    repeat local _, which = os_api.pullEvent("timer") until which == id
end
G.os, G.sleep = os_api, os_api.sleep

-- fs: in memory, with a read-only rom and a full disk

local files, folders = {}, { [""] = true, rom = true, ["rom/programs"] = true }
local capacity = scenario.capacity or 1000000

local function norm(path)
    local parts = {}
    for part in path:gsub("\\", "/"):gmatch("[^/]+") do
        if part == ".." then table.remove(parts)
        elseif part ~= "." then parts[#parts + 1] = part end
    end
    return table.concat(parts, "/")
end
local function parent(path) return path:match("^(.*)/[^/]*$") or "" end
local function read_only(path) return path == "rom" or path:sub(1, 4) == "rom/" end
local function used()
    local sum = 0
    for _, file in pairs(files) do sum = sum + #file.data end
    return sum
end

local fs = {}
function fs.combine(first, ...)
    local path = first
    for _, part in ipairs({ ... }) do path = path .. "/" .. part end
    return norm(path)
end
function fs.getDir(path)
    path = norm(path)
    return path == "" and ".." or parent(path)
end
function fs.getName(path)
    path = norm(path)
    return path == "" and "root" or path:match("[^/]*$")
end
function fs.exists(path) path = norm(path) return files[path] ~= nil or folders[path] == true end
function fs.isDir(path) return folders[norm(path)] == true end
function fs.isReadOnly(path) return read_only(norm(path)) end
function fs.getFreeSpace(path)
    if read_only(norm(path)) then return 0 end
    return capacity - used()
end
function fs.getCapacity() return capacity end
function fs.getDrive(path) return read_only(norm(path)) and "rom" or "hdd" end
function fs.getSize(path)
    path = norm(path)
    if folders[path] then return 0 end
    if not files[path] then error("/" .. path .. ": No such file", 2) end
    return #files[path].data
end
function fs.list(path)
    path = norm(path)
    if not folders[path] then error("/" .. path .. ": Not a directory", 2) end
    local names = {}
    local function look(all)
        for full in pairs(all) do
            if full ~= "" and parent(full) == path then names[#names + 1] = full:match("[^/]*$") end
        end
    end
    look(files)
    look(folders)
    table.sort(names)
    return names
end
function fs.makeDir(path)
    path = norm(path)
    if read_only(path) then error("/" .. path .. ": Access denied", 2) end
    if files[path] then error("/" .. path .. ": File exists", 2) end
    while path ~= "" do
        if files[path] then error("/" .. path .. ": File exists", 2) end
        folders[path] = true
        path = parent(path)
    end
end
function fs.delete(path)
    path = norm(path)
    if path == "" or read_only(path) then error("/" .. path .. ": Access denied", 2) end
    files[path] = nil
    if folders[path] then
        for _, name in ipairs(fs.list(path)) do fs.delete(path .. "/" .. name) end
        folders[path] = nil
    end
end
function fs.copy(from, to)
    from, to = norm(from), norm(to)
    if not fs.exists(from) then error("/" .. from .. ": No such file", 2) end
    if fs.exists(to) then error("/" .. to .. ": File exists", 2) end
    if read_only(to) then error("/" .. to .. ": Access denied", 2) end
    if folders[from] then
        fs.makeDir(to)
        for _, name in ipairs(fs.list(from)) do fs.copy(from .. "/" .. name, to .. "/" .. name) end
    else
        if parent(to) ~= "" then fs.makeDir(parent(to)) end
        files[to] = { data = files[from].data, modified = files[from].modified }
    end
end
function fs.move(from, to)
    if read_only(norm(from)) then error("/" .. norm(from) .. ": Access denied", 2) end
    if scenario.move_fails and norm(to):find(scenario.move_fails) and scenario.move_fails ~= "" then
        scenario.move_fails = ""
        error("/" .. norm(to) .. ": Access denied", 2)
    end
    local room = capacity
    capacity = math.huge
    fs.copy(from, to)
    capacity = room
    fs.delete(from)
end
function fs.attributes(path)
    path = norm(path)
    if not fs.exists(path) then error("/" .. path .. ": No such file", 2) end
    local at = files[path] and files[path].modified or math.floor(first_ms)
    return { size = fs.getSize(path), isDir = fs.isDir(path), isReadOnly = read_only(path), created = at, modified = at,
        modification = at }
end
function fs.open(path, mode)
    path = norm(path)
    if folders[path] then return nil, "/" .. path .. ": Not a file" end
    local closed, at = false, 1
    local function open() if closed then error("attempt to use a closed file", 3) end end
    local handle = {}
    function handle.close()
        open()
        closed = true
    end
    function handle.seek(whence, offset)
        open()
        local size = #files[path].data
        at = (whence == "set" and 0 or whence == "end" and size or at - 1) + (offset or 0) + 1
        return at - 1
    end
    if mode == "r" or mode == "rb" then
        local file = files[path]
        if not file then return nil, "/" .. path .. ": No such file" end
        function handle.read(count)
            open()
            if at > #file.data then return nil end
            local part = file.data:sub(at, at + (count or 1) - 1)
            at = at + #part
            if not count and mode == "rb" then return part:byte() end
            return part
        end
        function handle.readAll()
            open()
            local rest = file.data:sub(at)
            at = #file.data + 1
            return rest
        end
        function handle.readLine()
            open()
            if at > #file.data then return nil end
            local stop = file.data:find("\n", at, true) or #file.data + 1
            local line = file.data:sub(at, stop - 1)
            at = stop + 1
            return line
        end
        return handle
    end
    if read_only(path) then return nil, "/" .. path .. ": Access denied" end
    if parent(path) ~= "" then fs.makeDir(parent(path)) end
    if mode:sub(1, 1) == "w" or not files[path] then files[path] = { data = "" } end
    files[path].modified = math.floor(now())
    at = #files[path].data + 1
    function handle.write(text)
        open()
        if type(text) == "number" and mode:find("b") then text = string.char(text) end
        text = tostring(text)
        if used() + #text > capacity then error("Out of space", 2) end
        local data = files[path].data
        files[path].data = data:sub(1, at - 1) .. text .. data:sub(at + #text)
        at = at + #text
    end
    function handle.writeLine(text) handle.write(text .. "\n") end
    function handle.flush() open() end
    return handle
end
G.fs = fs

function G.loadfile(path, mode, env)
    local file, why = fs.open(path, "r")
    if not file then return nil, why end
    local text = file.readAll()
    file.close()
    return G.load(text, "@/" .. norm(path), mode, env)
end
function G.dofile(path) return assert(G.loadfile(path, nil, G))() end

for path, data in pairs(scenario.files or {}) do
    path = norm(path)
    if parent(path) ~= "" then fs.makeDir(parent(path)) end
    files[path] = { data = data, modified = math.floor(first_ms) }
end

-- settings

local settings, values = {}, {}
function settings.get(name, default) if values[name] == nil then return default end return values[name] end
function settings.set(name, value) values[name] = value end
function settings.unset(name) values[name] = nil end
function settings.save(path)
    local file = fs.open(path or ".settings", "w")
    for name, value in pairs(values) do
        file.write(("[%q]=%s\n"):format(name, type(value) == "string" and ("%q"):format(value) or tostring(value)))
    end
    file.close()
    return true
end
for line in (files[".settings"] and files[".settings"].data or ""):gmatch("[^\n]+") do
    local name, value = line:match('^%["(.-)"%]=(.*)$')
    values[name] = loadstring("return " .. value)()
end
for name, value in pairs(scenario.settings or {}) do values[name] = value end
G.settings = settings

-- term: what is written comes out line by line

G.colors = { white = 1, orange = 2, lime = 32, red = 16384, black = 32768 }
G.colours = G.colors
local METHODS = { "write", "blit", "clear", "clearLine", "getCursorPos", "setCursorPos", "getCursorBlink", "setCursorBlink",
    "getSize", "scroll", "isColor", "isColour", "getTextColor", "getTextColour", "setTextColor", "setTextColour",
    "getBackgroundColor", "getBackgroundColour", "setBackgroundColor", "setBackgroundColour", "getPaletteColor",
    "getPaletteColour", "setPaletteColor", "setPaletteColour" }

local function window(number)
    local x, y, row, colour = 1, 1, "", 1
    local self = { flush = function()
        if row ~= "" then tell("screen", number, escape(row)) end
        row = ""
    end }
    for _, name in ipairs(METHODS) do self[name] = function() end end
    function self.write(text)
        row = row .. tostring(text)
        x = x + #tostring(text)
    end
    self.blit = self.write
    function self.getCursorPos() return x, y end
    function self.setCursorPos(to_x, to_y)
        if to_y ~= y then self.flush() end
        x, y = to_x, to_y
    end
    function self.scroll() self.flush() end
    function self.getSize() return 51, 19 end
    function self.isColour() return kind ~= "basic" end
    self.isColor = self.isColour
    function self.getTextColour() return colour end
    function self.setTextColour(to) colour = to end
    self.getTextColor, self.setTextColor = self.getTextColour, self.setTextColour
    return self
end

local target = window(0)
local term = {}
for _, name in ipairs(METHODS) do term[name] = function(...) return target[name](...) end end
function term.current() return target end
function term.native() return target end
function term.redirect(to)
    for _, name in ipairs(METHODS) do
        if type(to[name]) ~= "function" then error("Redirect object is missing method " .. name .. ".", 2) end
    end
    local before = target
    target = to
    return before
end
G.term = term

function G.write(text)
    text = tostring(text)
    local lines = 0
    for part, line_end in text:gmatch("([^\n]*)(\n?)") do
        if part ~= "" then term.write(part) end
        if line_end ~= "" then
            lines = lines + 1
            local _, y = term.getCursorPos()
            local _, height = term.getSize()
            if y < height then term.setCursorPos(1, y + 1) else
                term.setCursorPos(1, height)
                term.scroll(1)
            end
        end
    end
    return lines
end
function G.print(...)
    local words = pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    return G.write(table.concat(words, "\t") .. "\n")
end
G.printError = G.print
function G.read()
    local _, line = os_api.pullEvent("typed")
    return line
end

-- textutils, JSON only, with the traps that CC documents

local textutils = { json_null = setmetatable({}, { __tostring = function() return "null" end }), empty_json_array = {} }
local function json_string(text)
    return '"' .. text:gsub('[%c"\\\127-\255]', function(c)
        return c == '"' and '\\"' or c == "\\" and "\\\\" or c == "\n" and "\\n" or ("\\u%04X"):format(c:byte())
    end) .. '"'
end
function textutils.serialiseJSON(value)
    local sort = type(value)
    if value == textutils.json_null then return "null" end
    if value == textutils.empty_json_array then return "[]" end
    if sort == "string" then return json_string(value) end
    if sort == "number" or sort == "boolean" then return tostring(value) end
    if sort ~= "table" then error("Cannot serialize type " .. sort, 0) end
    local parts = {}
    if #value > 0 then
        for i = 1, #value do parts[i] = textutils.serialiseJSON(value[i]) end
        return "[" .. table.concat(parts, ",") .. "]"
    end
    for key, item in pairs(value) do
        parts[#parts + 1] = json_string(tostring(key)) .. ":" .. textutils.serialiseJSON(item)
    end
    return "{" .. table.concat(parts, ",") .. "}"
end
textutils.serializeJSON = textutils.serialiseJSON
G.textutils = textutils

-- http

local sockets, requests, http = {}, {}, {}
function http.websocketAsync(url)
    if scenario.websockets == false then error("Websocket connections are disabled", 0) end
    if not url:find("^wss?://.") then
        os_api.queueEvent("websocket_failure", url, "URL malformed")
        return false, "URL malformed"
    end
    local open = 0
    for _ in pairs(sockets) do open = open + 1 end
    if open >= 4 then
        os_api.queueEvent("websocket_failure", url, "Too many websockets already open")
        return false, "Too many websockets already open"
    end
    local id = fresh_id()
    sockets[id] = { url = url }
    tell("open", id, escape(url))
    return true
end
local function socket_handle(id)
    local closed = false
    return {
        send = function(text)
            if closed or not sockets[id] then error("attempt to use a closed file", 2) end
            if #text > 131072 then error("Message is too large", 2) end
            tell("send", id, escape(text))
        end,
        close = function()
            if closed then return end
            closed = true
            sockets[id] = nil
            tell("close", id)
        end,
    }
end
function http.request(url)
    local id = fresh_id()
    requests[id] = url
    tell("get", id, escape(url))
    return true
end
function http.get(url)
    http.request(url)
    while true do
        local name, from, answer, failed = os_api.pullEvent()
        if name == "http_success" and from == url then return answer end
        if name == "http_failure" and from == url then return nil, answer, failed end
    end
end
if scenario.http ~= false then G.http = http end

-- parallel

local parallel = {}
local function together(enough, ...)
    local threads, filters, left = {}, {}, select("#", ...)
    for i, body in ipairs({ ... }) do threads[i] = coroutines.create(body) end
    local event, alive = { n = 0 }, left
    while true do
        for i = 1, left do
            local thread = threads[i]
            if thread and (filters[i] == nil or filters[i] == event[1] or event[1] == "terminate") then
                local ok, wants = coroutine.resume(thread, unpack(event, 1, event.n))
                if not ok then error(wants, 0) end
                filters[i] = wants
                if coroutine.status(thread) == "dead" then
                    threads[i], alive = nil, alive - 1
                    if alive <= enough(left) then return i end
                end
            end
        end
        event = pack(os_api.pullEventRaw())
    end
end
function parallel.waitForAny(...) return together(function(count) return count - 1 end, ...) end
function parallel.waitForAll(...) together(function() return 0 end, ...) end
G.parallel = parallel

-- What is around the computer

local around = {
    left = { types = { "energy_cell", "inventory" }, methods = {
        getEnergy = function() return 12345 end,
        echo = function(...) return ... end,
        fail = function() error("the cell leaks", 0) end,
        wait = function() while true do os_api.pullEvent("never") end end,
        describe = function() return { fine = true, list = { 1, 2 }, empty = {}, call = print } end,
    } },
    ["monitor_3"] = { types = { "monitor" }, methods = { getTextScale = function() return 1 end } },
}
local channels = {} -- of the wireless modem, if there is one
if scenario.modem then
    around.top = { types = { "modem" }, methods = {
        isWireless = function() return true end,
        isOpen = function(channel) return channels[channel] == true end,
        open = function(channel) channels[channel] = true end,
        close = function(channel) channels[channel] = nil end,
    } }
end
local peripheral = {}
function peripheral.getNames()
    local names = {}
    for name in pairs(around) do names[#names + 1] = name end
    return names
end
function peripheral.isPresent(name) return around[name] ~= nil end
function peripheral.getType(name) if around[name] then return unpack(around[name].types) end end
function peripheral.getMethods(name)
    if not around[name] then return nil end
    local names = {}
    for method in pairs(around[name].methods) do names[#names + 1] = method end
    return names
end
function peripheral.call(name, method, ...) return around[name].methods[method](...) end
G.peripheral = peripheral

local redstone, levels = {}, { input = { back = 7 }, output = {}, bundledInput = { left = 3 }, bundledOutput = {} }
function redstone.getSides() return { "top", "bottom", "left", "right", "front", "back" } end
function redstone.getAnalogInput(side) return levels.input[side] or 0 end
function redstone.getAnalogOutput(side) return levels.output[side] or 0 end
function redstone.setAnalogOutput(side, level) levels.output[side] = level end
function redstone.getBundledInput(side) return levels.bundledInput[side] or 0 end
function redstone.getBundledOutput(side) return levels.bundledOutput[side] or 0 end
function redstone.setBundledOutput(side, level) levels.bundledOutput[side] = level end
G.redstone, G.rs = redstone, redstone

-- A small world for turtles: a stone in the way, coal in the first slot, and a compass that nobody is told of.

local spot, way = scenario.at or { x = 100, y = 64, z = -20 }, 1
local STEP = { [0] = { 0, 0, -1 }, { 1, 0, 0 }, { 0, 0, 1 }, { -1, 0, 0 } }
if kind == "turtle" then
    local turtle, fuel, selected = {}, scenario.fuel or 100, 1
    local slots = { { name = "minecraft:coal", count = 3 }, { name = "minecraft:cobblestone", count = 60 } }
    local blocks = { [("%d,%d,%d"):format(spot.x + 3, spot.y, spot.z)] = "minecraft:stone" }
    local function act() os_api.sleep(0.4) end -- an action takes its time, and yields
    local function there(dx, dy, dz) return ("%d,%d,%d"):format(spot.x + dx, spot.y + dy, spot.z + dz) end
    local function ahead(sign) return STEP[way][1] * sign, 0, STEP[way][3] * sign end
    local function go(dx, dy, dz)
        if fuel == 0 then return false, "Out of fuel" end
        if blocks[there(dx, dy, dz)] then return false, "Movement obstructed" end
        spot = { x = spot.x + dx, y = spot.y + dy, z = spot.z + dz }
        fuel = fuel - 1
        act() -- who asked for it may be gone by now; it has happened all the same
        return true
    end
    function turtle.forward() return go(ahead(1)) end
    function turtle.back() return go(ahead(-1)) end
    function turtle.up() return go(0, 1, 0) end
    function turtle.down() return go(0, -1, 0) end
    function turtle.turnLeft() way = (way + 3) % 4 act() return true end
    function turtle.turnRight() way = (way + 1) % 4 act() return true end
    for suffix, where in pairs({ [""] = function() return ahead(1) end, Up = function() return 0, 1, 0 end,
        Down = function() return 0, -1, 0 end }) do
        turtle["dig" .. suffix] = function()
            act()
            local at = there(where())
            if not blocks[at] then return false, "Nothing to dig here" end
            slots[3] = { name = "minecraft:cobblestone", count = 1 }
            blocks[at] = nil
            return true
        end
        turtle["place" .. suffix] = function()
            act()
            local at, item = there(where()), slots[selected]
            if not item then return false, "No items to place" end
            if blocks[at] then return false, "Cannot place block here" end
            blocks[at] = item.name
            item.count = item.count - 1
            if item.count == 0 then slots[selected] = nil end
            return true
        end
        turtle["detect" .. suffix] = function() act() return blocks[there(where())] ~= nil end
        turtle["compare" .. suffix] = function() act() return false end
        turtle["attack" .. suffix] = function() act() return false, "Nothing to attack here" end
        turtle["suck" .. suffix] = function() act() return false, "No items to take" end
        turtle["drop" .. suffix] = function(count)
            act()
            local item = slots[selected]
            if not item then return false, "No items to drop" end
            item.count = item.count - (count or item.count)
            if item.count <= 0 then slots[selected] = nil end
            return true
        end
        turtle["inspect" .. suffix] = function()
            act()
            local block = blocks[there(where())]
            if block then return true, { name = block, state = {}, tags = { ["minecraft:mineable/pickaxe"] = true } } end
            return false, "No block to inspect"
        end
    end
    function turtle.select(slot)
        if slot < 1 or slot > 16 then error("Slot number " .. slot .. " out of range", 2) end
        selected = slot
        return true
    end
    function turtle.getSelectedSlot() return selected end
    function turtle.getItemCount(slot) return slots[slot or selected] and slots[slot or selected].count or 0 end
    function turtle.getItemDetail(slot) return slots[slot or selected] end
    function turtle.getFuelLevel() return fuel end
    function turtle.getFuelLimit() return 20000 end
    function turtle.refuel(count)
        act()
        local item = slots[selected]
        if not item or item.name ~= "minecraft:coal" then return false, "No items to combust" end
        count = math.min(count or item.count, item.count)
        fuel = fuel + 80 * count
        item.count = item.count - count
        if item.count == 0 then slots[selected] = nil end
        return true
    end
    function turtle.transferTo(slot, count)
        act()
        slots[slot] = slots[selected]
        slots[selected] = nil
        return count ~= 0
    end
    function turtle.equipLeft() act() return true end
    function turtle.equipRight() act() return false, "Not a valid upgrade" end
    G.turtle = turtle
end
if kind == "pocket" then G.pocket = {} end
if kind == "command" then G.commands = {} end

G.gps = {}
function G.gps.locate(patience)
    local opened = not channels[65534] -- who opened it closes it, whoever else listens there
    channels[65534] = true
    local heard = scenario.gps == true
    os_api.sleep(heard and 0.1 or scenario.gps == "silent" and patience or 0)
    heard = heard and channels[65534]
    if opened then channels[65534] = nil end
    if heard then return spot.x, spot.y, spot.z end
end

-- Programs: a shell to each, tabs where there are some

local builtin = {}
local start_proc

local function make_shell()
    local shell, running = {}, {}
    local function run_file(path, ...)
        local env = setmetatable({ shell = shell, multishell = has_tabs and G.the_multishell or nil }, { __index = G })
        if not G.getfenv then env._ENV = env end
        local loaded = {}
        env.package = { loaded = loaded, path = "?;?.lua;?/init.lua" }
        function env.require(name)
            if loaded[name] == nil then
                local at = name:gsub("%.", "/")
                if at:sub(1, 1) ~= "/" then at = fs.combine(fs.getDir(path), at) end
                local full = fs.exists(at .. ".lua") and at .. ".lua" or at
                local chunk, why = G.loadfile(full, nil, env)
                if not chunk then error("module '" .. name .. "' not found: " .. tostring(why), 2) end
                local result = chunk(name, full)
                loaded[name] = result == nil and true or result
            end
            return loaded[name]
        end
        local chunk, why = G.loadfile(path, nil, env)
        if not chunk then
            G.printError(why)
            return false
        end
        running[#running + 1] = path
        local ok = try(chunk, ...)
        running[#running] = nil
        return ok
    end
    function shell.dir() return "" end
    function shell.getRunningProgram() return running[#running] end
    function shell.resolveProgram(name)
        local path = norm(name)
        if files[path] then return path end
        if files[path .. ".lua"] then return path .. ".lua" end
    end
    function shell.run(...)
        local words = {}
        for word in table.concat({ ... }, " "):gmatch("%S+") do words[#words + 1] = word end
        local name = table.remove(words, 1)
        local path = name and shell.resolveProgram(name)
        if path then return run_file(path, unpack(words)) end
        if builtin[name] then return try(builtin[name], shell, unpack(words)) end
        G.printError("No such program")
        return false
    end
    if has_tabs then
        function shell.openTab(...)
            local words = { ... }
            return start_proc(function() make_shell().run(unpack(words)) end)
        end
    end
    return shell
end

G.the_multishell = { setTitle = function() end, getCurrent = function() return current_proc end,
    getCount = function() return #procs end }

function builtin.shell(shell)
    while true do
        local line = G.read()
        if line == "exit" then return end
        shell.run(line)
    end
end
function builtin.bg(shell, ...) shell.openTab(...) end
function builtin.reboot() os_api.reboot() end
function builtin.wget(shell, _, url, ...)
    local answer, why = http.get(url)
    if not answer then return G.printError(why) end
    local text = answer.readAll()
    local env = setmetatable({ shell = shell, multishell = has_tabs and G.the_multishell or nil }, { __index = G })
    local chunk, problem = G.load(text, "@" .. url, "t", env)
    if not chunk then return G.printError(problem) end
    try(chunk, ...)
end

local function boot()
    local shell = make_shell()
    local starts = { shell.resolveProgram("/startup") }
    if fs.isDir("startup") then
        for _, name in ipairs(fs.list("startup")) do
            if not fs.isDir("startup/" .. name) then starts[#starts + 1] = "/startup/" .. name end
        end
    end
    for _, path in ipairs(starts) do shell.run("/" .. norm(path)) end
    builtin.shell(shell)
end

-- The computer: every event goes to all tabs, what a person does to the first

local PERSONAL = { typed = true, key = true, char = true, terminate = true }
local fresh = {}

function start_proc(body)
    local number = #procs + 1
    procs[number] = { thread = coroutines.create(body), terminal = window(number), window = nil }
    procs[number].window = procs[number].terminal
    fresh[#fresh + 1] = number
    return number
end

local function resume(number, event)
    local proc = procs[number]
    local outer, outer_proc = target, current_proc
    target, current_proc = proc.terminal, number
    local ok, wants = coroutine.resume(proc.thread, unpack(event, 1, event.n))
    proc.terminal, target, current_proc = target, outer, outer_proc
    proc.filter = wants
    proc.window.flush()
    if coroutine.status(proc.thread) == "dead" then
        proc.over = true
        if not ok then tell("error", number, escape(tostring(wants))) end
        tell("ended", number)
        if number == 1 then
            tell("exit", ok and "done" or "failed")
            os.exit(0)
        end
    end
end

local function dump()
    for path, file in pairs(files) do tell("file", escape("/" .. path), escape(file.data)) end
    for path in pairs(folders) do tell("folder", escape("/" .. path)) end
    tell("dumped")
end

-- The next event, after whatever only concerns the stand-in.
local function next_event()
    while true do
        tell("wait")
        local line = io.read("*l")
        if not line then os.exit(0) end
        local words = {}
        for word in line:gmatch("%S+") do words[#words + 1] = word end
        base, cpu = tonumber(words[1]), os.clock()
        local what, id = words[2], tonumber(words[3])
        if what == "timer" then return pack("timer", id)
        elseif what == "queued" then
            local event = payloads[id]
            payloads[id] = nil
            return event
        elseif what == "opened" then
            if sockets[id] then return pack("websocket_success", sockets[id].url, socket_handle(id)) end
        elseif what == "failed" then
            local url = sockets[id].url
            sockets[id] = nil
            return pack("websocket_failure", url, unescape(words[4]))
        elseif what == "message" then
            if sockets[id] then
                return pack("websocket_message", sockets[id].url, unescape(words[4]), words[5] == "1")
            end
        elseif what == "closed" then
            if sockets[id] then
                local url = sockets[id].url
                sockets[id] = nil
                local code = tonumber(words[5])
                return pack("websocket_closed", url, words[4] ~= "=" and unescape(words[4]) or nil, code)
            end
        elseif what == "got" then
            local text, at = unescape(words[5]), requests[id]
            return pack("http_success", at, { readAll = function() return text end, close = function() end,
                getResponseCode = function() return tonumber(words[4]) end })
        elseif what == "missed" then return pack("http_failure", requests[id], unescape(words[4]))
        elseif what == "label" then label = words[3] and unescape(words[3]) or nil
        elseif what == "dump" then dump()
        elseif what == "event" then
            local event = { n = #words - 2 }
            for i = 3, #words do event[i - 2] = unescape(words[i]) end
            return event
        end
    end
end

start_proc(scenario.boot and boot or function() make_shell().run("/main.lua") end)
local function during(work)
    began, warned = now(), false
    work()
    if now() - began > 7000 and not warned then tell("overrun", math.floor(now() - began)) end
    began = math.huge
end
local function start_fresh()
    while fresh[1] do resume(table.remove(fresh, 1), { n = 0 }) end
end
while true do
    during(start_fresh)
    local event = next_event()
    during(function()
        for number = 1, #procs do
            local proc = procs[number]
            if not proc.over and (proc.filter == nil or proc.filter == event[1] or event[1] == "terminate")
                and (number == 1 or not PERSONAL[event[1]]) then
                resume(number, event)
            end
        end
    end)
end
