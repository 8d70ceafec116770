"""A server that sends the bytes that it is given, in the pieces that it is given."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence

PAUSE = 0.01  # seconds between two pieces, so that they are received apart


class RawServer:
    """Answers each request with bytes, as a thread.

    Args:
        answer: Returns the pieces of the response to a request, which it is given as it was sent.
        keeps: Whether the connection is kept after a response.
    """

    def __init__(self, answer: Callable[[bytes], Sequence[bytes]], *, keeps: bool = False) -> None:
        self.received: list[bytes] = []
        self._answer = answer
        self._keeps = keeps
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, contextlib.suppress(ConnectionError):
            while (request := _received(connection)) is not None:
                self.received.append(request)
                for piece in self._answer(request):
                    connection.sendall(piece)
                    time.sleep(PAUSE)
                if not self._keeps:
                    return


def _received(connection: socket.socket) -> bytes | None:
    found = b""
    while b"\r\n\r\n" not in found:
        piece = connection.recv(65536)
        if not piece:
            return None
        found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    named = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    length = int(named.get(b"content-length", 0))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
