"""A host that does as it is told, by lines of JSON-RPC on its standard input:

    connect {name, command, seconds, probe, roots, environment}
                                              starts a server and initialises it; `seconds` is its limit for that. With `probe` it asks
                                              `server/discover` first. With `roots` it has these; `environment` is the
                                              server's beside its own. {pid} or {refused}; then the server is closed in an
                                              orderly way
    call {name}                               calls the tool, and answers its text; an error's text where there was none
    close {name, how}                         `input`: the end of input, and waits; `tree`: as .NET's `Process.Kill(entireProcessTree)`, with the input
                                              open: each process is stopped, then its children are killed, then it is; else the signal's name
    said {name}                               what the server has written to standard error
    leave {}                                  as `claude -p` ends: SIGINT for each server, 100 ms, SIGTERM, and the host is gone
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

servers = {}


class Server:
    """One stdio server."""

    def __init__(self, command, environment):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, **environment})
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest, self.number, self.roots = b"", 0, None

    def write(self, message):
        self.process.stdin.write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
        self.process.stdin.flush()

    def ask(self, method, params, until):
        """The answer, or what came instead of it."""
        self.number += 1
        try:
            self.write({"id": self.number, "method": method, "params": params})
        except OSError:
            return {"error": {"message": "Connection closed"}}
        while time.monotonic() < until:
            some = self.process.stdout.read()
            if some == b"":
                return {"error": {"message": "Connection closed"}}
            self.rest += some or b""
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                message = json.loads(line)
                if message.get("id") == self.number and "method" not in message:
                    return message
                if message.get("method") == "roots/list":
                    self.write({"id": message["id"], "result": {"roots": [{"uri": uri} for uri in self.roots or []]}})
            time.sleep(0.005)
        return {"error": {"message": "timed out"}}

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self):
        """As an SDK closes: the end of input, 2 s, SIGTERM."""
        self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        self.process.wait()


def connect(name, command, seconds=30, probe=False, roots=None, environment=None):
    server = servers[name] = Server(command, environment or {})
    server.roots = roots
    until = time.monotonic() + seconds
    if probe:
        server.ask("server/discover", {}, until)
    info = {"name": "scripted", "version": "1.0.0"}
    answer = server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}} if roots is not None else {}, "clientInfo": info}, until)
    if "result" not in answer:
        server.close()
        return {"refused": answer["error"]["message"], "said": server.said()}
    server.write({"method": "notifications/initialized"})
    return {"pid": server.process.pid}


def call(name, seconds=60):
    answer = servers[name].ask("tools/call", {"name": "count", "arguments": {}}, time.monotonic() + seconds)
    return answer["result"]["content"][0]["text"] if "result" in answer else f"error: {answer['error']['message']}"


def close(name, how):
    if how == "input":
        servers[name].close()
    elif how == "tree":
        kill_tree(servers[name].process.pid)
        servers[name].process.wait()
    else:
        servers[name].process.send_signal(signal.Signals[how])
        servers[name].process.wait()


def kill_tree(pid):
    os.kill(pid, signal.SIGSTOP)
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        for child in children.read().split():
            kill_tree(int(child))
    os.kill(pid, signal.SIGKILL)


def leave():
    for name in (signal.SIGINT, signal.SIGTERM):
        for server in servers.values():
            if server.process.poll() is None:
                server.process.send_signal(name)
        if name == signal.SIGINT:
            time.sleep(0.1)
    os._exit(0)


VERBS = {"connect": connect, "call": call, "close": close, "said": lambda name: servers[name].said(), "leave": leave}
for line in sys.stdin:
    asked = json.loads(line)
    result = VERBS[asked["method"]](**asked["params"])
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result if result is not None else {}}), flush=True)
