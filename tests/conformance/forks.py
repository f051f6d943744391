"""Targets in Python, forked by a process that has imported their frameworks: that takes two seconds of a processor, and a target is started 200 times.

Run as a program, `python forks.py FD`, it is that process: for each message on this socket, [arguments, environment, folder] with standard output and
standard error, it starts a child, which runs the script of the arguments, and answers with its process id.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

# What takes long, as far as it is installed.
FRAMEWORKS = ("mcp.server.fastmcp", "mcp.server.mcpserver", "fastmcp", "fastmcp.server.auth", "uvicorn", "starlette.middleware.gzip")
MESSAGE_MAX = 1 << 16


class Fork:
    """A target as `subprocess.Popen` has it: with a file descriptor instead of the process id, which another process may get."""

    def __init__(self, pid, stdout):
        self.stdout, self._pidfd = stdout, os.pidfd_open(pid)

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self):
        self._signal(signal.SIGTERM)

    def kill(self):
        self._signal(signal.SIGKILL)

    def wait(self, timeout=None):
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired("a target in Python", timeout)
        os.close(self._pidfd)


class Forks:
    """The processes that fork, by their interpreters. They end with this process: their socket does."""

    def __init__(self):
        self._lock, self._sockets = threading.Lock(), {}

    def start(self, command, stderr, environment, folder):
        python, *arguments = command
        reader, writer = os.pipe()
        with self._lock, open(writer, "wb") as stdout:
            if python not in self._sockets:
                self._sockets[python], its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with its:
                    subprocess.Popen([python, __file__, str(its.fileno())], stdin=subprocess.DEVNULL, pass_fds=[its.fileno()])
            order = json.dumps([arguments, environment, str(folder)]).encode()
            pid = b""
            with contextlib.suppress(ConnectionError):
                socket.send_fds(self._sockets[python], [order], [stdout.fileno(), stderr.fileno()])
                pid = self._sockets[python].recv(MESSAGE_MAX)
            if not pid:
                raise OSError(f"what forks the targets of {python} has ended: standard error says why")
            return Fork(int(pid), open(reader, "rb"))


def serve(orders):
    for framework in FRAMEWORKS:
        with contextlib.suppress(ImportError):
            importlib.import_module(framework)
    # A child that has ended is gone at once.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, files, *_ = socket.recv_fds(orders, MESSAGE_MAX, 2)
        if not order:
            return
        if pid := os.fork():
            for file in files:
                os.close(file)
            orders.send(str(pid).encode())
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        orders.close()
        sys.argv, environment, folder = json.loads(order)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        for file, standard in zip(files, (1, 2)):
            os.dup2(file, standard)
            os.close(file)
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
        return


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
