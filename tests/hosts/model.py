"""A model behind HTTP: what stands in for Anthropic, OpenAI and Google."""

import contextlib
import http.server
import itertools
import json
import re
import threading


class Api:
    """A model behind HTTP, in the dialects of Anthropic, OpenAI (both) and Google.

    A prompt `STEPS: NAME count kill count` names itself, and tells what the model does: `count` calls the tool, any other
    word is a hook of the scenario, which runs before the model goes on. Without such a prompt it says "ok". A scenario may
    add words that call: `calls` has how the tool's name ends, and the arguments.
    """

    def __init__(self, world):
        self.world, self.hooks, self.told, self.requests = world, {}, {}, []
        # Prompts to which the model has said its last word.
        self.done = set()
        self.calls = {"count": ("count", {})}
        self.lock, self.numbers = threading.Lock(), itertools.count(1)
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                api.serve(self, None)

            do_HEAD = do_GET

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                api.serve(self, json.loads(body or b"{}"))

        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.listener.server_port}"
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def close(self):
        self.listener.shutdown()
        self.listener.server_close()

    def results(self, prompt):
        """What the tool told the model under this prompt, in order; "no tool" where there was none to call."""
        return self.told.get(prompt, [])

    def serve(self, request, body):
        path = request.path.split("?")[0]
        with self.lock, open(self.world.root / "api", "a") as log:
            log.write(json.dumps({"path": request.path, "body": body}) + "\n")
        for end, dialect in DIALECTS.items():
            if body is not None and path.endswith(end):
                read, write = dialect
                kind, content = write(self.reply(*read(body)), body, next(self.numbers), path)
                return send(request, kind, content)
        return send(request, "application/json", "{}")

    def reply(self, turns, tools):
        """What the model says: the name of the tool to call and its arguments, or None and a text. `turns` are ("user" or "result", text)."""
        asked = [place for place, (who, text) in enumerate(turns) if who == "user" and "STEPS:" in text]
        if not asked:
            return None, "ok"
        # The words end with the line, or at what some host puts behind it.
        words = re.split(r"STEPS:", turns[asked[-1]][1])[-1].strip().splitlines()[0]
        name, *steps = re.findall(r"[\w-]+", words)
        results = [text for who, text in turns[asked[-1] + 1:] if who == "result"]
        self.tell(name, results)
        calls = 0
        for step in steps:
            if step in self.calls:
                calls += 1
                if calls > len(results):
                    break
            elif calls == len(results) and tools:
                self.hooks[step]()
        else:
            if tools:
                self.done.add(name)
            return None, f"done {name}"
        end, arguments = self.calls[step]
        # A tool that the host has put into a namespace has a pair for a name.
        tool = next((tool for tool in tools if (tool if isinstance(tool, str) else tool[1]).endswith(end)), None)
        if tool is None:
            self.tell(name, [*results, "no tool"])
            self.done.add(name)
            return None, f"done {name}: no tool"
        return tool, arguments

    def tell(self, name, results):
        """Hosts ask for a title, too, with the same prompt and without any tool: that tells nothing new."""
        with self.lock:
            self.told[name] = max(results, self.told.get(name, []), key=lambda told: (len(told), told[-1:] != ["no tool"]))


def send(request, kind, content):
    content = content.encode()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        request.send_response(200)
        request.send_header("content-type", kind)
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)


def stream(events, named=True):
    """Server-sent events."""
    name = (lambda event: f"event: {event['type']}\n") if named else (lambda event: "")
    return "text/event-stream", "".join(f"{name(event)}data: {json.dumps(event)}\n\n" for event in events)


