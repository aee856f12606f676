"""A model of no thought, for agents that must not need a real one.

It speaks the three dialects agents speak (Anthropic Messages, OpenAI Responses, OpenAI Chat Completions) on a free port of
loopback. As soon as an agent offers the wanted tool, it calls it once, and so with the next one; with the answer of the last in
the conversation, it says that answer back. What it was offered and what came back can be read off it afterwards.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COUNTS = {"input_tokens": 1, "output_tokens": 1}


class ScriptedModel:
    """`with ScriptedModel(("list_directory", {"path": "/"}), …) as model: …`"""

    def __init__(self, *calls):
        self.calls = calls
        self.offered, self.answers, self.paths, self.heard = set(), [], [], []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": self}))
        self._server.daemon_threads = True

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self._server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def turn(self, request):
        """(namespace, name, number, arguments) of the call to make now, or the text to end with."""
        tools, answers = list(_tools(request)), list(_answers(request))
        self.offered.update(name for _, name in tools)
        self.heard.append(json.dumps(request, ensure_ascii=False))
        self.answers = answers or self.answers
        if len(answers) == len(self.calls):
            return "The tool said: " + answers[-1]
        wanted, arguments = self.calls[len(answers)]
        for namespace, name in tools:
            if re.search(rf"(^|_){wanted}$", name):
                return namespace, name, len(answers) + 1, arguments
        return "The tool was not offered."


def _tools(request):
    for tool in request.get("tools") or []:
        if tool.get("type") == "namespace":  # Codex: one for each MCP server
            yield from ((tool["name"], inner["name"]) for inner in tool.get("tools", []))
        elif name := tool.get("name") or (tool.get("function") or {}).get("name"):
            yield None, name


def _answers(request):
    """The text of every tool result in the conversation."""
    for message in request.get("messages") or []:
        if message.get("role") == "tool":
            yield _text(message.get("content"))
        elif isinstance(message.get("content"), list):
            yield from (_text(part.get("content")) for part in message["content"] if part.get("type") == "tool_result")
    for item in request.get("input") or []:
        if isinstance(item, dict) and item.get("type") == "function_call_output":
            yield _text(item.get("output"))


def _text(content):
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.reply(b"", "application/json")

    def do_GET(self):
        self.model.paths.append("GET " + self.path)
        self.json({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.split("?")[0]
        self.model.paths.append("POST " + path)
        if path.endswith("/count_tokens"):
            self.json({"input_tokens": 10})
        elif path.endswith("/messages"):
            self.as_messages(request)
        elif path.endswith("/responses"):
            self.as_responses(request)
        elif path.endswith("/chat/completions"):
            self.as_chat(request)
        else:
            self.json({"error": {"message": "no such thing here"}}, 404)

    def as_messages(self, request):
        turn = self.model.turn(request)
        if calling := isinstance(turn, tuple):
            _, name, number, arguments = turn
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            whole = block | {"input": arguments}
        else:
            block, delta, whole = {"type": "text", "text": ""}, {"type": "text_delta", "text": turn}, {"type": "text", "text": turn}
        reason = "tool_use" if calling else "end_turn"
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "scripted"),
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": COUNTS}
        if not request.get("stream"):
            return self.json(message | {"content": [whole], "stop_reason": reason})
        self.events([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ])

    def as_responses(self, request):
        turn = self.model.turn(request)
        if isinstance(turn, tuple):
            namespace, name, number, arguments = turn
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, "status": "completed",
                    "arguments": json.dumps(arguments)} | ({"namespace": namespace} if namespace else {})
        else:
            item = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": turn, "annotations": []}]}
        usage = COUNTS | {"total_tokens": 2, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}
        self.events([
            {"type": "response.created", "response": response | {"status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ])

    def as_chat(self, request):
        turn = self.model.turn(request)
        if calling := isinstance(turn, tuple):
            _, name, number, arguments = turn
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            delta = {"role": "assistant", "tool_calls": [call]}
        else:
            delta = {"role": "assistant", "content": turn}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        self.events([
            chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calling else "stop"}]},
            "[DONE]",
        ])

    def events(self, events):
        text = ""
        for event in events:
            if isinstance(event, dict):
                text += f"event: {event['type']}\n" if "type" in event else ""
                event = json.dumps(event)
            text += f"data: {event}\n\n"
        self.reply(text.encode(), "text/event-stream")

    def json(self, value, status=200):
        self.reply(json.dumps(value).encode(), "application/json", status)

    def reply(self, body, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
