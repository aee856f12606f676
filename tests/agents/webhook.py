"""A webhook target whose agent knows nothing of Nexus but the Standard Webhooks library from PyPI.

    webhook.py                   beside tests/with_hub.py, with the Python of `standardwebhooks`

The agent verifies what is posted to it with the library, and signs what it says with the library. A hub of its own has it
for a target; the operator's command line sends, answers and cancels. A line per promise, as the scripts of tests/interop.
"""

import base64
import datetime
import http.server
import json
import os
import pathlib
import queue
import secrets
import subprocess
import sys
import threading
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


def start(port):
    folder = pathlib.Path(os.environ["TMPDIR"]) / "hooked"
    (folder / "data").mkdir(parents=True)
    (folder / "secret").write_text(SECRET + "\n")
    hook = f"{{ url: 'http://127.0.0.1:{port}/tasks', secret_file: secret }}"
    (folder / "nexus.yaml").write_text(f"agents: {{ targets: {{ 'project:hook': {{ webhook: {hook} }} }} }}\n")
    env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "HOME")}
    env |= {"MCP_PORT": "0", "CC_LINK_PORT": "0", "MCP_API_KEY": secrets.token_urlsafe(32)}
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


receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
hub, places, env = start(receiver.server_port)
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
finally:
    problem = hub.stop()
with promise("the hub ends when asked"):
    assert not problem, f"{problem}: {hub.said()[-1500:]}"
finish()
