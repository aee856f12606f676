#!/usr/bin/env python3
"""An MCP server over HTTP, old era, that misbehaves in one chosen way.

    web.py MODE [key=value…]            web.py --help lists the modes

Prints `ready http://127.0.0.1:PORT/mcp` once it listens. `record=FILE` gets a line of JSON per request: method, path,
headers, and the method of the message in it. Standard library only.
"""

import base64
import hashlib
import http.server
import json
import os
import sys
import threading
import time
import urllib.parse

from plain import takes, text, tool

MODES = {}
CHUNK = b"x" * 65_536


def mode(kind):
    """The class `EndlessBody` is the mode `endless-body`."""
    MODES["".join("-" + letter.lower() if letter.isupper() else letter for letter in kind.__name__).lstrip("-")] = kind
    return kind


@mode
class Good(http.server.BaseHTTPRequestHandler):
    """behaves: sessions, JSON answers, no stream of notifications"""

    protocol_version = "HTTP/1.1"
    options, sessions, writing = {}, set(), threading.Lock()

    def log_message(self, *_):
        pass

    def record(self, message):
        if path := self.options.get("record"):
            line = json.dumps({"method": self.command, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()},
                               "said": message.get("method"), "id": message.get("id")})
            with self.writing, open(path, "a") as file:
                file.write(line + "\n")

    def body(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(raw) if raw else {}

    def reply(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def answer(self, request, result, **headers):
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode(), **headers)

    def stream(self):
        """Opens a stream of events that has no length."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, message, **fields):
        lines = "".join(f"{name}: {value}\n" for name, value in fields.items())
        self.wfile.write(f"{lines}data: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()

    def do_GET(self):
        self.record({})
        self.reply(405)

    def do_DELETE(self):
        self.record({})
        self.sessions.discard(self.headers.get("Mcp-Session-Id"))
        self.reply(200)

    def do_POST(self):
        message = self.body()
        self.record(message)
        self.heard(message)

    def heard(self, message):
        method, request = message.get("method"), message.get("id")
        if method == "initialize":
            session = os.urandom(8).hex()
            self.sessions.add(session)
            return self.answer(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                         "serverInfo": {"name": "hostile", "version": "1"}}, Mcp_Session_Id=session)
        if self.headers.get("Mcp-Session-Id") not in self.sessions:
            return self.reply(404 if self.headers.get("Mcp-Session-Id") else 400, b"no session", "text/plain")
        if request is None:
            return self.reply(202)
        if method == "tools/list":
            return self.answer(request, {"tools": [tool("echo", "Says it again.", takes(message="string"))]})
        if method == "tools/call":
            return self.called(request, message["params"])
        if method == "ping":
            return self.answer(request, {})
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": request, "error": {"code": -32601, "message": "no such method"}}).encode())

    def called(self, request, params):
        self.answer(request, text(params["arguments"]["message"]))


@mode
class Redirect(Good):
    """sends everything, or only calls (from=call), to=URL with code=307"""

    def heard(self, message):
        if self.options.get("from") == "call" and message.get("method") != "tools/call":
            return super().heard(message)
        self.reply(int(self.options.get("code", "307")), Location=self.options["to"])


@mode
class Loop(Good):
    """redirects to itself for ever"""

    def heard(self, message):
        self.reply(307, Location=self.path + "x")


@mode
class EndlessBody(Good):
    """a JSON answer to a call that does not end"""

    def called(self, request, params):
        self.send_response(200)
        self.send_header("Content-Type", self.options.get("type", "application/json"))
        self.end_headers()
        self.close_connection = True
        self.wfile.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request)
        sent = 0
        try:
            while sent < 1_000_000_000:
                sent += self.wfile.write(CHUNK)
        finally:
            self.record({"method": "sent", "id": sent})


@mode
class EndlessEvent(Good):
    """one event that does not end, in answer to a call"""

    def called(self, request, params):
        self.stream()
        self.wfile.write(b"data: ")
        sent = 0
        try:
            while sent < 1_000_000_000:
                sent += self.wfile.write(CHUNK)
        finally:
            self.record({"method": "sent", "id": sent})


@mode
class WrongType(Good):
    """answers calls with a page"""

    def called(self, request, params):
        self.reply(200, b"<html>It works!</html>", "text/html")


@mode
class Refuses(Good):
    """status=N to every call, with an endless body"""

    def called(self, request, params):
        self.send_response(int(self.options.get("status", "500")))
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.close_connection = True
        self.wfile.write("\x1b[31m\u202eInternal\nError ".encode())
        for _ in range(10_000):
            self.wfile.write(CHUNK)


@mode
class HangsUp(Good):
    """breaks off in the middle of the answer to a call"""

    def called(self, request, params):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc":')
        self.close_connection = True


@mode
class Forgets(Good):
    """forgets all sessions at every every=N-th call; the call is not done"""

    calls = 0

    def called(self, request, params):
        Forgets.calls += 1
        if Forgets.calls % int(self.options.get("every", "2")) == 0:
            self.sessions.clear()
            return self.reply(404, b"no session", "text/plain")
        super().called(request, params)


@mode
class SlowEvents(Good):
    """answers calls by a stream, byte by byte with each_ms=N, with comments, odd line ends and other people's answers in it"""

    def called(self, request, params):
        self.stream()
        answer = json.dumps({"jsonrpc": "2.0", "id": request, "result": text(params["arguments"]["message"])})
        other = json.dumps({"jsonrpc": "2.0", "id": request + 1000, "result": text("not yours")})
        half = len(answer) // 2
        # A JSON text may be broken where its white space is; the lines of an event are joined with a line end.
        cut = answer.index(" ", half) + 1
        stream = f": hello\r\n\r\nevent: message\r\ndata: {other}\r\n\r\nid: 7\rretry: 10\rdata: {answer[:cut]}\rdata: {answer[cut:]}\r\r"
        for byte in stream.encode():
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(float(self.options.get("each_ms", "1")) / 1000)


@mode
class SilentStream(Good):
    """opens a stream in answer to a call and says nothing on it but signs of life"""

    def called(self, request, params):
        self.stream()
        while True:
            self.wfile.write(b": alive\n\n")
            self.wfile.flush()
            time.sleep(0.1)


@mode
class WantsLogin(Good):
    """401 to everything"""

    def heard(self, message):
        self.reply(401, b"who are you?", "text/plain", WWW_Authenticate='Bearer error="invalid_token"')


@mode
class Sse(Good):
    """the HTTP+SSE of 2024-11-05; endpoint=URL names another place for the messages"""

    streams = {}

    def do_GET(self):
        self.record({})
        if self.path.split("?")[0] != "/mcp":
            return self.reply(404)
        session = os.urandom(8).hex()
        self.sessions.add(session)
        self.stream()
        self.streams[session] = self
        place = self.options.get("endpoint", f"/messages?session={session}")
        self.wfile.write(f"event: endpoint\ndata: {place}\n\n".encode())
        self.wfile.flush()
        while True:
            time.sleep(0.2)
            with self.writing:
                self.wfile.write(b": alive\n\n")
                self.wfile.flush()

    def heard(self, message):
        session = self.path.rpartition("session=")[2]
        if session not in self.streams:
            return self.reply(405)
        self.headers["Mcp-Session-Id"] = session
        self.reply(202)
        down = self.streams[session]
        # Answers, also with errors, go down the stream.
        self.answer = lambda request, result, **_: self.say(down, {"jsonrpc": "2.0", "id": request, "result": result})
        self.reply = lambda _, body=b"", *__, **___: self.say(down, json.loads(body)) if body.startswith(b"{") else None
        super().heard(message)
        del self.answer, self.reply

    def say(self, down, message):
        with self.writing:
            down.event(message, event="message")


@mode
class Guarded(Good):
    """wants a login, and is its own authorization server (tokens live seconds=3600, codes are for one verifier each)"""

    codes, tokens, refreshes = {}, {}, set()

    def home(self, path=""):
        return f"http://{self.headers['Host']}{path}"

    def do_GET(self):
        self.record({})
        path, _, query = self.path.partition("?")
        said = dict(urllib.parse.parse_qsl(query))
        if path == "/.well-known/oauth-protected-resource/mcp":
            return self.reply(200, json.dumps({"resource": self.home("/mcp"), "authorization_servers": [self.home()]}).encode())
        if path == "/.well-known/oauth-authorization-server":
            return self.reply(200, json.dumps({
                "issuer": self.home(), "authorization_endpoint": self.home("/authorize"), "token_endpoint": self.home("/token"),
                "registration_endpoint": self.home("/register"), "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True}).encode())
        if path == "/authorize":
            code = os.urandom(8).hex()
            self.codes[code] = said["code_challenge"]
            answer = urllib.parse.urlencode({"code": code, "state": said["state"], "iss": self.home()})
            return self.reply(302, Location=f"{said['redirect_uri']}?{answer}")
        self.reply(405)

    def do_POST(self):
        if self.path == "/register":
            self.record({})
            self.body()
            return self.reply(201, b'{"client_id": "nexus"}')
        if self.path == "/token":
            return self.give(dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))
        message = self.body()
        self.record(message)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.tokens.get(token, 0) < time.time():
            metadata = self.home("/.well-known/oauth-protected-resource/mcp")
            return self.reply(401, WWW_Authenticate=f'Bearer resource_metadata="{metadata}"')
        self.heard(message)

    def give(self, said):
        self.record({"method": said["grant_type"]})
        if said["grant_type"] == "refresh_token":
            good = said["refresh_token"] in self.refreshes
            self.refreshes.discard(said["refresh_token"])
        else:
            digest = base64.urlsafe_b64encode(hashlib.sha256(said["code_verifier"].encode()).digest()).decode().rstrip("=")
            good = self.codes.pop(said["code"], None) == digest
        if not good:
            return self.reply(400, b'{"error": "invalid_grant"}')
        seconds = float(self.options.get("seconds", "3600"))
        token, refresh = "secret-access-" + os.urandom(8).hex(), "secret-refresh-" + os.urandom(8).hex()
        self.tokens[token] = time.time() + seconds
        self.refreshes.add(refresh)
        self.reply(200, json.dumps({"access_token": token, "token_type": "bearer", "expires_in": seconds, "refresh_token": refresh}).encode())


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Whoever hung up had a reason."""


def main():
    chosen, *rest = sys.argv[1:] or ["good"]
    if chosen in ("-h", "--help"):
        print(__doc__, *(f"    {name:16} {kind.__doc__}" for name, kind in MODES.items()), sep="\n")
        return
    Good.options = {key: value for key, _, value in (word.partition("=") for word in rest)}
    listener = Listener(("127.0.0.1", int(Good.options.get("port", "0"))), MODES[chosen])
    print(f"ready http://127.0.0.1:{listener.server_address[1]}/mcp", flush=True)
    listener.serve_forever()


if __name__ == "__main__":
    main()
