#!/usr/bin/env python3
"""The conformance suite against a hub that has none of its fixtures: they are an upstream's.

    through.py SUITE_FOLDER REVISION ERA         beside tests/with_hub.py --conformance, which is the upstream

Starts a second hub whose only upstream is the first (`prefix: ""`, ERA is how it is spoken to), and runs the suite against
the second. The suite has no way to send a key, so a relay on loopback adds it to every request and changes nothing else.
"""

import asyncio
import hashlib
import json
import os
import pathlib
import secrets
import subprocess
import sys
import threading
import time
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
from with_hub import Hub  # noqa: E402

suite, revision, era = sys.argv[1:4]
KEY = secrets.token_urlsafe(32)


def front():
    """A hub of its own: its key may do everything, so that nothing is asked."""
    folder = pathlib.Path(os.environ["TMPDIR"]) / "front"
    home, data = folder / "home", folder / "data"
    (home / ".nexus").mkdir(parents=True)
    data.mkdir()
    upstream = {"url": os.environ["NEXUS_MCP"], "prefix": "", "era": era}
    (home / ".nexus/mcp.json").write_text(json.dumps({"servers": {"fixtures": upstream}}))
    (folder / "nexus.yaml").write_text(f"keys:\n  - {{ name: suite, sha256: {hashlib.sha256(KEY.encode()).hexdigest()}, level: yolo }}\n")
    env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR")}
    env |= {"HOME": str(home), "MCP_PORT": "0", "CC_LINK_HOST": "127.0.0.1", "CC_LINK_PORT": "0"}
    return Hub(os.environ["NEXUS_BIN"], str(folder), ["--config", str(folder / "nexus.yaml"), "--data", str(data)], env)


def wait_ready(url):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with urllib.request.urlopen(url.replace("/mcp", "/health"), timeout=5) as answer:
            state = json.load(answer)["upstreams"].get("fixtures", {})
        if state.get("state") == "ready":
            return
        time.sleep(0.1)
    raise RuntimeError(f"the upstream is {state}")


class Relay:
    """Adds the key to the head of every request, and passes bytes both ways."""

    def __init__(self, to):
        self.to = to
        self.loop = asyncio.new_event_loop()
        self.port = None
        up = threading.Event()
        threading.Thread(target=self.run, args=(up,), daemon=True).start()
        up.wait()

    def run(self, up):
        async def serve():
            server = await asyncio.start_server(self.connection, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            up.set()
            await server.serve_forever()
        self.loop.run_until_complete(serve())

    async def connection(self, reader, writer):
        try:
            there, out = await asyncio.open_connection(*self.to)
            await asyncio.gather(self.requests(reader, out), self.copy(there, writer))
        except OSError:
            pass
        finally:
            writer.close()

    @staticmethod
    async def requests(reader, out):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.strip().split("\r\n")
                lines = [line for line in lines if line.split(":")[0].lower() != "authorization"]
                sizes = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")]
                out.write("\r\n".join([first, *lines, f"Authorization: Bearer {KEY}"]).encode("latin-1") + b"\r\n\r\n")
                out.write(await reader.readexactly(sum(sizes)))
                await out.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            out.close()

    @staticmethod
    async def copy(reader, writer):
        # Whoever leaves, leaves both: a stream that the client no longer reads is to be seen as left by the hub.
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


def main():
    hub = front()
    code = 1
    try:
        url = hub.addresses()["mcp"]
        wait_ready(url)
        host, port = url.removeprefix("http://").removesuffix("/mcp").rsplit(":", 1)
        relay = Relay((host, int(port)))
        done = subprocess.run([sys.executable, str(TESTS / "conformance.py"), suite, revision], capture_output=True, text=True,
                              env={**os.environ, "NEXUS_MCP": f"http://127.0.0.1:{relay.port}/mcp"})
        for line in done.stdout.splitlines():
            for sign in ("ok   ", "FAIL ", "note: "):
                if line.startswith(sign):
                    line = f"{sign}through, upstream {era}: {line[len(sign):]}"
            print(line)
        print(done.stderr, end="", file=sys.stderr)
        code = done.returncode
    except (RuntimeError, OSError) as problem:
        print(f"FAIL {revision} through a hub: {problem!r}")
    finally:
        if problem := hub.stop():
            print(f"FAIL {revision} the hub in front stops: {problem}")
            code = 1
        if code:
            print("--- the hub in front said", *hub.said().splitlines()[-40:], "---", sep="\n")
    sys.exit(code)


main()
