"""What stands between client and server, and does something after so many bytes of answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Proxy:
    """Passes bytes on to a port."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._lock = threading.Lock()
        self._fuse: tuple[int, Callable[[Callable[[], None]], None]] | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/mcp"
        threading.Thread(target=self._accept, daemon=True).start()

    def light(self, bytes: int, burn: Callable[[Callable[[], None]], None]) -> None:
        """After so many bytes of answers `burn` is called once, with a function that cuts the connection."""
        with self._lock:
            self._fuse = (bytes, burn)

    def put_out(self) -> bool:
        """Nothing is cut any more. Tells whether nothing was."""
        with self._lock:
            was, self._fuse = self._fuse, None
            return was is not None

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for arguments in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        def cut() -> None:
            for side in (source, to):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

        with contextlib.suppress(OSError):
            while part := source.recv(65_536):
                if answers:
                    with self._lock:
                        fuse, self._fuse = self._fuse, None
                        if fuse and fuse[0] > len(part):
                            fuse, self._fuse = None, (fuse[0] - len(part), fuse[1])
                    if fuse:
                        # What comes before arrives, and what comes after it unless the connection is cut.
                        left, burn = fuse
                        to.sendall(part[:left])
                        burn(cut)
                        part = part[left:]
                to.sendall(part)
        cut()
