"""HTTP requests to a Zeus server.

Only the standard library is used, because this runs inside training scripts. Every request has one
overall deadline, so that a slow, silent or missing server costs a bounded time.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from zeus.errors import ServerError, ZeusError
from zeus.transport._bearer import Bearer
from zeus.transport._deadline_connection import DeadlineConnection

_MAX_RESPONSE = 64 * 1024 * 1024  # bytes


class HttpClient:
    """HTTP client of a server. Thread-safe: each request has its own connection.

    Args:
        url: URL of the server, for example "http://127.0.0.1:8420".
        token: Bearer token, if the server requires one; see `Bearer` for the default.
        timeout: Seconds for one request, from the first byte to the last.
        kinds: Errors that the server may respond with; any other is a `ServerError`.

    Raises:
        ServerError: If the URL is not valid for a server.
        TokenError: If the token is not valid.
    """

    def __init__(
        self, url: str, token: str | None, timeout: float, kinds: Iterable[type[ZeusError]]
    ) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except (ValueError, TypeError, AttributeError):
            host, port = None, None
        if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise ServerError(
                f"a server must be given as http://HOST:PORT, but got {without_secrets(url)!r}"
            )
        self._secure = parts.scheme == "https"
        self._opener = DeadlineConnection(host, port, secure=self._secure)
        self._path = parts.path.rstrip("/")
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"
        self._timeout = timeout
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._headers = {"Accept": "application/json", "Connection": "close"}
        self._bearer = Bearer(token)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        patience: float = 0.0,
    ) -> Any:
        """Send a request and return the response; `None` if it has no content.

        Args:
            method: HTTP method.
            path: Path with its query, quoted.
            body: Sent as JSON.
            patience: Additional seconds of timeout, for long polling.

        Raises:
            ServerError: If there is no response, or an invalid one.
            ZeusError: The error that the server responds with.
        """
        try:
            content = None if body is None else json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ServerError(f"cannot be sent as JSON: {error}") from error
        try:
            status, text = self._exchange(method, path, content, self._timeout + patience)
        except (OSError, http.client.HTTPException, UnicodeError, RuntimeError) as error:
            # RuntimeError: threads cannot be started while the interpreter exits.
            message = str(error) or type(error).__name__
            raise ServerError(f"the server {self._shown} cannot be reached: {message}") from error
        if status == 204:
            return None
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if status == 200 and record is not None:
            return record
        raise self._error(status, record)

    def _exchange(
        self, method: str, path: str, content: bytes | None, timeout: float
    ) -> tuple[int, bytes]:
        began = time.monotonic()
        try:
            with self._opener.connected(began + timeout) as sock:
                return self._send(sock, method, path, content)
        except (OSError, http.client.HTTPException):
            if time.monotonic() - began >= timeout:
                raise TimeoutError(f"no answer within {timeout:g} s") from None
            raise

    def _send(
        self, sock: socket.socket, method: str, path: str, content: bytes | None
    ) -> tuple[int, bytes]:
        connection = self._opener.http_on(sock)
        authorization = self._bearer.headers(sock, secure=self._secure, shown=self._shown)
        headers = {**self._headers, **authorization}
        if content is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, self._path + path, content, headers)
        response = connection.getresponse()
        text = response.read(_MAX_RESPONSE + 1)
        if len(text) > _MAX_RESPONSE:
            raise http.client.HTTPException("the response is too long")
        if response.length:
            raise http.client.HTTPException("the response is truncated")
        return response.status, text

    def _error(self, status: int, record: Any) -> ZeusError:
        fault = record.get("error") if isinstance(record, dict) else None
        fault = fault if isinstance(fault, dict) else {}
        kind, message = str(fault.get("kind", "")), str(fault.get("message", ""))
        if kind in self._kinds:
            return self._kinds[kind](message)
        return ServerError(f"the server {self._shown} answers {status}: {message or 'nonsense'}")


def without_secrets(url: object) -> str:
    """Return a URL without password, query and fragment, any of which may be a secret."""
    head, found, tail = str(url).partition("://")
    address = (tail if found else head).partition("#")[0].partition("?")[0].rpartition("@")[2]
    return f"{head}://{address}" if found else address
