"""A server over HTTP that answers a ping as it is told to: python3 -I -S ping_on_demand.py PORT DIRECTORY

It prints where it listens, and a line for each message that it reads: its session and its method. Each `initialize` begins a session, and
all else is answered with the session and the header `X-Key`, but a ping as the file `ping` in the directory says:

  result, error, lost      by JSON: `{}`, an error, or one that says that there is no such session
  other, twice             by JSON: the result of another request, or two answers
  events, events-lost      by a stream, where a notification comes first: `{}`, or an error about the session
  lost-404                 with 404
  mute                     by a stream on which nothing comes, and which ends
  taken                    with 202
  page                     by HTML
  broken                   the connection is closed

While the file `refuse` is there, `initialize` is refused with 503. In the coding that the file `coding` names, each body is sent,
whatever is asked for: gzip, deflate, raw (deflate without zlib's header), another one, of which the bytes are not true; or `asked`: in gzip
unless nothing but `identity` is asked for. `tools/call` is answered by a stream. While the file `sticky` is there, each session has a cookie, as
of a balancer, and without that it is not found. While the file `nodes` is there, calls get by turns what it says (`STATUS BODY`, where
`ID` stands for the id of the request) and their answer; while `refused` is there, each call within a session that it names
gets that.
"""
import gzip
import http.server
import json
import os
import sys
import zlib

count = 0
turn = 0
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def path(name):
    return os.path.join(sys.argv[2], name)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def say(self, status, kind="application/json", body=b"", session=None):
        coding = self.coding() if body else None
        if coding == "gzip":
            body = gzip.compress(body)
        elif coding == "deflate":
            body = zlib.compress(body)
        elif coding == "raw":
            coding, body = "deflate", zlib.compress(body)[2:-4]
        self.send_response(status)
        if coding:
            self.send_header("Content-Encoding", coding)
        if session:
            self.send_header("Mcp-Session-Id", session)
            if os.path.exists(path("sticky")):
                self.send_header("Set-Cookie", f"node={session}; Path=/; HttpOnly")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def coding(self):
        if not os.path.exists(path("coding")):
            return None
        with open(path("coding")) as file:
            coding = file.read().strip()
        if coding == "asked":
            return None if self.headers["Accept-Encoding"] == "identity" else "gzip"
        return coding

    def json(self, message, session=None):
        self.say(200, body=json.dumps(message).encode(), session=session)

    def events(self, *messages):
        text = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
        self.say(200, "text/event-stream", text.encode())

    def ping(self, identity):
        with open(path("ping")) as file:
            how = file.read().strip()
        good = {"jsonrpc": "2.0", "id": identity, "result": {}}
        bad = {"jsonrpc": "2.0", "id": identity, "error": {"code": -32603, "message": "Try again"}}
        lost = {"jsonrpc": "2.0", "id": identity, "error": {"code": -32600, "message": "Session not found"}}
        if how in ("result", "error", "lost", "other", "twice"):
            return self.json({"result": good, "error": bad, "lost": lost, "other": {**good, "id": 7}, "twice": [good, bad]}[how])
        if how in ("events", "events-lost"):
            return self.events(NOTE, good if how == "events" else lost)
        if how == "lost-404":
            return self.say(404)
        if how == "mute":
            return self.events()
        if how == "taken":
            return self.say(202)
        if how == "page":
            return self.say(200, "text/html", b"<p>Log in</p>")
        # Broken: what reads the answer finds the end.

    def refused(self, name, identity):
        with open(path(name)) as file:
            status, body = file.read().split(" ", 1)
        self.say(int(status), body=body.replace("ID", json.dumps(identity)).encode())

    def do_POST(self):
        global count, turn
        self.close_connection = True
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, identity = message["method"], message.get("id")
        print(self.headers["Mcp-Session-Id"], method, flush=True)
        within = self.headers["Mcp-Session-Id"]
        if within and os.path.exists(path("sticky")) and self.headers["Cookie"] != f"node={within}":
            return self.say(404)
        if within and method != "ping" and identity is not None and os.path.exists(path("nodes")):
            turn += 1
            if turn % 2:
                return self.refused("nodes", identity)
        if within == "session-1" and method != "ping" and identity is not None and os.path.exists(path("refused")):
            return self.refused("refused", identity)
        if method == "ping" and identity == "mcp-sessiond-ping":
            return self.ping(identity)
        if method == "initialize":
            if os.path.exists(path("refuse")):
                return self.say(503)
            count += 1
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "pinged", "version": "1"}}
            return self.json({"jsonrpc": "2.0", "id": identity, "result": result}, f"session-{count}")
        if identity is None:
            return self.say(202)
        answer = {"jsonrpc": "2.0", "id": identity, "result": {"within": within, "key": self.headers["X-Key"]}}
        if method == "tools/call":
            return self.events(NOTE, answer)
        self.json(answer)

    def do_GET(self):
        self.close_connection = True
        self.say(405)

    def do_DELETE(self):
        self.close_connection = True
        self.say(204)


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = True
print(f"listening at http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
server.serve_forever()
