"""The Inspector's command line: list and call over HTTP in both eras, over HTTP+SSE and over stdio; its linter on the schemas."""

import json
import os
import subprocess
import sys

from errand import (BIN, CACHE, DATA, FILE, KEY, MCP, SSE, WRONG_KEY, finish, folder, judge_pending, judge_reading, judge_refusal,
                    judge_tools, promise)

INSPECTOR = ["node", os.path.join(CACHE, sys.argv[1], "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")]


def inspector(target, *arguments):
    return subprocess.run([*INSPECTOR, "--cli", *target, "--format", "json", "--stored-auth-only", *arguments],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def ask(target, *arguments):
    done = inspector(target, *arguments)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-1000:]}") from None
    return answer.get("result", answer)


def call(target, tool, arguments):
    return ask(target, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))


def at(url, transport, key, era="legacy"):
    key = ["--header", f"Authorization: Bearer {key}"] if key else []
    return [url, "--transport", transport, "--protocol-era", era, *key]


STDIO = ["--transport", "stdio", "--protocol-era"]
HERE = [BIN, "stdio", "--data", DATA]
at_home = folder()
target = os.path.join(at_home, "written")

for name, where in (
    ("Inspector, HTTP, old era", at(MCP, "http", KEY)),
    ("Inspector, HTTP, new era", at(MCP, "http", KEY, "modern")),
    ("Inspector, SSE", at(SSE, "sse", KEY)),
    ("Inspector, stdio, old era", [*STDIO, "legacy", *HERE]),
    ("Inspector, stdio, new era", [*STDIO, "modern", *HERE]),
):
    with promise(f"{name}: lists the tools"):
        judge_tools(ask(where, "--method", "tools/list")["tools"])
    with promise(f"{name}: reads a folder"):
        judge_reading(call(where, "list_directory", {"path": at_home}), FILE)

web = at(MCP, "http", KEY)
with promise("Inspector: finds no fault in the schemas"):
    strict = inspector(web, "--method", "tools/list", "--strict")
    assert strict.returncode == 0, f"exit {strict.returncode}: {strict.stderr[-1500:]}"
with promise("Inspector: a write waits for a human"):
    judge_pending(call(web, "write_file", {"path": target, "content": "no"}), target)
with promise("Inspector: a wrong argument is the model's to mend"):
    judge_refusal(call(web, "list_directory", {"path": 5}))
for what, key in (("a wrong key", WRONG_KEY), ("no key", None)):
    with promise(f"Inspector, {what}: is shut out"):
        refused = inspector(at(MCP, "http", key), "--method", "tools/list")
        assert refused.returncode != 0, f"got in: {refused.stdout[:500]}"
finish()
