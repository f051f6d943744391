"""The scripted server over HTTP, behind `serve --upstream`: python3 -I -S upstream.py PORT JOURNAL GATES

It keeps sessions in memory, as MCP 2025-11-25 has it, and has the tools of stdio.py. A POST to /control changes how it behaves:

  {"reset": true}      it behaves as usual again, and forgets what it has received
  {"forget": true}     it forgets all sessions; their streams end
  {"rules": [rule]}    a rule says how requests are answered that it fits: `http` (the method of HTTP), `method`, `tool`, `times` (how often);
                       and `status`, `headers`, `body`, in which @ID@ stands for the id of the request
  {"unknown": rule}    how a request of a session is refused that is not there

GET /control tells what was received, and how many sessions were begun.
"""

import http.server
import json
import os
import queue
import sys
import threading
import time

JOURNAL = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
GATES = sys.argv[3]
NAMES = ["count", "echo", "log", "ask", "big", "nan", "slow", "die", "greeted", "raw"]
UNKNOWN = {"status": 404, "body": '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'}

lock = threading.Lock()
sessions, received, rules = {}, [], []
state = {"begun": 0, "unknown": UNKNOWN}


class Session:
    def __init__(self, name):
        self.name, self.count, self.asked, self.greeted = name, 0, 0, 0
        self.answers, self.standalone = {}, None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def respond(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def json(self, message, status=200, headers=()):
        body = message if isinstance(message, str) else json.dumps(message)
        self.respond(status, body.encode(), [("Content-Type", "application/json"), *headers])

    def begin_stream(self):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, message):
        text = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
        self.wfile.write(f"event: message\ndata: {text}\n\n".encode())
        self.wfile.flush()

    def refuse(self, rule, identity=None):
        headers = {"Content-Type": "application/json", **rule.get("headers", {})}
        body = rule.get("body", "").replace("@ID@", json.dumps(identity))
        self.respond(rule["status"], body.encode(), headers.items())

    def ruled(self, message):
        """Whether a rule has answered the request."""
        with lock:
            for rule in rules:
                name = (message.get("params") or {}).get("name") if message.get("method") == "tools/call" else None
                if (rule.get("http", "POST") == self.command and rule.get("method", message.get("method")) == message.get("method")
                        and rule.get("tool", name) == name and rule.get("times", 1) > 0):
                    rule["times"] = rule.get("times", 1 << 30) - 1
                    break
            else:
                return False
        self.refuse(rule, message.get("id"))
        return True

    def session(self, message=None):
        with lock:
            found = sessions.get(self.headers["Mcp-Session-Id"])
        if found is None:
            self.refuse(state["unknown"], (message or {}).get("id"))
        return found

    def control(self, order):
        with lock:
            if order.get("reset"):
                received.clear()
                rules.clear()
                state.update(begun=0, unknown=UNKNOWN)
            if "forget" in order:
                for session in sessions.values():
                    if session.standalone:
                        session.standalone.put(None)
                sessions.clear()
            rules.extend(order.get("rules", ()))
            state["unknown"] = order.get("unknown", state["unknown"])
        self.json({})

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
        if self.path == "/control":
            return self.control(message)
        method, params, identity = message.get("method"), message.get("params") or {}, message.get("id")
        with lock:
            received.append({"session": self.headers["Mcp-Session-Id"], "method": method, "tool": params.get("name"), "id": identity,
                             "key": (params.get("arguments") or {}).get("key") if isinstance(params.get("arguments"), dict) else None})
        if self.ruled(message):
            return None
        if method == "initialize":
            with lock:
                state["begun"] += 1
                name = f"up-{os.getpid()}-{time.monotonic_ns()}"
                sessions[name] = Session(name)
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                      "serverInfo": {"name": "scripted", "version": "1"}}
            return self.json({"jsonrpc": "2.0", "id": identity, "result": result}, headers=[("Mcp-Session-Id", name)])
        session = self.session(message)
        if session is None:
            return None
        if method is None:
            answers = session.answers.pop(identity, None)
            if answers:
                answers.put(message)
            return self.respond(202)
        if identity is None:
            session.greeted += method == "notifications/initialized"
            return self.respond(202)
        if method == "tools/call":
            return self.call(session, identity, params)
        if method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
        elif method in ("ping", "logging/setLevel"):
            result = {}
        else:
            return self.json({"jsonrpc": "2.0", "id": identity, "error": {"code": -32601, "message": "Method not found"}})
        return self.json({"jsonrpc": "2.0", "id": identity, "result": result})

    def call(self, session, identity, params):
        name, given = params.get("name"), params.get("arguments") or {}
        if "key" in given:
            os.write(JOURNAL, f"{given['key']}\n".encode())

        def answer(text):
            return {"jsonrpc": "2.0", "id": identity, "result": {"content": [{"type": "text", "text": text}]}}

        if name == "count":
            session.count += 1
            return self.json(answer(str(session.count)))
        if name == "greeted":
            return self.json(answer(str(session.greeted)))
        if name == "echo":
            return self.json(json.dumps(answer(json.dumps(given.get("value"), ensure_ascii=False))))
        if name == "big":
            return self.json(answer("x" * given["bytes"]))
        if name == "nan":
            content = '{"content":[],"structuredContent":{"value":%s}}' % given.get("value", "NaN")
            return self.json('{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(identity), content))
        if name == "die":
            os._exit(1)
        if name == "raw":
            self.begin_stream()
            return self.event(given["text"].replace("@ID@", json.dumps(identity)))
        self.begin_stream()
        if name == "log":
            for number in range(1, given.get("times", 1) + 1):
                data = f"{given.get('text', 'line')} {number}"
                self.event({"method": "notifications/message", "params": {"level": "info", "logger": "scripted", "data": data}})
            return self.event(answer("logged"))
        if name == "ask":
            answers = queue.Queue()
            with lock:
                session.asked += 1
                own = f"ask-{session.asked}"
                session.answers[own] = answers
            self.event({"id": own, "method": "roots/list", **({"params": {"_meta": {"text": "x" * given["bytes"]}}} if "bytes" in given else {})})
            said = answers.get()
            return self.event(answer(str(len(said["result"]["roots"])) if "result" in said else "refused"))
        if name == "slow":
            token = (params.get("_meta") or {}).get("progressToken")
            for step in range(1, given.get("steps", 0) + 1):
                if token is not None:
                    self.event({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
            while not os.path.exists(os.path.join(GATES, given["key"])):
                time.sleep(0.01)
            for number in range(1, given.get("logs", 0) + 1):
                self.event({"method": "notifications/message", "params": {"level": "info", "data": f"{given['key']} {number}"}})
            return self.event(answer("slow"))
        return self.event({"id": identity, "error": {"code": -32602, "message": "there is no such tool"}})

    def do_GET(self):
        if self.path == "/control":
            with lock:
                return self.json({"received": received, "begun": state["begun"]})
        if self.ruled({"method": None}):
            return None
        session = self.session()
        if session is None:
            return None
        session.standalone = queue.Queue()
        self.begin_stream()
        self.wfile.write(b": open\n\n")
        self.wfile.flush()
        while (message := session.standalone.get()) is not None:
            self.event(message)
        return None

    def do_DELETE(self):
        if self.ruled({"method": None}):
            return
        if session := self.session():
            with lock:
                sessions.pop(session.name, None)
            self.respond(200)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        # A client that has hung up.
        pass


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
print(f"listening at http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
server.serve_forever()
