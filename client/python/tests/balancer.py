"""A balancer between clients and the workers of one service: each request goes to the next worker that listens."""

from __future__ import annotations

import socket
import threading


class Balancer:
    def __init__(self, *ports: int) -> None:
        self.ports = list(ports)
        self.calls: list[int] = []
        """The worker of each `tools/call`, by its port."""
        self._next = 0
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One request of a connection, which ends with its response: so each request is balanced."""
        try:
            head, body = self._request(client)
        except OSError:
            client.close()
            return
        if head:
            worker, port = self._connected()
            if b'"tools/call"' in body:
                self.calls.append(port)
            kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            worker.sendall(b"\r\n".join([*kept, b"Connection: close", b"", b""]) + body)
            # Whoever hangs up, the other one sees it.
            threading.Thread(target=_pass, args=(client, worker), daemon=True).start()
            _pass(worker, client)
            worker.close()
        client.close()

    def _request(self, client: socket.socket) -> tuple[bytes, bytes]:
        read = b""
        while b"\r\n\r\n" not in read:
            part = client.recv(65_536)
            if not part:
                return b"", b""
            read += part
        head, _, body = read.partition(b"\r\n\r\n")
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        while len(body) < length:
            body += client.recv(65_536)
        return head, body

    def _connected(self) -> tuple[socket.socket, int]:
        while True:
            with self._lock:
                port = self.ports[self._next % len(self.ports)]
                self._next += 1
            try:
                return socket.create_connection(("127.0.0.1", port)), port
            except ConnectionRefusedError:
                pass


def _pass(source: socket.socket, to: socket.socket) -> None:
    try:
        while part := source.recv(65_536):
            to.sendall(part)
    except OSError:
        pass
    try:
        to.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
