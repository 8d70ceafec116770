"""The page of metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

import socket
import threading
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from zeus.errors import TelemetryError
from zeus.telemetry._collection import MetricCollector
from zeus.telemetry._text_format import CONTENT_TYPE, TextFormat

_IDLE = 300.0  # seconds after which an unused connection is closed
_MAX_CONNECTIONS = 64
_MAX_LINE = 8192  # bytes of a request's line
_MAX_HEADERS = 100
_TEXT = "text/plain; charset=utf-8"
_HOME = (
    b"<!doctype html><title>Zeus</title><p>Metrics of this node are at "
    b'<a href="/metrics">/metrics</a>.\n'
)


class MetricsServer(ThreadingTCPServer):
    """Serves `/metrics`, read at the time of each request.

    Args:
        host: Address or name to listen on.
        port: Port; 0 for any that is free.
        telemetry: Reads the node.

    Raises:
        TelemetryError: If the address cannot be used.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, telemetry: MetricCollector) -> None:
        self._telemetry = telemetry
        self._format = TextFormat()
        self._connections = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = found[0][0]
            super().__init__(found[0][4][:2], _Handler)  # type: ignore[arg-type]
        except (OSError, OverflowError, UnicodeError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise TelemetryError(f"cannot listen on {host} port {port}: {said}") from error

    @property
    def url(self) -> str:
        """Address of the page."""
        host, port = self.server_address[:2]
        name = host if isinstance(host, str) else host.decode()
        return f"http://[{name}]:{port}/metrics" if ":" in name else f"http://{name}:{port}/metrics"

    def page(self) -> bytes:
        """Read the node and return the page."""
        return self._format.text(self._telemetry.collect()).encode()

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002
        """Refuse a connection if there are too many: each has a thread."""
        return self._connections.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of connections: a client may go at any time."""


class _Handler(StreamRequestHandler):
    """Answers the requests of one connection.

    Prometheus sends the same request every few seconds, so the standard library's handler, which
    parses all headers as those of a mail, would take as long as reading eight GPUs.
    """

    server: MetricsServer
    timeout = _IDLE
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Answer until the client closes the connection, or asks for that."""
        while self._answer_one():
            pass

    def _answer_one(self) -> bool:
        words = self.rfile.readline(_MAX_LINE + 1).split()
        if not words:
            return False
        headers = self._headers()
        if headers is None or len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self._send("400 Bad Request", _TEXT, b"this is not HTTP/1\n", head=False, close=True)
            return False
        method, target, version = words
        head = method == b"HEAD"
        wanted = headers.get(b"connection", b"").lower()
        close = wanted == b"close" or (version == b"HTTP/1.0" and wanted != b"keep-alive")
        # A body would be read as the next request.
        close = close or b"content-length" in headers or b"transfer-encoding" in headers
        path = target.partition(b"?")[0]
        if not head and method != b"GET":
            self._send("405 Method Not Allowed", _TEXT, b"use GET\n", head=False, close=True)
            return False
        if path == b"/metrics":
            page = self.server.page()
            self._send("200 OK", CONTENT_TYPE, page, head=head, close=close)
        elif path == b"/":
            self._send("200 OK", "text/html; charset=utf-8", _HOME, head=head, close=close)
        else:
            body = b"the only page is /metrics\n"
            self._send("404 Not Found", _TEXT, body, head=head, close=close)
        return not close

    def _headers(self) -> dict[bytes, bytes] | None:
        """Return the headers by name in small letters; `None` if there are too many."""
        found: dict[bytes, bytes] = {}
        for _ in range(_MAX_HEADERS):
            line = self.rfile.readline(_MAX_LINE + 1)
            if line in (b"\r\n", b"\n", b""):
                return found
            if len(line) > _MAX_LINE:
                return None
            name, _, value = line.partition(b":")
            found[name.strip().lower()] = value.strip()
        return None

    def _send(self, status: str, kind: str, body: bytes, *, head: bool, close: bool) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        if close:
            lines.append("Connection: close")
        top = "\r\n".join([*lines, "", ""]).encode()
        self.wfile.write(top if head else top + body)
