"""Claude Code, whole, with a scripted model, as the resident agent: run by the worker, and coming by itself.

    resident.py CLAUDE_CODE_FOLDER       beside tests/with_hub.py --config tests/agents/nexus.yaml; the folder is of tests/setup.sh

The operator's side is the hub's command line, set up as docs/agents.md says. Claude Code has a home of its own.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
from errand import BIN, CACHE, DATA, MCP, finish, promise, running  # noqa: E402
from scripted_llm import ScriptedModel  # noqa: E402

CLAUDE = os.path.join(CACHE, sys.argv[1], "node_modules/.bin/claude")
HOME = pathlib.Path(os.environ["TMPDIR"]) / "claude-home"
CONFIG = str(HERE / "nexus.yaml")
PATIENCE = 90


def nexus(*words):
    """What the hub's command line prints."""
    done = subprocess.run([BIN, *words, "--data", DATA, "--config", CONFIG], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"nexus {' '.join(words)}: {done.stderr[-1000:]}"
    return done.stdout.strip()


def send(target, words):
    said = nexus("send", target, words)
    found = re.search(r"\bt\d+\b", said)
    assert found, said
    return found[0]


def becomes(task, status, log=None):
    until = time.monotonic() + PATIENCE
    while True:
        found = json.loads(nexus("tasks", "show", task, "--json"))
        if found["status"] == status:
            return found
        ended = found["status"] in ("complete", "error", "cancelled", "dead")
        if ended or time.monotonic() > until:
            raise AssertionError(f"{task} is to become {status}: {json.dumps(found)[:1500]} {log.read_text()[-1000:] if log else ''}")
        time.sleep(0.1)


def claude_env(model):
    HOME.mkdir(exist_ok=True)
    return {"HOME": str(HOME), "PATH": f"{os.path.dirname(BIN)}:{os.environ['PATH']}", "LANG": "C.UTF-8", "TMPDIR": str(HOME), "TERM": "dumb",
            "SHELL": "/bin/bash", "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-scripted", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false"}


def by_the_worker():
    key = nexus("key", "new", "homelab-agent", "--target", "homelab")
    ask = ("Bash", {"command": 'nexus agent say "I look at the disks" && nexus agent ask "Which disk?"', "description": "Asks the operator"})
    with ScriptedModel(ask) as model:
        log = HOME / "worker.log"
        env = claude_env(model) | {"NEXUS_AGENT_KEY": key}
        worker = [BIN, "agent", "--target", "homelab", "--url", MCP.removesuffix("/mcp"), "--", CLAUDE, "-p", "--allowedTools", "Bash(nexus agent:*)"]
        with running(worker, env, HOME, log):
            with promise("Claude Code, run by the worker: does the task, says what it does, asks and goes on with the answer"):
                task = send("homelab", "How full are the disks?")
                asked = becomes(task, "input_required", log)
                assert "Which disk?" in json.dumps(asked), asked
                nexus("tasks", "answer", task, "the second disk")
                done = becomes(task, "complete", log)
                assert done["exit_code"] == 0 and "the second disk" in done["result"], done
                assert "I look at the disks" in nexus("tasks", "show", task), nexus("tasks", "show", task)
            with promise("Claude Code, run by the worker: is given the words of the task, and not the worker's key"):
                assert any("How full are the disks?" in words for words in model.heard), model.heard
                assert not any(key in words for words in model.heard), "the key was told to the model"
                assert key not in log.read_text(), "the key is in the log"


def lives(pid):
    """One that has ended may wait long for somebody to ask how."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def with_its_shell():
    """What Claude Code's shell runs is a session of its own, and ends with the task all the same."""
    key = nexus("key", "new", "homelab-agent-2", "--target", "homelab")
    number = HOME / "shell.pid"
    shell = ("Bash", {"command": f"echo $$ > {number}; nexus agent say working; sleep 1000", "description": "Works for long"})
    worker = [BIN, "agent", "--target", "homelab", "--url", MCP.removesuffix("/mcp"), "--", CLAUDE, "-p", "--allowedTools", "Bash"]
    for words, end in (("a task that is cancelled", lambda task, _: nexus("tasks", "cancel", task)),
                       ("the task of a killed worker", lambda _, process: process.kill())):
        number.unlink(missing_ok=True)
        with ScriptedModel(shell) as model, promise(f"Claude Code, run by the worker: {words} ends with what its shell is running"):
            log, env = HOME / "worker-2.log", claude_env(model) | {"NEXUS_AGENT_KEY": key}
            with running(worker, env, HOME, log) as process:
                task = send("homelab", f"Work for long: {words}")
                until = time.monotonic() + PATIENCE
                while "working" not in nexus("tasks", "show", task):
                    assert time.monotonic() < until, nexus("tasks", "show", task) + log.read_text()[-1000:]
                    time.sleep(0.1)
                shell_of_it = number.read_text().strip()
                assert lives(shell_of_it), "its shell is not there"
                end(task, process)
                while lives(shell_of_it):
                    assert time.monotonic() < until, "its shell is still there"
                    time.sleep(0.1)


def by_itself():
    """As the text for its CLAUDE.md says."""
    key = nexus("key", "new", "felt-agent", "--target", "nexus:felt")
    calls = [("claim_task", {"wait_seconds": 30}), ("post_update", {"content": "[New message received: paint it]"}),
             ("ask_operator", {"question": "Which colour?", "wait_seconds": 30}), ("peek_tasks", {}),
             ("complete_task", {"result": "[Responding to: paint the fence] it is green"})]
    with ScriptedModel(*calls) as model:
        env, log = claude_env(model), HOME / "claude.log"
        add = [CLAUDE, "mcp", "add", "--transport", "http", "nexus", MCP, "--header", f"Authorization: Bearer {key}"]
        subprocess.run(add, env=env, cwd=HOME, check=True, capture_output=True, timeout=60)
        allowed = ",".join(f"mcp__nexus__{tool}" for tool, _ in calls)
        with promise("Claude Code, coming by itself: claims, says, asks, looks and finishes with the agent's tools"), \
                running([CLAUDE, "-p", "Serve the queue.", "--allowedTools", allowed], env, HOME, log):
            task = send("nexus:felt", "paint the fence")
            becomes(task, "input_required", log)
            nexus("tasks", "answer", task, "green")
            done = becomes(task, "complete", log)
            assert done["result"] == "[Responding to: paint the fence] it is green", done
            told = nexus("tasks", "show", task)
            assert "[New message received: paint it]" in told and "Which colour?" in told, told
            assert any('"green"' in answer for answer in model.answers), model.answers


HOME.mkdir()
by_the_worker()
with_its_shell()
by_itself()
finish()
