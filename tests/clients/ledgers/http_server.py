"""A server on Streamable HTTP that keeps the same ledger as server.py: python3 -I -S http_server.py PORT LEDGER TEMPER

What server.py is as a process, this is as a session: its "PID" in the ledger is the process's, times 10,000, and the session's number.
SIGUSR1 has it forget all sessions, as a restart does. TEMPER: it `refuses` a GET, `answers` it by a stream that stays open, or answers
calls in JSON (`exits`), where it otherwise answers them on streams.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, LEDGER, TEMPER = int(sys.argv[1]), *sys.argv[2:4]
ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
counting = threading.Lock()
# By id: how many calls it has begun.
sessions, begun = {}, 0


def note(*words):
    os.write(ledger, (" ".join(map(str, words)) + "\n").encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", kind="application/json", session=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True

    @property
    def session(self):
        """The id that the request names, if the session is known."""
        named = self.headers.get("Mcp-Session-Id")
        return named if named in sessions else None

    def unknown(self):
        error = {"code": -32001, "message": "Session not found"}
        self.reply(404, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())

    def do_GET(self):
        session = self.session
        if session is None:
            return self.unknown()
        if TEMPER != "answers":
            return self.reply(405)
        self.begin_stream()
        while session in sessions:
            time.sleep(0.02)

    def do_DELETE(self):
        sessions.pop(self.session, None)
        self.reply(200)

    def do_POST(self):
        global begun
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, request = message.get("method"), message.get("id")
        if method == "initialize":
            with counting:
                begun += 1
                session = str(os.getpid() * 10_000 + begun)
                sessions[session] = 0
            note("start", "a", session)
            note("ready", "a", session)
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                      "serverInfo": {"name": "a", "version": "1"}}
            return self.reply(200, json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode(), session=session)
        session = self.session
        if session is None:
            return self.unknown()
        if request is None:
            return self.reply(202)
        if method == "tools/call":
            return self.call(session, request, message["params"]["arguments"])
        results = {"tools/list": {"tools": [{"name": "work_a", "inputSchema": {"type": "object"}}]}, "ping": {}, "logging/setLevel": {}}
        outcome = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "Method not found"}}
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": request, **outcome}).encode())

    def call(self, session, request, arguments):
        with counting:
            count = sessions[session] = sessions.get(session, 0) + 1
        key, gate = arguments["key"], arguments.get("gate")
        note("call", "a", session, count, key)
        if TEMPER != "exits":
            self.begin_stream()
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        result = {"content": [{"type": "text", "text": f"{key} a {session} {count}"}]}
        text = json.dumps({"jsonrpc": "2.0", "id": request, "result": result})
        if TEMPER == "exits":
            return self.reply(200, text.encode())
        self.wfile.write(f"event: message\ndata: {text}\n\n".encode())


signal.signal(signal.SIGUSR1, lambda *_: sessions.clear())
server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
server.daemon_threads = True
print("listens", flush=True)
server.serve_forever()
