"""A webhook target whose agent knows nothing of Nexus but the Standard Webhooks library from PyPI.

    webhook.py                   beside tests/with_hub.py, with the Python of `standardwebhooks`

The agent verifies what is posted to it with the library, and signs what it says with the library. A hub of its own has it
for a target; the operator's command line sends, answers and cancels. A second target is the agent of docs/agents.md, taken
from there as it stands. A line per promise, as the scripts of tests/interop.
"""

import base64
import datetime
import http.server
import json
import os
import pathlib
import queue
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from standardwebhooks.webhooks import Webhook

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "interop")]
from errand import BIN, finish, promise  # noqa: E402
from with_hub import Hub  # noqa: E402

SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
LIBRARY = Webhook(SECRET)
PATIENCE = 30
messages = queue.Queue()


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes what the library believes, and nothing else."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            messages.put((self.headers["webhook-id"], LIBRARY.verify(body, dict(self.headers))))
            status = 200
        except Exception as problem:
            messages.put(("", {"type": f"{type(problem).__name__}: {problem}"}))
            status = 400
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def heard(kind):
    """The next message, which must be of this kind."""
    _, message = messages.get(timeout=PATIENCE)
    assert message["type"] == kind, f"not a {kind}: {message}"
    return message


class Between(http.server.BaseHTTPRequestHandler):
    """Stands before the hub for the agent of the docs, and loses the first try of all that it says."""

    tries = {}

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        name, kind = self.headers["webhook-id"], json.loads(body)["kind"]
        self.tries[name] = self.tries.get(name, 0) + 1
        if self.tries[name] == 1:
            # Busy, or gone without a word.
            return self.answer(503, b"{}") if kind == "progress" else None
        headers = {name: value for name, value in self.headers.items() if name.lower().startswith("webhook-")}
        with urllib.request.urlopen(urllib.request.Request(address + self.path, body, headers), timeout=PATIENCE) as heard:
            self.answer(heard.status, heard.read())

    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# What the agent of the docs runs for its tasks.
MAKE = r"""#!/bin/sh
case $(cat) in
    bytes) printf 'caf\351 \342\230\203\n'; echo 'and a word' >&2; exit 3 ;;
    *) echo $$ > "$TMPDIR/make.pid"; sleep 600; echo "not ended" ;;
esac
"""


def agent_of_the_docs(port, hub):
    """The program in docs/agents.md, with a `make` of ours."""
    text = (TESTS.parent / "docs" / "agents.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(programs) == 1, f"{len(programs)} programs in docs/agents.md"
    folder = pathlib.Path(os.environ["TMPDIR"]) / "docs"
    folder.mkdir()
    (folder / "agent.py").write_text(programs[0])
    (folder / "make").write_text(MAKE)
    (folder / "make").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "LANG": "C", "TMPDIR": os.environ["TMPDIR"],
                   "SECRET": SECRET, "HUB": f"http://127.0.0.1:{hub}", "PORT": str(port)}
    with open(folder / "log", "wb") as log:
        return subprocess.Popen([sys.executable, folder / "agent.py"], env=environment, stdout=log, stderr=log)


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


def start(port, docs_port):
    folder = pathlib.Path(os.environ["TMPDIR"]) / "hooked"
    (folder / "data").mkdir(parents=True)
    (folder / "secret").write_text(SECRET + "\n")
    hooks = [f"'project:{name}': {{ webhook: {{ url: 'http://127.0.0.1:{at}/tasks', secret_file: secret }} }}"
             for name, at in (("hook", port), ("docs", docs_port))]
    (folder / "nexus.yaml").write_text(f"agents: {{ targets: {{ {', '.join(hooks)} }} }}\n")
    env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "HOME")}
    env |= {"MCP_PORT": "0", "CC_LINK_HOST": "127.0.0.1", "CC_LINK_PORT": "0", "MCP_API_KEY": secrets.token_urlsafe(32)}
    places = ["--config", str(folder / "nexus.yaml"), "--data", str(folder / "data")]
    return Hub(BIN, str(folder), places, env), places, env


