"""mcp-sessiond for the process that runs this: python3 sessiond.py load|store|reject [--dir DIRECTORY]"""
import base64, functools, json, os, socket, struct, subprocess, sys, time
class Refused(RuntimeError):
    def __init__(self, error): super().__init__(error["message"]); self.code = error.get("data", error)["code"]
def directory():
    uid, home = os.geteuid(), os.path.expanduser("~/Library/Application Support")
    base = home if sys.platform == "darwin" else f"/run/user/{uid}"
    ours = os.path.isdir(base) and os.lstat(base).st_uid == uid
    return os.environ.get("MCP_SESSIOND_DIR") or (base + "/mcp-sessiond" if ours else f"/tmp/mcp-sessiond-{uid}")
def start(binary=os.environ.get("MCP_SESSIOND_BIN", "mcp-sessiond"), null=subprocess.DEVNULL):
    subprocess.run([binary, "run", "--on-demand"], stdin=null, stdout=null, stderr=null)
@functools.cache
def connect(path):
    if (os.lstat(path).st_uid, os.lstat(path).st_mode) != (os.geteuid(), 0o040700):
        raise PermissionError(f"{path} is not a directory of ours, closed to everybody else")
    (stream := socket.socket(socket.AF_UNIX)).connect(path + "/daemon.sock")
    file, layout = stream.makefile("rwb"), ">8sHHBBxxIxxxxQ"
    file.write(struct.pack(layout, b"mcpsessd", 1, 0, 2, 0, 4 << 20, 0)), file.flush()
    while (said := struct.unpack(layout, file.read(32)))[4] == 6: file.write(file.read(16)), file.flush()
    if (said[0], said[4]) != (b"mcpsessd", 0): raise Refused({"message": f"refused: {said[4]}, version {said[1]}", "code": "hello_refused"})
    return file
def call(method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    for attempt in range(100):
        try:
            (file := connect(directory())).write(struct.pack(">I", len(body)) + body), file.flush()
            reply = json.loads(file.read(*struct.unpack(">I", file.read(4))))
            break
        except (FileNotFoundError, ConnectionError, struct.error, ValueError):  # No daemon, or one that was restarted.
            connect.cache_clear(), start() if attempt == 1 else time.sleep(0.05) if attempt else None
    else: raise ConnectionError("the daemon is not reached")
    if "error" in reply: raise Refused(reply["error"])
    return reply["result"]
if __name__ == "__main__":
    os.environ.update({"MCP_SESSIOND_DIR": sys.argv[3]} if "--dir" in sys.argv else {})
    claimed = call("claim", {"instance": os.getppid()})
    lease, token = {name: claimed[name] for name in ("session", "epoch")}, claimed.get("token", "")
    if sys.argv[1] == "load": sys.exit(3 * (not sys.stdout.buffer.write(base64.b64decode(token))))
    stored = {"token": base64.b64encode(sys.stdin.buffer.read()).decode()} if sys.argv[1] == "store" else {}
    call("store_token" if stored else "reject_token", lease | stored)