def texts(content):
    """The text in a content of any shape."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return " ".join(texts(value) for key, value in content.items() if key not in ("type", "id", "tool_use_id"))
    return " ".join(map(texts, content)) if isinstance(content, list) else ""


def read_anthropic(body):
    turns = []
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": message["content"]}]
        for block in blocks:
            if message["role"] == "user" and block["type"] in ("text", "tool_result"):
                turns.append(("user", block["text"]) if block["type"] == "text" else ("result", texts(block.get("content", ""))))
    return turns, [tool["name"] for tool in body.get("tools", [])]


def write_anthropic(reply, body, number, _):
    tool, said = reply
    block = {"type": "text", "text": said} if tool is None else {
        "type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": said}
    reason = "end_turn" if tool is None else "tool_use"
    usage = {"input_tokens": 10, "output_tokens": 10}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}
    if not body.get("stream"):
        return "application/json", json.dumps({**message, "content": [block], "stop_reason": reason})
    delta = {"type": "text_delta", "text": said} if tool is None else {"type": "input_json_delta", "partial_json": json.dumps(said)}
    if tool:
        block = {**block, "input": {}}
    return stream([
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {**block, **({"text": ""} if tool is None else {})}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"}])


def read_responses(body):
    turns = []
    for item in body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]:
        if item.get("role") == "user":
            turns.append(("user", texts(item["content"])))
        elif item.get("type", "").endswith("_call_output"):
            turns.append(("result", texts(item.get("output", ""))))
    tools = []
    for tool in body.get("tools", []):
        if tool.get("type") == "namespace":
            tools += [(tool["name"], inner["name"]) for inner in tool["tools"]]
        elif "name" in tool:
            tools.append(tool["name"])
    return turns, tools


def write_responses(reply, body, number, _):
    tool, said = reply
    if tool is None:
        item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": [{"type": "output_text", "text": said}]}
    else:
        space = {} if isinstance(tool, str) else {"namespace": tool[0]}
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
                "name": tool if isinstance(tool, str) else tool[1], "arguments": json.dumps(said), **space}
    usage = {"input_tokens": 10, "input_tokens_details": None, "output_tokens": 10, "output_tokens_details": None, "total_tokens": 20}
    return stream([
        {"type": "response.created", "response": {"id": f"resp_{number}"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}])


def read_chat(body):
    who = {"user": "user", "tool": "result"}
    turns = [(who[message["role"]], texts(message["content"])) for message in body["messages"] if message["role"] in who]
    return turns, [tool["function"]["name"] for tool in body.get("tools") or []]


def write_chat(reply, body, number, _):
    tool, said = reply
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": json.dumps(said)}}
    turn = {"role": "assistant", **({"content": said} if tool is None else {"tool_calls": [call]})}
    head = {"id": f"chat_{number}", "created": 1, "model": body["model"]}
    reason, usage = "stop" if tool is None else "tool_calls", {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    if not body.get("stream"):
        choice = {"index": 0, "message": said, "finish_reason": reason}
        return "application/json", json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = {**head, "object": "chat.completion.chunk"}
    kind, content = stream([
        {**chunk, "choices": [{"index": 0, "delta": turn, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}], named=False)
    return kind, content + "data: [DONE]\n\n"


def read_gemini(body):
    turns = []
    for content in body["contents"]:
        for part in content.get("parts", []) if content.get("role") != "model" else []:
            turns.append(("user", part["text"]) if "text" in part else ("result", json.dumps(part.get("functionResponse"))))
    return turns, [function["name"] for tool in body.get("tools", []) for function in tool.get("functionDeclarations", [])]


def write_gemini(reply, body, number, path):
    tool, said = reply
    part = {"text": said} if tool is None else {"functionCall": {"name": tool, "args": said, "id": f"call_{number}"}}
    answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}}
    return stream([answer], named=False) if "stream" in path else ("application/json", json.dumps(answer))


DIALECTS = {
    "/messages": (read_anthropic, write_anthropic),
    "/responses": (read_responses, write_responses),
    "/chat/completions": (read_chat, write_chat),
    ":generateContent": (read_gemini, write_gemini),
    ":streamGenerateContent": (read_gemini, write_gemini),
}