def nexus(*words):
    done = subprocess.run([BIN, *words, *places], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"nexus {' '.join(words)}: {done.stderr[-500:]}"
    return done.stdout


def post(message, name=None, library=LIBRARY, at=None):
    """What the hub answers to a message that the library has signed."""
    body, name = json.dumps(message), name or f"msg_{secrets.token_hex(8)}"
    at = at or datetime.datetime.now(datetime.timezone.utc)
    headers = {"content-type": "application/json", "webhook-id": name, "webhook-timestamp": str(int(at.timestamp())),
               "webhook-signature": library.sign(name, at, body)}
    request = urllib.request.Request(reply_to, body.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def task(id):
    return json.loads(nexus("tasks", "show", id, "--json"))


def until(what, so):
    """What `so` gives, once that is something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := so():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


def is_alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
between = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
threading.Thread(target=between.serve_forever, daemon=True).start()
docs_port = free_port()
hub, places, env = start(receiver.server_port, docs_port)
docs = agent_of_the_docs(docs_port, between.server_port)
try:
    address = hub.addresses()["mcp"].removesuffix("/mcp")

    with promise("the library believes a task that the hub posts"):
        assert nexus("send", "project:hook", "tidy up ☃\nand say so").strip() == "t1"
        message = heard("task")
        assert message["id"] == "t1" and message["content"] == "tidy up ☃\nand say so", message
        reply_to = address + message["reply_to"]

    with promise("the hub believes an update that the library signs, and takes it once"):
        said = {"task": "t1", "kind": "progress", "content": "half of it ☃"}
        status, first = post(said, name="msg_1")
        assert status == 200 and first["status"] == "in_progress", (status, first)
        assert post(said, name="msg_1") == (200, first)
        contents = [update["content"] for update in task("t1")["updates"]]
        assert contents.count("half of it ☃") == 1, contents

    with promise("a question of the agent gets the operator's answer, signed"):
        status, asked = post({"task": "t1", "kind": "question", "content": "which one?"})
        assert status == 200 and asked["status"] == "input_required", (status, asked)
        assert task("t1")["question"] == "which one?"
        nexus("tasks", "answer", "t1", "the second")
        assert heard("answer")["content"] == "the second"

    with promise("the agent completes the task"):
        status, done = post({"task": "t1", "kind": "complete", "content": "tidy", "exit_code": 0})
        assert status == 200 and done["status"] == "complete", (status, done)
        assert task("t1")["result"] == "tidy"

    with promise("the agent is told that a task is cancelled, and that it is to stop"):
        nexus("send", "project:hook", "something else")
        heard("task")
        nexus("tasks", "cancel", "t2", "--reason", "no longer")
        cancel = heard("cancel")
        assert cancel["id"] == "t2" and "no longer" in cancel["reason"], cancel
        status, late = post({"task": "t2", "kind": "complete", "content": "too late"})
        assert status == 200 and late["stop"] is True and late["status"] == "cancelled", (status, late)

    with promise("another secret, and another time, are refused"):
        other = Webhook("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode())
        assert post({"kind": "note", "content": "x"}, library=other)[0] == 401
        long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=10)
        assert post({"kind": "note", "content": "x"}, at=long_ago)[0] == 401
        assert post({"kind": "note", "content": "x"})[0] == 200

    with promise("the agent of the docs works, and says again what was not heard, once for the hub"):
        id = nexus("send", "project:docs", "bytes").strip()
        done = until("its end", lambda: (ended := task(id)).get("completed_at") and ended)
        assert (done["status"], done["exit_code"]) == ("error", 3), done
        assert "caf\ufffd ☃\nand a word" in done["reason"], done
        assert sorted(Between.tries.values()) == [2, 2], Between.tries
        kinds = [update["kind"] for update in done["updates"]]
        assert kinds == ["acknowledged", "progress", "error"], kinds

    with promise("the agent of the docs ends what is cancelled"):
        id = nexus("send", "project:docs", "take your time").strip()
        file = pathlib.Path(os.environ["TMPDIR"]) / "make.pid"
        pid = until("the work", lambda: file.exists() and file.read_text().strip())
        nexus("tasks", "cancel", id)
        until("the end of the work", lambda: not is_alive(pid))
        until("its last word", lambda: len(Between.tries) == 4)
        assert docs.poll() is None
finally:
    docs.kill()
    docs.wait()
    problem = hub.stop()
with promise("the hub ends when asked"):
    assert not problem, f"{problem}: {hub.said()[-1500:]}"
finish()
