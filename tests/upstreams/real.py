"""Servers that nobody here wrote, used through the hub by a real client of either era.

    real.py SERVERS_VERSION FASTMCP_FOLDER                       beside tests/with_hub.py, with the Python SDK

Writes their entries into the home folder's mcp.json while the hub runs, waits until all are ready, and drives them with the
Python SDK. A line per promise, as the scripts of tests/interop.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import httpx2
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
from errand import BIN, CACHE, DATA, KEY, MCP, finish, folder, promise, text_of  # noqa: E402

VERSION, FASTMCP = sys.argv[1:3]
HOME = pathlib.Path(os.environ["HOME"])
NODE = {name: f"{CACHE}/server-{name}-{VERSION}/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
        for name in ("everything", "filesystem", "memory")}
PYTHON, FAST = [sys.executable, str(HERE / "python_server.py")], [f"{CACHE}/{FASTMCP}/bin/python", str(HERE / "fastmcp_server.py")]


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


@contextlib.contextmanager
def started(command, port, **env):
    """A server over HTTP, from when it listens to the end of the block."""
    with open(os.path.join(os.environ["TMPDIR"], f"{port}.log"), "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env})
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{command} does not listen on {port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def states():
    done = subprocess.run([BIN, "mcp", "list", "--json", "--data", DATA], capture_output=True, text=True, timeout=20, cwd=os.environ["TMPDIR"])
    assert done.returncode == 0, f"nexus mcp list: exit {done.returncode}: {done.stderr[-500:]}"
    listed = json.loads(done.stdout)
    servers = listed["servers"] if isinstance(listed, dict) else listed
    return {server["name"]: server for server in servers}


def wait_ready(names):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        known = states()
        if all(known.get(name, {}).get("state") == "ready" for name in names):
            return known
        time.sleep(0.2)
    raise AssertionError(f"not ready within a minute: { {name: known.get(name) for name in names} }")


def configured(web):
    """Both shapes of the file, every transport, and both eras where a server has both."""
    memory = os.path.join(os.environ["TMPDIR"], "memory.jsonl")
    python = {"command": PYTHON[0], "args": [*PYTHON[1:], "stdio"]}
    entries = {
        "everything": {"command": "node", "args": [NODE["everything"], "stdio"]},
        "everything-web": {"type": "http", "url": web["everything"] + "/mcp"},
        "everything-sse": {"type": "sse", "url": web["sse"] + "/sse"},
        "filesystem": {"command": "node", "args": [NODE["filesystem"], folder()]},
        "memory": {"command": "node", "args": [NODE["memory"]], "env": {"MEMORY_FILE_PATH": memory}},
        "python": python,
        "python-old": {**python, "era": "legacy"},
        "python-web": {"url": web["python"] + "/mcp"},
        "fast": {"command": FAST[0], "args": [*FAST[1:], "stdio"]},
        "fast-web": {"url": web["fast"] + "/mcp"},
    }
    (HOME / ".nexus").mkdir(exist_ok=True)
    (HOME / ".nexus/mcp.json").write_text(json.dumps({"mcpServers": entries}))
    return list(entries)


class Person:
    """Says yes to the hub's questions, for the session, and tells the servers their name."""

    def __init__(self):
        self.asked = []

    async def answer(self, _, params):
        wanted = params.requested_schema["properties"]
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "session"} if "decision" in wanted else {"name": "Ada"})


def wire(message):
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)


