"""A daemon of another version: other_version.py DIRECTORY DAEMON VERSION OTHER

Serves DIRECTORY and passes on what is said to the daemon of the directory DAEMON, and back. Where an answer of the daemon has its version,
it has OTHER instead, which is as long. Writes a line to standard output when it is ready. To the daemon all its clients are this one
process, so it is of no use where the daemon has to know who asks.
"""
import os
import socket
import sys
import threading


def passing(source, target, change):
    try:
        while data := source.recv(1 << 20):
            target.sendall(change(data))
    except OSError:
        pass
    for side in (source, target):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


if __name__ == "__main__":
    directory, daemon, version, other = sys.argv[1:]
    os.mkdir(directory, 0o700)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(directory + "/daemon.sock")
    listening.listen()
    print("ready", flush=True)
    while True:
        client = listening.accept()[0]
        to = socket.socket(socket.AF_UNIX)
        to.connect(daemon + "/daemon.sock")
        for source, target, change in [
            (client, to, bytes),
            (to, client, lambda data: data.replace(version.encode(), other.encode())),
        ]:
            threading.Thread(target=passing, args=(source, target, change), daemon=True).start()
