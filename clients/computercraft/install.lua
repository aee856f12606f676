-- Installs or updates the Nexus link on this computer:
--
--     wget run http://@ADDRESS@/install.lua [TOKEN]
--
-- It starts with the computer from then on. No program of yours is changed, whatever starts the computer now. CC runs a file
-- `startup`, or else `startup.lua`, and then every file of the folder `startup/` in the order of their names. So:
--
--     nothing, or a folder       our file goes into the folder: first where it gets a tab of its own and returns at once,
--                                last where it has to keep the shell beside itself
--     `startup.lua`              it might never end, so we have to be first: our file is called `startup`, which CC prefers,
--                                and runs `startup.lua` beside the link
--     `startup`                  becomes `startup.lua`, then as above
--     two of them                left alone: a line is shown that you can add yourself

local ADDRESS, TOKEN_NEEDED = "@ADDRESS@", "@TOKEN_NEEDED@" == "true"
local PROGRAM = "/nexus.lua"
local OURS = "-- Made by the Nexus installer"

local function read_all(path)
    local file = fs.open(path, "r")
    if not file then return "" end
    local text = file.readAll() or ""
    file.close()
    return text
end

-- Whole or not at all: written beside, looked at, and only then put in place.
local function write_whole(path, text)
    local fresh, aside = path .. ".new", path .. ".old"
    fs.delete(fresh)
    local ok, why = pcall(function()
        local file = assert(fs.open(fresh, "wb"))
        file.write(text)
        file.close()
        assert(fs.getSize(fresh) == #text, "only a part could be written")
        fs.delete(aside)
        if fs.exists(path) then fs.move(path, aside) end
        fs.move(fresh, path)
    end)
    if not ok then
        pcall(fs.delete, fresh)
        if fs.exists(aside) and not fs.exists(path) then fs.move(aside, path) end
        error("Nexus is not installed: " .. path .. " could not be written: " .. tostring(why), 0)
    end
    fs.delete(aside)
end

local function fetched(url)
    local answer, why = http.get(url)
    if not answer then error("Nexus is not installed: " .. url .. ": " .. tostring(why), 0) end
    local text = answer.readAll() or ""
    answer.close()
    local chunk, problem = (loadstring or load)(text, "=nexus.lua")
    if #text == 0 or not chunk then
        error("Nexus is not installed: what came from " .. url .. " is not the program: " .. tostring(problem or "nothing"), 0)
    end
    return text
end

local function is_ours(path)
    return fs.exists(path) and not fs.isDir(path) and read_all(path):sub(1, #OURS) == OURS
end

-- Returns what to say about it, and the files to delete in order to undo it.
local function add_to_startup()
    local tabs = multishell ~= nil
    local file, lua_file, folder = "/startup", "/startup.lua", "/startup/"
    if is_ours(file) then
        return "It starts with the computer, by " .. file .. ".", file
    end
    local is_file = fs.exists(file) and not fs.isDir(file)
    if is_file and fs.exists(lua_file) or fs.isDir(file) and fs.exists(lua_file) and not is_ours(folder .. "00_nexus.lua")
        and not is_ours(folder .. "90_nexus.lua") then
        return "You start the computer in a way of your own: add\n  shell.run(\"/nexus.lua beside\")\nas the first line there."
    end
    if is_file then
        fs.move(file, lua_file)
        print("Your program /startup is called /startup.lua now.")
    end
    if fs.exists(lua_file) and not fs.isDir(file) then
        write_whole(file, OURS .. ": it runs /startup.lua beside the link. Delete this file to undo.\n"
            .. 'shell.run("/nexus.lua beside /startup.lua")\n')
        return "It starts with the computer, by /startup, which runs your /startup.lua, too.", file
    end
    fs.makeDir(file)
    local path = folder .. (tabs and "00_nexus.lua" or "90_nexus.lua")
    write_whole(path, OURS .. ". Delete this file to undo.\n" .. 'shell.run("/nexus.lua beside")\n')
    return "It starts with the computer, by " .. path .. ".", path
end

local token = ...
local works, problem = pcall(http.websocketAsync, "") -- no address: nothing is opened, but it throws where that is forbidden
if not works and tostring(problem):find("disabled") then
    error("Nexus is not installed: websockets are turned off on this server (http.websocket_enabled)", 0)
end
local text = fetched("http://" .. ADDRESS .. "/nexus.lua")
if TOKEN_NEEDED and not token and (settings.get("nexus.token") or "") == "" then
    write("Token: ")
    token = read("*")
    if token == "" then error("Nexus is not installed: it needs the token (CC_LINK_TOKEN of the hub)", 0) end
end
local update = fs.exists(PROGRAM)
write_whole(PROGRAM, text)
local address = settings.get("nexus.address")
if type(address) ~= "string" or not address:find("://") then -- a whole address (wss://…) was set by hand: it stays
    address = ADDRESS
    settings.set("nexus.address", address)
end
if token then settings.set("nexus.token", token) end
settings.save(".settings")
local how, made = add_to_startup()

print((update and "Nexus is updated: " or "Nexus is installed: ") .. PROGRAM .. ", linked to " .. address .. ".")
if address ~= ADDRESS then print("That address was set by hand and is kept. Else: set nexus.address " .. ADDRESS) end
print(how)
print("To undo: delete " .. PROGRAM .. (made and " " .. made or "") .. ", then reboot.")

local running = type(_G.nexus_link) == "table" and math.abs(os.clock() - (_G.nexus_link.beat or -100)) < 20
if running then
    os.queueEvent("nexus_reload")
    print("The link that runs takes the new version now.")
else
    shell.run(PROGRAM .. " beside")
end