class Errand:
    def __init__(self, era, client, someone):
        self.era, self.client, self.someone = era, client, someone

    def promise(self, words):
        return promise(f"{self.era}: {words}")

    async def call(self, tool, arguments=None, fails=False, **how):
        result = wire(await self.client.call_tool(tool, arguments or {}, **how))
        assert bool(result.get("isError")) == fails, f"{tool}: {json.dumps(result)[:1500]}"
        return result

    async def everything(self, name):
        prefix = f"mcp_{name.replace('-', '_')}_"
        with self.promise(f"{name}: text, numbers, structure, pictures and links come through"):
            assert "Echo: grüße" in text_of(await self.call(prefix + "echo", {"message": "grüße"}))
            assert "5" in text_of(await self.call(prefix + "get_sum", {"a": 2, "b": 3}))
            structured = (await self.call(prefix + "get_structured_content", {"location": "New York"}))["structuredContent"]
            assert structured["temperature"] == 33, structured
            kinds = [part["type"] for part in (await self.call(prefix + "get_tiny_image"))["content"]]
            assert "image" in kinds, kinds
            links = [part for part in (await self.call(prefix + "get_resource_links", {"count": 2}))["content"] if part["type"] == "resource_link"]
            assert len(links) == 2, links
            content = (await self.client.read_resource(links[0]["uri"])).contents[0]
            assert wire(content)["uri"] == links[0]["uri"], (content, links)
        with self.promise(f"{name}: progress comes through"):
            heard = []

            async def progress(done, total, _):
                heard.append((done, total))

            await self.call(prefix + "trigger_long_running_operation", {"duration": 1, "steps": 4}, progress_callback=progress)
            assert len(heard) >= 3 and heard[-1][1] == 4, heard
        with self.promise(f"{name}: prompts, resources, templates and completion are offered"):
            prompts = {prompt.name for prompt in (await self.client.list_prompts()).prompts}
            assert prefix + "args_prompt" in prompts, prompts
            prompt = await self.client.get_prompt(prefix + "args_prompt", {"city": "Aarhus"})
            assert "Aarhus" in json.dumps(wire(prompt), ensure_ascii=False), prompt
            scheme = f"mcp-{name}+demo"
            uris = {str(resource.uri) for resource in (await self.client.list_resources()).resources}
            assert f"{scheme}://resource/static/document/features.md" in uris, uris
            read = await self.client.read_resource(f"{scheme}://resource/static/document/features.md")
            assert read.contents[0].text, read
            templates = {template.uri_template for template in (await self.client.list_resource_templates()).resource_templates}
            assert f"{scheme}://resource/dynamic/text/{{resourceId}}" in templates, templates
            read = await self.client.read_resource(f"{scheme}://resource/dynamic/text/7")
            assert "7" in read.contents[0].text, read
            reference = types.PromptReference(type="ref/prompt", name=prefix + "completable_prompt")
            completed = await self.client.complete(reference, {"name": "department", "value": "E"})
            assert completed.completion.values, completed

    async def filesystem(self):
        with self.promise("filesystem: writes, reads, and keeps to its folder"):
            path = os.path.join(folder(), f"through {self.era}.txt")
            await self.call("mcp_filesystem_write_file", {"path": path, "content": "through the hub\n"})
            read = await self.call("mcp_filesystem_read_text_file", {"path": path})
            assert "through the hub" in text_of(read) and read.get("structuredContent"), read
            with open(path) as file:
                assert file.read() == "through the hub\n"
            assert "denied" in text_of(await self.call("mcp_filesystem_read_text_file", {"path": "/etc/passwd"}, fails=True))

    async def memory(self):
        with self.promise("memory: keeps what it is told"):
            entity = {"name": f"hub {self.era}", "entityType": "program", "observations": ["passes calls on"]}
            await self.call("mcp_memory_create_entities", {"entities": [entity]})
            graph = await self.call("mcp_memory_read_graph")
            assert entity["name"] in json.dumps(graph["structuredContent"]), graph

    async def python(self, name, can_ask):
        prefix = f"mcp_{name.replace('-', '_')}_"
        with self.promise(f"{name}: structure, errors, prompts and resources come through"):
            assert (await self.call(prefix + "add", {"a": 2, "b": 3}))["structuredContent"] == {"total": 5}
            # The Python SDK keeps the reason to itself.
            assert "fail" in text_of(await self.call(prefix + "fail", fails=True))
            read = await self.client.read_resource(f"mcp-{name}+notes://today")
            assert read.contents[0].text == "buy bread", read
            prompt = await self.client.get_prompt(prefix + "review", {"code": "1 + 1"})
            assert prompt.messages[0].content.text == "Please review: 1 + 1", prompt
        with self.promise(f"{name}: progress comes through"):
            heard = []

            async def progress(done, total, message):
                heard.append((done, total, message))

            assert "counted to 3" in text_of(await self.call(prefix + "count", {"steps": 3}, progress_callback=progress))
            assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")], heard
        with self.promise(f"{name}: a question of the server {'is put to the person' if can_ask else 'that cannot be put is an error, not a hang'}"):
            if can_ask:
                assert "hello Ada" in text_of(await self.call(prefix + "greet"))
                assert self.someone.asked[-1] == f"[MCP:{name}] Who are you?", self.someone.asked[-3:]
            else:
                async with asyncio.timeout(20):
                    result = wire(await self.client.call_tool(prefix + "greet", {}))
                assert "hello Ada" not in text_of(result), result

    async def run(self, names):
        with self.promise("every server's tools are listed, and say whose they are"):
            tools = {tool.name: tool for tool in (await self.client.list_tools()).tools}
            for name in names:
                of_server = [tool for known, tool in tools.items() if known.startswith(f"mcp_{name.replace('-', '_')}_")]
                assert of_server, f"none of {name} among {sorted(tools)}"
                said = f"[MCP:{name}]"
                assert any(tool.description.startswith(said) for tool in of_server), f"no description starts with {said}: {of_server[0].description}"
        with self.promise("a server is asked about once, under its name"):
            before = len(self.someone.asked)
            await self.call("mcp_memory_read_graph")
            await self.call("mcp_memory_read_graph")
            asked = self.someone.asked[before:]
            assert len(asked) == 1 and "memory" in asked[0], asked
        for name in ("everything", "everything-web", "everything-sse"):
            await self.everything(name)
        await self.filesystem()
        await self.memory()
        is_new = self.era == "new era"
        # A server of the old era asks while it works; a client of the new one cannot be asked then.
        await self.python("python", can_ask=True)
        await self.python("python-old", can_ask=not is_new)
        await self.python("python-web", can_ask=True)
        await self.python("fast", can_ask=False)
        await self.python("fast-web", can_ask=False)
        with self.promise("wrong arguments are the caller's to mend and reach no server"):
            result = await self.call("mcp_everything_get_sum", {"a": "two"}, fails=True)
            assert "/a" in text_of(result) or "a" in text_of(result), result
        with self.promise("a tool that no server has is a protocol error"):
            try:
                result = await self.client.call_tool("mcp_everything_no_such_tool", {})
            except MCPError as error:
                assert error.error.code == -32602, error
            else:
                raise AssertionError(wire(result))


