"""The Python SDK's client: Streamable HTTP and stdio in both eras, HTTP+SSE in the old one."""

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile

import httpx2
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from errand import (BIN, DATA, FILE, KEY, MCP, SSE, TEXT, WRONG_KEY, finish, folder, judge_pending, judge_reading, judge_refusal,
                    judge_tools, promise)

OLD, NEW, SSE_ERA = ["2025-11-25"], ["2026-07-28"], ["2025-11-25", "2024-11-05"]


def wire(message):
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)


async def errand(name, client, versions, discovers=True):
    at_home = folder()
    with promise(f"{name}: connects and leaves"):
        async with asyncio.timeout(30), client:
            with promise(f"{name}: speaks {' or '.join(versions)}"):
                assert client.protocol_version in versions, f"speaks {client.protocol_version}"
            if discovers:
                with promise(f"{name}: gets instructions"):
                    assert client.instructions, "there are none"
            with promise(f"{name}: lists the tools"):
                judge_tools([wire(tool) for tool in (await client.list_tools()).tools])
            with promise(f"{name}: reads a folder"):
                judge_reading(wire(await client.call_tool("list_directory", {"path": at_home})), FILE)
            with promise(f"{name}: reads many files at once"):
                paths = [os.path.join(at_home, f"{number}.txt") for number in range(16)]
                for number, path in enumerate(paths):
                    with open(path, "w") as file:
                        file.write(f"{TEXT} {number}.")
                replies = await asyncio.gather(*(client.call_tool("read_file", {"path": path}) for path in paths))
                for number, reply in enumerate(replies):
                    judge_reading(wire(reply), f"{TEXT} {number}.")
            with promise(f"{name}: a write waits for a human"):
                target = os.path.join(at_home, "written")
                judge_pending(wire(await client.call_tool("write_file", {"path": target, "content": "no"})), target)
            with promise(f"{name}: a wrong argument is the model's to mend"):
                judge_refusal(wire(await client.call_tool("list_directory", {"path": 5})))
            with promise(f"{name}: an unknown tool is a protocol error"):
                try:
                    result = await client.call_tool("no_such_tool", {})
                except MCPError as error:
                    assert error.error.code == -32602, f"code {error.error.code}"
                else:
                    raise AssertionError(f"answered {wire(result)}")


class Person:
    """Someone a client can ask: answers with what `says` holds, and remembers what they were asked."""

    says = "no"

    def __init__(self):
        self.asked = []

    async def answer(self, _, params):
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": self.says})


async def asking(name, client, someone):
    """A write asks, and does what they say; after a yes to all nothing is asked any more."""
    path = os.path.join(folder(), "asked")

    async def write(says):
        someone.says, before = says, len(someone.asked)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        result = wire(await client.call_tool("write_file", {"path": path, "content": says}))
        return result.get("isError", False), os.path.exists(path), someone.asked[before:], result

    with promise(f"{name}: a write asks, runs after yes and is free afterwards"):
        async with asyncio.timeout(30), client:
            refused, written, asked, result = await write("no")
            assert refused and not written and len(asked) == 1, f"no: {asked} {result}"
            assert "write_file" in asked[0] and path in asked[0], f"the question: {asked}"
            for says in ("once", "session"):
                refused, written, asked, result = await write(says)
                assert not refused and written and len(asked) == 1, f"{says}: {asked} {result}"
            refused, written, asked, result = await write("no")
            assert not refused and written and not asked, f"free: {asked} {result}"
            await client.call_tool("revoke_writes", {})
            refused, written, asked, result = await write("no")
            assert refused and not written and len(asked) == 1, f"locked again: {asked} {result}"


async def shut_out(name, client):
    with promise(f"{name}: is shut out"):
        try:
            async with asyncio.timeout(15), client:
                tools = await client.list_tools()
        except TimeoutError:
            raise AssertionError("hangs instead") from None
        except Exception:
            return
        raise AssertionError(f"got in and sees {len(tools.tools)} tools")


def http(key, **how):
    return Client(streamable_http_client(MCP, http_client=httpx2.AsyncClient(headers=bearer(key), timeout=30)), **how)


def sse(key, **how):
    return Client(sse_client(SSE, headers=bearer(key)), mode="legacy", **how)


def stdio(data, **how):
    env = {name: os.environ[name] for name in ("HOME", "CC_LINK_HOST", "CC_LINK_PORT")}
    return Client(StdioServerParameters(command=BIN, args=["stdio", "--data", data], env=env), **how)


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def stdio_by_hand():
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": OLD[0], "capabilities": {}, "clientInfo": {"name": "by-hand", "version": "0"}}}
    with promise("stdio by hand: stdout is protocol only, and the end of stdin ends it"), tempfile.TemporaryDirectory() as data:
        done = subprocess.run([BIN, "stdio", "--data", data], input=json.dumps(hello) + "\n", capture_output=True, text=True, timeout=10)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        assert any(message.get("id") == 1 and "result" in message for message in said), f"said {said}"
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-500:]}"


async def main():
    await errand("Python, HTTP, old era", http(KEY, mode="legacy"), OLD)
    await errand("Python, HTTP, new era", http(KEY, mode="auto"), NEW)
    await errand("Python, HTTP, new era without asking", http(KEY, mode=NEW[0]), NEW, discovers=False)
    await errand("Python, SSE", sse(KEY), SSE_ERA)
    await errand("Python, stdio beside the daemon, old era", stdio(DATA, mode="legacy"), OLD)
    with tempfile.TemporaryDirectory() as own:
        await errand("Python, stdio alone, new era", stdio(own, mode="auto"), NEW)
        for what, make in (
            ("HTTP, old era", lambda **how: http(KEY, mode="legacy", **how)),
            ("HTTP, new era", lambda **how: http(KEY, mode="auto", **how)),
            ("SSE", lambda **how: sse(KEY, **how)),
            ("stdio beside the daemon, old era", lambda **how: stdio(DATA, mode="legacy", **how)),
            ("stdio alone, new era", lambda **how: stdio(own, mode="auto", **how)),
        ):
            someone = Person()
            await asking(f"Python, {what}", make(elicitation_callback=someone.answer), someone)
    for what, key in (("a wrong key", WRONG_KEY), ("no key", None)):
        await shut_out(f"Python, HTTP, old era, {what}", http(key, mode="legacy"))
        await shut_out(f"Python, HTTP, new era, {what}", http(key, mode="auto"))
        await shut_out(f"Python, SSE, {what}", sse(key))
    stdio_by_hand()
    finish()


asyncio.run(main())
