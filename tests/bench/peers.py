#!/usr/bin/env python3
"""What it costs that a kernel does not say who has connected: two daemons of one executable in turns, one of which is refused SO_PEERPIDFD.

Usage: tests/bench/peers.py EXECUTABLE [ROUNDS]

A round connects, says hello, claims a session and hangs up, once with each daemon; then the same without the claim. Prints the medians in
µs, and their ratio. Linux only.
"""

import os, pathlib, select, socket, statistics, struct, subprocess, sys, tempfile, time

ROUNDS = 1000
REFUSING = pathlib.Path(__file__).parent.parent / "python" / "refusing.py"
HELLO = struct.pack(">8sHHBBxxIxxxxQ", b"mcpsessd", 2, 0, 2, 0, 4 << 20, 0)
CLAIM = b'{"jsonrpc":"2.0","id":1,"method":"claim","params":{}}'


def whole(stream, size):
    read = b""
    while len(read) < size:
        read += stream.recv(size - len(read)) or sys.exit("the daemon has hung up")
    return read


def connected(path):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    stream.sendall(HELLO)
    while (answer := whole(stream, 32)[13]) == 6:
        stream.sendall(whole(stream, 16))
    if answer:
        sys.exit(f"refused: {answer}")
    return stream


def claimed(stream):
    stream.sendall(struct.pack(">I", len(CLAIM)) + CLAIM)
    return whole(stream, struct.unpack(">I", whole(stream, 4))[0])


def took(path, claims):
    began = time.perf_counter()
    with connected(path) as stream:
        if claims and b'"result"' not in claimed(stream):
            sys.exit("the claim was refused")
        return (time.perf_counter() - began) * 1e6


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    executable, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else ROUNDS
    with tempfile.TemporaryDirectory() as root:
        paths = {}
        for name, prefix in {"SO_PEERPIDFD": [], "challenge": [sys.executable, REFUSING, "getsockopt:2=77=ENOPROTOOPT", "--"]}.items():
            directory = f"{root}/{name}"
            subprocess.run([*prefix, executable, "run", "--on-demand"], env={**os.environ, "MCP_SESSIOND_DIR": directory}, check=True)
            paths[name] = f"{directory}/daemon.sock"
        for claims in (True, False):
            times = {name: [] for name in paths}
            for _ in range(rounds):
                for name, path in paths.items():
                    times[name].append(took(path, claims))
            medians = {name: statistics.median(values) for name, values in times.items()}
            what = "connect and claim" if claims else "connect"
            print(f"{what}: " + ", ".join(f"{name} {median:.0f} µs" for name, median in medians.items()) + f", ratio {medians['challenge'] / medians['SO_PEERPIDFD']:.2f}")
        for name in paths:
            about = subprocess.run([executable, "debug", "about", "--json"], env={**os.environ, "MCP_SESSIOND_DIR": f"{root}/{name}"}, capture_output=True, text=True)
            pid = int(about.stdout.split('"pid":')[1].split(",")[0])
            with os.fdopen(os.pidfd_open(pid)) as ended:
                os.kill(pid, 15)
                select.select([ended], [], [])


main()