async def main():
    ports = [free_port() for _ in range(4)]
    with contextlib.ExitStack() as stack:
        web = {}
        with promise("the servers over HTTP start"):
            web["everything"] = stack.enter_context(started(["node", NODE["everything"], "streamableHttp"], ports[0], PORT=str(ports[0])))
            web["sse"] = stack.enter_context(started(["node", NODE["everything"], "sse"], ports[1], PORT=str(ports[1])))
            web["python"] = stack.enter_context(started([*PYTHON, "http", str(ports[2])], ports[2]))
            web["fast"] = stack.enter_context(started([*FAST, "http", str(ports[3])], ports[3]))
        if len(web) < 4:
            return
        names = configured(web)
        with promise("every server of an edited mcp.json becomes ready while the hub runs"):
            known = wait_ready(names)
            for name, era in (("everything", "legacy"), ("python", "modern"), ("python-old", "legacy"), ("python-web", "modern"), ("fast", "modern")):
                assert known[name].get("era") == era, f"{name} is spoken to in {known[name]}"
        for era, mode in (("old era", "legacy"), ("new era", "auto")):
            someone = Person()
            headers = {"Authorization": f"Bearer {KEY}"}
            transport = streamable_http_client(MCP, http_client=httpx2.AsyncClient(headers=headers, timeout=60))
            with promise(f"{era}: connects and leaves"):
                async with asyncio.timeout(120), Client(transport, mode=mode, elicitation_callback=someone.answer) as client:
                    await Errand(era, client, someone).run(names)


asyncio.run(main())
finish()
