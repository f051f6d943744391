"""A server over HTTP that forgets its sessions when it is told to: python3 -I -S forgetful.py PORT HELD

It prints where it listens, and a line for each message that it reads: its session and its method. It refuses every request of a session
that it does not know, and every call of one that has not sent `notifications/initialized`. From the second session on it takes that
notification only once it has read a byte from the FIFO HELD. The events of each session have the same ids. Methods:

  forget        forgets all sessions, whose streams stay open, and answers
  stream        is answered by a stream, whose first event has the id 1 and progress, and which stays open
  any other     is answered with `{}`

A GET that comes back with event 1 gets an answer to each call of the session's, with the result `{"session": …}`.
"""
import http.server
import json
import sys
import threading

sessions = {}
count = 0


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, message=None):
        body = json.dumps(message).encode() if message is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *events, session=None):
        self.send_response(200)
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for identity, message in events:
            self.wfile.write(f"id: {identity}\ndata: {json.dumps(message)}\n\n".encode())
        # Nobody sends more than one request on a connection: this ends with it.
        self.rfile.read(1)

    def begin(self, identity):
        global count
        count += 1
        session = f"session-{count}"
        sessions[session] = {"ready": False, "first": count == 1, "calls": []}
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "forgetful", "version": "1"}}
        # By the id of this event `serve` knows that the server numbers its events.
        self.stream((0, {"jsonrpc": "2.0", "id": identity, "result": result}), session=session)

    def do_POST(self):
        self.close_connection = True
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, method, identity = self.headers["Mcp-Session-Id"], message["method"], message.get("id")
        print(name, method, flush=True)
        if method == "initialize":
            return self.begin(identity)
        session = sessions.get(name)
        if session is None:
            return self.answer(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}})
        if method == "notifications/initialized":
            if not session["first"]:
                open(sys.argv[2], "rb", buffering=0).read(1)
            session["ready"] = True
            return self.answer(202)
        if not session["ready"]:
            error = {"code": -32602, "message": "a call before `notifications/initialized`"}
            return self.answer(200, {"jsonrpc": "2.0", "id": identity, "error": error})
        if method == "forget":
            sessions.clear()
        if method == "stream":
            session["calls"].append(identity)
            progress = {"progressToken": "t", "progress": 1}
            return self.stream((1, {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        self.answer(200, {"jsonrpc": "2.0", "id": identity, "result": {}})

    def do_GET(self):
        self.close_connection = True
        session = sessions.get(self.headers["Mcp-Session-Id"])
        if session is None:
            return self.answer(404)
        if self.headers["Last-Event-ID"] != "1":
            return self.answer(405)
        said = {"session": self.headers["Mcp-Session-Id"]}
        self.stream(*((2, {"jsonrpc": "2.0", "id": call, "result": said}) for call in session["calls"]))


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = True
print(f"listening at http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
threading.Thread(target=server.serve_forever).start()
