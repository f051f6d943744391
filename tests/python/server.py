"""A server in Python, without a library: server.py command MCP_SESSIOND [ANYTHING], or server.py protocol [ANYTHING].

Takes `load`, `store TOKEN`, `reject` from standard input, and answers each with a code and what was loaded: by the
command `mcp-sessiond token`, or in the daemon's own protocol, with sessiond.py. There `stale` and `wrong` are refused, and
answered with the code of the refusal."""
import base64
import subprocess
import sys


# What makes a lease one that is refused.
WRONG = {"stale": {"epoch": "0"}, "wrong": {"epoch": []}}


def by_command(verb, token):
    command = [sys.argv[2], "token", verb, "--no-start"]
    done = subprocess.run(command, input=token.encode(), stdout=subprocess.PIPE)
    return f"{done.returncode} {done.stdout.decode()}"


def by_protocol(verb, token):
    import sessiond

    claimed = sessiond.call("claim", {})
    lease = {name: claimed[name] for name in ("session", "epoch")}
    if verb in WRONG:
        try:
            sessiond.call("reject_token", lease | WRONG[verb])
        except sessiond.Refused as refused:
            return str(refused.code)
    if verb == "load":
        loaded = base64.b64decode(claimed.get("token", "")).decode()
        return f"{0 if loaded else 3} {loaded}"
    if verb == "store":
        sessiond.call("store_token", lease | {"token": base64.b64encode(token.encode()).decode()})
    else:
        sessiond.call("reject_token", lease)
    return "0 "


for line in sys.stdin:
    verb, _, token = line.rstrip("\n").partition(" ")
    answer = by_command(verb, token) if sys.argv[1] == "command" else by_protocol(verb, token)
    print(answer.strip(), flush=True)
