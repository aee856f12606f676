"""A plain MCP server over stdio with a few tools: what server.py misbehaves from."""

import json
import os
import sys
import threading
import time

NEW, OLD = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"


def tool(name, description="", schema=None, **more):
    return {"name": name, "description": description, "inputSchema": schema or {"type": "object"}, **more}


def takes(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()},
            "required": list(properties), "additionalProperties": False}


def text(words):
    return {"content": [{"type": "text", "text": words}]}


class Refused(Exception):
    """Answered with a JSON-RPC error."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Server:
    """behaves"""

    def __init__(self, options):
        self.options = options
        self.is_new = options.get("era") == "new"
        self.writing = threading.Lock()
        self.asked = {}         # questions of ours: id -> request id of the call that waits
        self.starts = self.remember(f"start {os.getpid()}", "start")

    # --- what a test can see from outside

    def remember(self, line, kind):
        """Adds a line to the state file; how many of the kind there are now."""
        if not (path := self.options.get("state")):
            return 1
        with open(path, "a") as file:
            file.write(line + "\n")
        with open(path) as file:
            return sum(known.startswith(kind) for known in file)

    # --- the wire

    def write(self, raw):
        with self.writing:
            sys.stdout.buffer.write(raw)
            sys.stdout.buffer.flush()

    def send(self, message):
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def answer(self, request, result):
        if self.is_new:
            result = {"resultType": "complete", "_meta": {META + "serverInfo": self.info()}, **result}
        self.send({"id": request, "result": result})

    def notify(self, method, **params):
        self.send({"method": method, "params": params})

    def main(self):
        for line in sys.stdin.buffer:
            self.heard(json.loads(line))
        self.end_of_input()

    def end_of_input(self):
        """As a server should: it ends."""

    def heard(self, message):
        method, request = message.get("method"), message.get("id")
        if method is None:
            return self.answered(message)
        if request is None:
            return self.notified(method, message.get("params") or {})
        do = getattr(self, "do_" + method.replace("/", "_"), None)
        try:
            is_new = META + "protocolVersion" in (message.get("params") or {}).get("_meta", {})
            if do is None or is_new != self.is_new:
                raise Refused(-32601, f"{method}: no such method")
            do(request, message.get("params") or {})
        except Refused as refused:
            self.send({"id": request, "error": {"code": refused.code, "message": str(refused)}})

    def notified(self, method, params):
        if method == "notifications/cancelled":
            self.remember(f"cancelled {params.get('requestId')}", "cancelled")

    def answered(self, message):
        call = self.asked.pop(message["id"], None)
        if call is not None:
            self.answer(call, text("heard " + json.dumps(message.get("result", message.get("error")), sort_keys=True)))

    # --- the protocol

    def info(self):
        return {"name": "hostile", "version": "1"}

    def capabilities(self):
        return {"tools": {"listChanged": True}, "logging": {}}

    def do_server_discover(self, request, _):
        self.answer(request, {"supportedVersions": [NEW], "capabilities": self.capabilities(), "ttlMs": 0, "cacheScope": "private"})

    def do_initialize(self, request, params):
        self.declared = params.get("capabilities")
        self.answer(request, {"protocolVersion": OLD, "capabilities": self.capabilities(), "serverInfo": self.info()})

    def do_ping(self, request, _):
        self.answer(request, {})

    def do_logging_setLevel(self, request, _):
        self.answer(request, {})

    def do_subscriptions_listen(self, request, params):
        self.listening = request
        self.notify("notifications/subscriptions/acknowledged", notifications=params.get("notifications", {}),
                    _meta={META + "subscriptionId": request})

    def do_tools_list(self, request, params):
        more = {"ttlMs": 0, "cacheScope": "private"} if self.is_new else {}
        self.answer(request, {"tools": self.tools(), **more})

    def do_tools_call(self, request, params):
        do = getattr(self, "call_" + params["name"].replace("-", "_"), None)
        if do is None:
            raise Refused(-32602, f"no tool {params['name']!r}")
        do(request, params.get("arguments") or {}, params)

    # --- tools

    def tools(self):
        return [
            tool("echo", "Says it again.", takes(message="string")),
            tool("note", "Adds a line to the state file.", takes(line="string")),
            tool("look", "Pid, environment, folder and what the client said it can do."),
            tool("big", "An answer of that many bytes.", takes(bytes="integer")),
            tool("slow", "Answers later, or never; says on the way how far it is.", takes(steps="integer", each_ms="integer")),
            tool("die", "Ends without an answer, after adding a line to the state file.", takes(line="string")),
            tool("ask", "Puts a question to the person behind the client.", takes(message="string")),
            tool("kinds", "One content block of each kind, with structured content.",
                 outputSchema={"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}),
        ]

    def call_echo(self, request, arguments, _):
        self.answer(request, text(arguments["message"]))

    def call_note(self, request, arguments, _):
        self.answer(request, text(str(self.remember("note " + arguments["line"], "note"))))

    def call_look(self, request, *_):
        seen = {"pid": os.getpid(), "group": os.getpgrp(), "parent": os.getppid(), "env": dict(os.environ), "cwd": os.getcwd(),
                "declared": getattr(self, "declared", None), "argv": sys.argv[1:], "starts": self.starts}
        self.answer(request, {**text(json.dumps(seen)), "structuredContent": seen})

    def call_big(self, request, arguments, _):
        self.answer(request, text("x" * arguments["bytes"]))

    def call_slow(self, request, arguments, params):
        threading.Thread(target=self.slowly, args=(request, arguments, params), daemon=True).start()

    def slowly(self, request, arguments, params):
        token = params.get("_meta", {}).get("progressToken")
        self.remember(f"slow {request}", "slow")
        for step in range(arguments["steps"]):
            time.sleep(arguments["each_ms"] / 1000)
            if token is not None:
                self.notify("notifications/progress", progressToken=token, progress=step + 1, total=arguments["steps"], message=f"step {step + 1}")
        self.answer(request, text("done"))

    def call_die(self, request, arguments, _):
        self.remember("note " + arguments["line"], "note")
        os._exit(7)

    def call_ask(self, request, arguments, params):
        question = {"message": arguments["message"], "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
        if not self.is_new:
            self.asked[f"q{request}"] = request
            self.send({"id": f"q{request}", "method": "elicitation/create", "params": question})
        elif "inputResponses" in params:
            self.answer(request, text("heard " + json.dumps([params["inputResponses"].get("q"), params.get("requestState")], sort_keys=True)))
        else:
            self.answer(request, {"resultType": "input_required", "requestState": "state-of-the-upstream",
                                  "inputRequests": {"q": {"method": "elicitation/create", "params": question}}})

    def call_kinds(self, request, *_):
        dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        content = [
            {"type": "text", "text": "grüße\u0007 \u202eevil\u202c"},
            {"type": "image", "data": dot, "mimeType": "image/png"},
            {"type": "audio", "data": "UklGRiQ=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "test://inside", "mimeType": "text/plain", "text": "inside"}},
            {"type": "resource_link", "uri": "test://linked", "name": "linked"},
        ]
        self.answer(request, {"content": content, "structuredContent": {"answer": 42}})
