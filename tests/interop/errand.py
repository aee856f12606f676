"""What every client has to be able to do with the hub, for the scripts in Python. errand.mjs is the same in JavaScript.

A script prints a line per promise, `ok   …` or `FAIL …: why`, and exits 1 if one was broken; ./test counts the lines.
"""

import contextlib
import json
import os
import subprocess
import sys

BIN, MCP, SSE, KEY, DATA, CACHE = (
    os.environ[name] for name in ("NEXUS_BIN", "NEXUS_MCP", "NEXUS_SSE", "NEXUS_KEY", "NEXUS_DATA", "NEXUS_TEST_CACHE"))
WRONG_KEY = "x" * len(KEY)
FILE, TEXT = "smørrebrød list.txt", "rye, butter, herring"

with open(os.path.join(os.path.dirname(__file__), "tools.json")) as tools:
    EXPECTED_TOOLS = json.load(tools)

broken = 0


@contextlib.contextmanager
def promise(name):
    """The block keeps what the name says, or raises; the script goes on either way."""
    global broken
    try:
        yield
    except Exception as problem:
        broken += 1
        while isinstance(problem, BaseExceptionGroup) and problem.exceptions:
            problem = problem.exceptions[0]
        what = str(problem) if isinstance(problem, AssertionError) else f"{type(problem).__name__}: {problem}"
        print(f"FAIL {name}: {' '.join(what.split())[:2000]}", flush=True)
    else:
        print(f"ok   {name}", flush=True)


@contextlib.contextmanager
def running(command, env, cwd, log):
    """A program with its log, from now to the end of the block."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{os.path.basename(command[0])} did not end when it was asked to") from None


def finish():
    sys.exit(1 if broken else 0)


def folder():
    """A folder with one known file in it."""
    path = os.path.join(os.environ["TMPDIR"], "a folder")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, FILE), "w") as file:
        file.write(TEXT + "\n")
    return path


# The judges below take messages as they are on the wire: plain dictionaries with camelCase names.

def judge_tools(tools):
    found = {tool["name"]: tool for tool in tools}
    missing = EXPECTED_TOOLS.keys() - found.keys()
    assert not missing, f"missing {sorted(missing)} among {sorted(found)}"
    for name, tool in found.items():
        assert tool.get("title"), f"{name} has no title"
        assert tool.get("description"), f"{name} has no description"
        assert tool.get("inputSchema", {}).get("type") == "object", f"{name}: inputSchema is {tool.get('inputSchema')}"
        hints = tool.get("annotations") or {}
        assert isinstance(hints.get("readOnlyHint"), bool), f"{name}: annotations are {hints}"
        if name in EXPECTED_TOOLS:
            assert hints["readOnlyHint"] == (EXPECTED_TOOLS[name] == "read"), f"{name}: annotations are {hints}"


def text_of(result):
    return "".join(part.get("text", "") for part in result.get("content", []))


def judge_reading(result, expected):
    """The result, structured and as text, holds the expected text."""
    shown = json.dumps(result, ensure_ascii=False)[:1500]
    assert not result.get("isError"), f"isError: {shown}"
    structured = result.get("structuredContent")
    assert isinstance(structured, dict), f"no structuredContent: {shown}"
    assert expected in json.dumps(structured, ensure_ascii=False), f"no {expected!r} in structuredContent: {shown}"
    assert expected in text_of(result), f"no {expected!r} in the text: {shown}"


def judge_pending(result, path):
    """The write waits for a human, says so to programs and to models, and did not happen."""
    shown = json.dumps(result, ensure_ascii=False)[:1500]
    assert result.get("isError") is True, f"not an isError result: {shown}"
    structured = result.get("structuredContent") or {}
    assert structured.get("status") == "approval_required", f"structuredContent.status: {shown}"
    assert structured.get("action", {}).get("tool") == "write_file", f"structuredContent.action.tool: {shown}"
    assert "approval_required" in text_of(result), f"the text does not say it: {shown}"
    assert not os.path.exists(path), "the file was written"


def judge_refusal(result):
    shown = json.dumps(result, ensure_ascii=False)[:1500]
    assert result.get("isError") is True, f"not an isError result: {shown}"
    assert text_of(result), f"says nothing: {shown}"
