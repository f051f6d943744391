"""A remote MCP server that wants a login, and its authorization server: python guarded.py PORT

It prints where it listens. Refresh tokens rotate: one that comes a second time ends the login (OAuth 2.1, section 4.3.1).

Tools: `whoami` answers the access token's number; `scoped` wants a scope that no login has.

GET /control?… sets: expires_in=S (of tokens from now on), delay_ms=N (before the answer to a refresh, the rotation being done),
hold=0|1 (whether that answer waits until it is 0),
revoke=1 (ends all logins), refuse=1 (access tokens of now are refused, though they have not expired), fail=N (so many refreshes fail with
503), lost_status=S (what a session is answered that is not known), token_port=N (of the token endpoint in the metadata),
mute=0|1 (whether notifications are refused), handshakes=0|1 (whether `initialize` is taken), forget=1 (MCP sessions), listen=0|1 (whether
there are standalone streams), say=TEXT (on all of them). It answers what was counted.
"""
import base64
import hashlib
import json
import queue
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
changed = threading.Condition(lock)
settings = {"expires_in": 3600, "delay_ms": 0, "hold": 0, "fail": 0, "handshakes": 1, "token_port": 0, "lost_status": 404, "mute": 0, "listen": 0}
counts = {"refreshes": 0, "logins": 0, "rejected": 0, "failed": 0, "clients": 0, "handshakes": 0, "refused": 0, "posts": 0, "streams": 0}
clients, codes, access, refresh, sessions = {}, {}, {}, {}, set()
number = 0
listening = []


def fresh(prefix):
    global number
    number += 1
    return f"{prefix}-{number}"


def tokens(login, scope):
    token, again = fresh("access"), fresh("refresh")
    access[token] = {"login": login, "until": time.time() + settings["expires_in"], "scope": scope}
    refresh[again] = {"login": login, "used": False, "scope": scope}
    return {"access_token": token, "token_type": "Bearer", "expires_in": settings["expires_in"], "refresh_token": again, "scope": scope}


