"""The record in a real server of the Loki API: qryn, on ClickHouse as a library. Everything arrives, once, also after an outage.

    real.py QRYN_FOLDER CHDB_FOLDER        each a folder of tests/setup.sh

qryn is not Loki: it keeps lines and labels and leaves structured metadata out, and it does not drop what comes twice. So
what is looked for here is every line, once; the fields beside them are for tests/it/loki.rs and its own server.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "interop"))
from errand import BIN, CACHE, finish, promise  # noqa: E402

QRYN, CHDB = (os.path.join(CACHE, folder) for folder in sys.argv[1:3])
HERE = os.path.dirname(os.path.abspath(__file__))
WORK = tempfile.mkdtemp(prefix="loki-")
PATIENCE = 60
PUSH = "/loki/api/v1/push"


def until(what, so, patience=PATIENCE):
    """What `so` gives once it gives something. A server that is not there yet gives nothing."""
    deadline, last = time.monotonic() + patience, None
    while time.monotonic() < deadline:
        try:
            if found := so():
                return found
        except (OSError, ValueError) as problem:
            last = problem
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {patience} s; {last!r}")


def start(name, command, **environment):
    log = open(os.path.join(WORK, f"{name}.log"), "ab")
    clean = {key: os.environ[key] for key in ("HOME", "TMPDIR", "PATH", "LANG")}
    return subprocess.Popen(command, env=clean | environment, cwd=WORK, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def said(name):
    with open(os.path.join(WORK, f"{name}.log"), errors="replace") as log:
        return log.read()


def stop(process, number=signal.SIGTERM):
    process.send_signal(number)
    return process.wait(PATIENCE)


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


class Qryn:
    def __init__(self):
        front = os.path.join(HERE, "clickhouse.py")
        self.engine = start("clickhouse", [os.path.join(CHDB, "bin/python"), front, os.path.join(WORK, "clickhouse")])
        listening = until("ClickHouse", lambda: re.search(r"^listening (\d+)$", said("clickhouse"), re.MULTILINE))
        self.engine_port, self.port = listening[1], free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.serve()

    def serve(self):
        self.server = start("qryn", ["node", os.path.join(QRYN, "node_modules/qryn/qryn_node.js")],
                            CLICKHOUSE_SERVER="127.0.0.1", CLICKHOUSE_PORT=self.engine_port, CLICKHOUSE_DB="qryn",
                            CLICKHOUSE_AUTH="default:", HOST="127.0.0.1", PORT=str(self.port))
        until("qryn", lambda: self.get("/ready") is not None)

    def get(self, path, **query):
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)

    def ask(self, query):
        """What LogQL finds in the last hour."""
        now = time.time_ns()
        return self.get("/loki/api/v1/query_range", query=query, start=now - 3600 * 10**9, end=now + 60 * 10**9, limit=5000)["data"]

    def lines(self, query):
        streams = self.ask(query)["result"]
        return sorted((int(at), line) for stream in streams for at, line in stream["values"])


class Hub:
    data = os.path.join(WORK, "data")

    def __init__(self, loki):
        self.process = start("hub", [BIN, "serve", "--data", self.data], LOKI_URL=loki, MCP_PORT="0",
                             CC_LINK_HOST="127.0.0.1", CC_LINK_PORT="0", MCP_API_KEY="k" * 40)
        pid = self.process.pid
        until("the hub", lambda: re.search(rf"^nexus ready .*pid={pid}$", said("hub"), re.MULTILINE))

    def call(self, tool, **arguments):
        done = subprocess.run([BIN, "call", tool, json.dumps(arguments), "--data", self.data], capture_output=True, text=True,
                              env={"MCP_API_KEY": "k" * 40, "HOME": os.environ["HOME"], "PATH": os.environ["PATH"]}, timeout=PATIENCE)
        assert done.returncode in (0, 1), done.stderr

    @classmethod
    def recorded(cls):
        """Every row but those of the pushes, as (nanoseconds, id, tool)."""
        with sqlite3.connect(f"file:{cls.data}/nexus.db?mode=ro", uri=True) as store:
            rows = [json.loads(body) for body, in store.execute("SELECT body FROM audit ORDER BY pos")]
        return [row for row in rows if not (row["event"] == "outbound" and f"{PUSH} " in row["detail"])]


def all_there(qryn, what):
    """Waits until the server shows as many rows as there are, then looks at each."""
    wanted = {row["id"]: row for row in Hub.recorded()}
    lines = until(what, lambda: len(found := qryn.lines('{job="mcp-audit"}')) >= len(wanted) and found)
    ids = [line.rsplit(" id=", 1)[1] for _, line in lines]
    assert sorted(ids) == sorted(wanted), f"{len(ids)} lines for {len(wanted)} rows, {len(set(ids))} of them different"
    for at, line in lines:
        row = wanted[line.rsplit(" id=", 1)[1]]
        assert line.startswith(row["event"]), (line, row)
        whole, _, part = row["at"].rstrip("Z").partition(".")
        seconds = int(time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) - time.timezone)
        assert at // 1000 == seconds * 10**6 + int(f"{part:0<6}"[:6]), (at, row["at"])
    return wanted


os.environ["TZ"] = "UTC"
time.tzset()
started = time.monotonic()
qryn = Qryn()
hub = Hub(qryn.url)

with promise("every row of the record is in the server, once, with its time"):
    for nth in range(20):
        hub.call("list_directory", path=f"/nowhere/{nth}")
    hub.call("get_env", name="PATH")
    assert stop(hub.process) == 0, said("hub")[-1500:]
    rows = all_there(qryn, "the rows of a hub that ended")
    assert any(row["event"] == "hub_stopped" for row in rows.values())

with promise("labels and LogQL find them"):
    labels = {frozenset(stream["stream"].items()) for stream in qryn.ask('{job="mcp-audit"}')["result"]}
    assert labels == {frozenset({"job": "mcp-audit", "env": "homelab"}.items())}, labels
    assert len(qryn.lines('{job="mcp-audit", env="homelab"} |= "call list_directory"')) == 20
    assert len(qryn.lines('{job="mcp-audit"} |~ "hub_(started|stopped)"')) == 2
    assert not qryn.lines('{job="other"}')

with promise("what was recorded while the server was down arrives when it is back"):
    stop(qryn.server, signal.SIGKILL)
    hub = Hub(qryn.url)
    for nth in range(30):
        hub.call("list_directory", path=f"/meanwhile/{nth}")
    until("the complaint", lambda: "does not get to Loki" in said("hub"))
    qryn.serve()
    until("the good news", lambda: "gets to Loki" in said("hub"))
    assert stop(hub.process) == 0, said("hub")[-1500:]
    all_there(qryn, "the rows of the outage")
    assert len(qryn.lines('{job="mcp-audit"} |= "/meanwhile/"')) == 30

stop(qryn.server, signal.SIGKILL)
stop(qryn.engine, signal.SIGKILL)
print(f"took {time.monotonic() - started:.0f} s")
finish()
