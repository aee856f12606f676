"""The Telegram bot against a server that others have written: telegram-test-api from npm.

    real.py FOLDER               a folder of tests/setup.sh; beside tests/with_hub.py

That server does not hold requests open, gives an update once and never again, and knows no errors: all of this is looked at
in crates/nexus/tests/it/agents/telegram.rs, against a server of our own. Here is what both understand in the same way.
A hub of its own has the bot; a user talks to it, the operator's command line sends. A line per promise, as the scripts of
tests/interop.
"""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import time
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "interop")]
from errand import BIN, CACHE, finish, promise  # noqa: E402
from with_hub import Hub  # noqa: E402

MODULE = os.path.join(CACHE, sys.argv[1], "node_modules/telegram-test-api")
TOKEN = "123456:" + secrets.token_hex(16)
USER, STRANGER = 4242, 666
PATIENCE = 30
SERVER = """
const TelegramServer = require(process.argv[1]);
new TelegramServer({ port: Number(process.argv[2]), host: '127.0.0.1', storage: 'RAM', storeTimeout: 600 }).start();
"""


def until(what, so):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if found := so():
                return found
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE} s")


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


def ask(method, **body):
    request = urllib.request.Request(f"{api}/{method}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["result"]


def says(user, text, **more):
    """As the library for clients of that server does it."""
    person = {"id": user, "first_name": "Somebody", "is_bot": False}
    chat = {"id": user, "type": "private", "first_name": "Somebody"}
    ask("sendMessage", botToken=TOKEN, date=int(time.time() * 1000), text=text, chat=chat, **{"from": person}, **more)


def presses(message, label):
    data = next(button["callback_data"] for button in message["message"]["reply_markup"]["inline_keyboard"][0]
                if label in button["text"])
    ask("sendCallback", botToken=TOKEN, data=data, **{"from": {"id": USER, "first_name": "Somebody"}},
        message={"message_id": message["messageId"], "chat": {"id": USER, "type": "private"}, "text": "…"})


def said_by_bot():
    return [item for item in ask("getUpdatesHistory", token=TOKEN) if "chat_id" in item.get("message", {})]


def posted(words, chat=USER):
    """The bot's message with these words."""
    def look():
        return next((item for item in said_by_bot() if item["message"]["chat_id"] == chat
                     and words in item["message"]["text"]), None)
    return until(f"a message with {words!r}", look)


def start():
    folder = pathlib.Path(os.environ["TMPDIR"]) / "telegram"
    (folder / "data").mkdir(parents=True)
    (folder / "bot").write_text(f"token={TOKEN}\nchat_id={USER}\n")
    (folder / "nexus.yaml").write_text(f"""
agents:
  telegram: {{ api_url: "{api}", credentials_file: bot, allowed_users: [{USER}] }}
  targets: {{ desk: {{ telegram: {{}} }}, homelab: {{ worker: {{}} }} }}
approval: {{ mode: operator }}
""")
    env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "HOME")}
    env |= {"MCP_PORT": "0", "CC_LINK_HOST": "127.0.0.1", "CC_LINK_PORT": "0", "MCP_API_KEY": secrets.token_urlsafe(32)}
    places = ["--config", str(folder / "nexus.yaml"), "--data", str(folder / "data")]
    return Hub(BIN, str(folder), places, env), places, env, folder


def nexus(*words, code=0):
    done = subprocess.run([BIN, *words, *places], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, f"nexus {' '.join(words)}: {done.returncode} {done.stderr[-500:]}"
    return done.stdout


def task(id):
    return json.loads(nexus("tasks", "show", id, "--json"))


def contents(id):
    return [update["content"] for update in task(id)["updates"]]


port = free_port()
api = f"http://127.0.0.1:{port}"
server = subprocess.Popen(["node", "-e", SERVER, MODULE, str(port)], stdin=subprocess.DEVNULL)
hub = None
try:
    until("the server", lambda: ask("getUpdatesHistory", token=TOKEN) == [])
    hub, places, env, folder = start()
    hub.addresses()

    with promise("a task is posted, and what is said of it comes back"):
        assert nexus("send", "desk", "change the_tape *tonight*").strip() == "t1"
        message = posted("change the_tape *tonight*")
        assert message["message"]["text"].startswith("#t1 for desk"), message
        says(USER, "doing it", reply_to_message={"message_id": message["messageId"], "date": 0, "text": ""})
        until("the update", lambda: "doing it" in contents("t1"))
        assert task("t1")["status"] == "in_progress"
        says(USER, "/done t1 tape 7 is in")
        until("the end", lambda: task("t1")["status"] == "complete")
        assert task("t1")["result"] == "tape 7 is in"

    with promise("commands are answered"):
        says(USER, "/status")
        posted("0 waiting, 0 in progress")
        says(USER, "/send homelab look around")
        posted("for homelab, next in the queue")
        assert task("t2")["sender"] == f"telegram:{USER}", task("t2")
        says(USER, "/cancel t2")
        posted("#t2 is cancelled")
        assert task("t2")["status"] == "cancelled"

    with promise("a stranger gets no answer and changes nothing"):
        says(STRANGER, "/send homelab open the door")
        says(USER, "/tasks")
        posted("#t2 homelab, cancelled: look around")
        assert {item["message"]["chat_id"] for item in said_by_bot()} == {USER}, said_by_bot()
        nexus("tasks", "show", "t3", code=1)

    with promise("a call that waits is allowed by a button"):
        write = ["call", "send_message", json.dumps({"target": "homelab", "message": "by the button"})]
        nexus(*write, code=1)
        presses(posted("by the button"), "once")
        posted("allowed once by Somebody (4242)")
        assert "t3" in nexus(*write)

    with promise("the token is in no log and no record"):
        rows = nexus("audit", "export")
        assert "/bot…/getUpdates" in rows and TOKEN.split(":")[1] not in rows + hub.said(), rows[-1500:]
finally:
    problem = hub.stop() if hub else "it was not started"
    server.terminate()
    server.wait(PATIENCE)
with promise("the hub ends when asked"):
    assert not problem, f"{problem}: {hub.said()[-1500:] if hub else ''}"
finish()