def end(login):
    for known in (access, refresh):
        for token in [token for token, it in known.items() if it["login"] == login]:
            del known[token]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if data:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def split(self):
        parts = urllib.parse.urlsplit(self.path)
        return parts.path, dict(urllib.parse.parse_qsl(parts.query))

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self):
        path, query = self.split()
        if path == "/.well-known/oauth-protected-resource/mcp":
            self.say(200, {"resource": f"{base}/mcp", "authorization_servers": [base], "scopes_supported": ["basic"]})
        elif path == "/.well-known/oauth-authorization-server":
            tokens_at = f"http://127.0.0.1:{settings['token_port']}" if settings["token_port"] else base
            self.say(200, {
                "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{tokens_at}/token",
                "registration_endpoint": f"{base}/register", "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"], "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"], "authorization_response_iss_parameter_supported": True,
            })
        elif path == "/authorize":
            self.authorize(query)
        elif path == "/control":
            self.control(query)
        elif path == "/mcp":
            if self.allowed():
                self.listen() if settings["listen"] else self.say(405)
        else:
            self.say(404)

    def listen(self):
        own = queue.Queue()
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with lock:
            listening.append(own)
            counts["streams"] += 1
        while True:
            message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": own.get()}}
            try:
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            except OSError:
                return

    def authorize(self, query):
        with lock:
            redirect = query.get("redirect_uri")
            if clients.get(query.get("client_id")) != redirect or query.get("code_challenge_method") != "S256":
                return self.say(400, {"error": "invalid_request"})
            if query.get("resource") != f"{base}/mcp":
                return self.say(400, {"error": "invalid_target"})
            code = fresh("code")
            codes[code] = query
        back = {"code": code, "state": query["state"], "iss": base}
        self.say(302, Location=f"{redirect}?{urllib.parse.urlencode(back)}")

    def control(self, query):
        with lock:
            for name in settings:
                if name in query:
                    settings[name] = int(query[name])
            changed.notify_all()
            if "revoke" in query:
                access.clear()
                refresh.clear()
            if "refuse" in query:
                access.clear()
            for own in listening if "say" in query else []:
                own.put(query["say"])
            if "forget" in query:
                sessions.clear()
            self.say(200, counts)

    def do_DELETE(self):
        self.say(204)

    def do_POST(self):
        path, _ = self.split()
        body = self.body()
        if path == "/register":
            with lock:
                counts["clients"] += 1
                client = fresh("client")
                clients[client] = json.loads(body)["redirect_uris"][0]
            self.say(201, {**json.loads(body), "client_id": client})
        elif path == "/token":
            counts["posts"] += 1
            self.token(dict(urllib.parse.parse_qsl(body.decode())))
        elif path == "/mcp":
            self.mcp(json.loads(body))
        else:
            self.say(404)

    def token(self, form):
        with lock:
            status, answer = self.granted(form)
            is_refresh = form.get("grant_type") == "refresh_token"
            delay = settings["delay_ms"] if is_refresh else 0
            changed.wait_for(lambda: not (is_refresh and status == 200 and settings["hold"]))
        time.sleep(delay / 1000)
        self.say(status, answer)

    def granted(self, form):
        if form.get("resource") != f"{base}/mcp":
            return 400, {"error": "invalid_target"}
        if form.get("grant_type") == "authorization_code":
            asked = codes.pop(form.get("code"), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if not asked or asked["code_challenge"] != challenge or asked["redirect_uri"] != form.get("redirect_uri"):
                return 400, {"error": "invalid_grant"}
            counts["logins"] += 1
            return 200, tokens(fresh("login"), asked.get("scope", ""))
        if settings["fail"]:
            settings["fail"] -= 1
            counts["failed"] += 1
            return 503, {"error": "temporarily_unavailable"}
        found = refresh.get(form.get("refresh_token"))
        if not found or found["used"]:
            counts["rejected"] += 1
            if found:
                end(found["login"])
            return 400, {"error": "invalid_grant"}
        found["used"] = True
        counts["refreshes"] += 1
        return 200, tokens(found["login"], found["scope"])

    def allowed(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with lock:
            found = access.get(token)
            if found and time.time() < found["until"]:
                return token
            counts["refused"] += 1
        where = f'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp", scope="basic"'
        self.say(401, {"error": "invalid_token"}, WWW_Authenticate=where)
        return None

    def mcp(self, message):
        token = self.allowed()
        if not token:
            return
        method, mcp_id = message.get("method"), message.get("id")
        if method == "initialize":
            with lock:
                counts["handshakes"] += 1
                if not settings["handshakes"]:
                    return self.say(400, {"jsonrpc": "2.0", "id": mcp_id, "error": {"code": -32602, "message": "Unsupported"}})
                session = fresh("session")
                sessions.add(session)
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                      "serverInfo": {"name": "guarded", "version": "1"}}
            return self.say(200, {"jsonrpc": "2.0", "id": mcp_id, "result": result}, Mcp_Session_Id=session)
        if self.headers.get("Mcp-Session-Id") not in sessions:
            challenge = {"WWW_Authenticate": "Bearer"} if settings["lost_status"] == 401 else {}
            return self.say(settings["lost_status"], {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}, **challenge)
        if mcp_id is None:
            return self.say(503 if settings["mute"] else 202)
        if method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("whoami", "scoped")]
            return self.say(200, {"jsonrpc": "2.0", "id": mcp_id, "result": {"tools": tools}})
        if method == "tools/call" and message["params"]["name"] == "scoped":
            where = 'Bearer error="insufficient_scope", scope="basic more"'
            return self.say(403, {"error": "insufficient_scope"}, WWW_Authenticate=where)
        result = {"content": [{"type": "text", "text": token}]}
        self.say(200, {"jsonrpc": "2.0", "id": mcp_id, "result": result})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
base = f"http://127.0.0.1:{server.server_port}"
print(f"listening at {base}/mcp", flush=True)
server.serve_forever()
