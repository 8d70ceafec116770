"""Stands between clients and a real server, and answers some requests itself."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.server.child import Server


@contextlib.contextmanager
def failing(server: Server, fails: Callable[[str, bytes], bool]) -> Iterator[str]:
    """The URL of a server that is the same, but fails (500) for some paths and bodies."""

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if fails(self.path, body):
                self._answer(500, b'{"error":{"kind":"InternalError","message":"it has failed"}}')
                return
            behind = http.client.HTTPConnection(server.host, server.port, timeout=60)
            with contextlib.closing(behind):
                headers = {"Content-Type": "application/json"}
                if "Authorization" in self.headers:
                    headers["Authorization"] = self.headers["Authorization"]
                behind.request(self.command, self.path, body or None, headers)
                answer = behind.getresponse()
                self._answer(answer.status, answer.read())

        do_GET = do_POST = do_PUT = do_DELETE = _pass_on

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
        thread.join()
