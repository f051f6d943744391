"""tiny.py, of which it can be seen how many are starting at once: python3 -I -S counted_starts.py LOG

Whoever starts it has written `+ PID` into LOG. It adds `= NUMBER`, how many of those live that have not answered `tools/list` yet, and `- PID` when it
is about to answer it.
"""

import os
import sys
import types

LOG = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def starting():
    with open(sys.argv[1]) as log:
        noted = [line.split() for line in log]
    ready = {words[-1] for words in noted if words[0] == "-"}
    return sum(lives(pid) for pid in {words[-1] for words in noted if words[0] == "+"} - ready)


def lines(real):
    """Standard input. A start ends with this request."""
    for line in real:
        if b'"tools/list"' in line:
            os.write(LOG, f"- {os.getpid()}\n".encode())
        yield line


os.write(LOG, f"= {starting()}\n".encode())
sys.stdin = types.SimpleNamespace(buffer=lines(sys.stdin.buffer))
with open(os.path.join(os.path.dirname(__file__), "tiny.py")) as tiny:
    exec(tiny.read())
