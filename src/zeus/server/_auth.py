"""Authentication and request size limits.

A server requires a token. On a loopback address this can be disabled; then it answers only requests
whose `Host` is a loopback name: otherwise any web page could reach it through the visitor's browser
(DNS rebinding).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.errors import StorageError
from zeus.server._metrics import Metrics
from zeus.server._origin import SAFE_METHODS, foreign_origin
from zeus.server._responses import refusal_of
from zeus.server.pages import _assets as assets
from zeus.server.pages._faults import wants_page
from zeus.server.pages._routes import OPEN
from zeus.server.pages._sign_in import cookie_pass, to_sign_in
from zeus.store import Token, Tokens
from zeus.transport._local_token import FILE

MAX_BODY = 1024 * 1024  # bytes
_TOO_LARGE = f"a request body must have at most {MAX_BODY} bytes"
_OPEN = ("/healthz", "/openapi.json", *OPEN)
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
_ONCE = (b"host", b"authorization", b"content-length")  # headers that must not be repeated
_NO_TOKEN = (
    "a token is required, or this one is invalid, expired or revoked: set ZEUS_TOKEN, or send the "
    "header Authorization: Bearer …"
)
# The full path is for the user who started the server only.
_NO_LOCAL_TOKEN = (
    f"{_NO_TOKEN}. Programs of the user who runs this server find it automatically, in the file "
    f"{FILE} of the state directory; in a container, or as another user, set ZEUS_TOKEN to the "
    "content of that file"
)
_CACHED = 2.0  # seconds for which a token is cached
_MAX_CACHED = 1_000


class TokenCache:
    """Checks tokens against the store, with a short cache.

    Args:
        tokens: Tokens in the store.
        now: Clock, in seconds since 1970.
    """

    def __init__(self, tokens: Tokens, now: Callable[[], float]) -> None:
        self._tokens = tokens
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[bytes, tuple[float, Token | None]] = {}

    async def admit(self, authorization: bytes | None) -> Token | None:
        """Return the token in an `Authorization` header if it is valid, else `None`.

        Raises:
            StorageError: If the store cannot be asked.
        """
        scheme, _, secret = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not secret:
            return None
        return await self._find(self._tokens.find, secret)

    async def admit_page(self, kept: bytes) -> Token | None:
        """Return the token that a browser's cookie stands for if it is valid, else `None`.

        Raises:
            StorageError: If the store cannot be asked.
        """
        return await self._find(self._tokens.find_by_pass, kept)

    async def _find(self, find: Callable[[str], Token | None], secret: bytes) -> Token | None:
        # Secrets are not stored in memory, either.
        key = hashlib.sha256(find.__name__.encode() + secret).digest()
        with self._lock:
            at, token = self._seen.get(key, (0.0, None))
        if not 0 <= time.monotonic() - at < _CACHED or token is None:
            token = await run_sync(find, secret.strip().decode("latin-1"))
            with self._lock:
                if len(self._seen) >= _MAX_CACHED:
                    self._seen.clear()
                self._seen[key] = time.monotonic(), token
        return token if token is not None and token.good(self._now()) else None


class AuthMiddleware:
    """ASGI middleware; the outermost, so that no work is done for rejected requests.

    Args:
        app: The application behind it.
        metrics: Counts the requests.
        doorkeeper: Checks tokens; `None` to require none.
        host: An accepted `Host` besides the usual loopback names.
        local: Whether programs of the user who runs the server find a token automatically.
        any_host: Whether any `Host` is accepted without a token: the server is open to all.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        doorkeeper: TokenCache | None,
        host: str,
        *,
        local: bool = False,
        any_host: bool = False,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._doorkeeper = doorkeeper
        self._no_token = _NO_LOCAL_TOKEN if local else _NO_TOKEN
        self._any_host = any_host
        self._hosts = {*_LOOPBACK, host.lower(), f"[{host.lower()}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or reject it; count it either way."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._admit(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "")
            self._metrics.count(scope["method"], route, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        scope.setdefault("state", {}).update(scope=None, read_only=False)
        refusal = _check_headers(scope)
        if refusal is None:
            refusal = await self._check_caller(scope, headers)
        if refusal is None:
            refusal = _check_length(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, _bounded(receive), send)

    async def _check_caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Any:
        if self._doorkeeper is None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            if not self._any_host and _without_port(host) not in self._hosts:
                said = "this server accepts only requests to a loopback address"
                return refusal_of(scope, 403, "TokenError", said)
        elif scope["path"] not in _OPEN and not scope["path"].startswith(assets.PREFIX):
            return await self._check_token(scope, headers)
        return None

    async def _check_token(self, scope: Scope, headers: dict[bytes, bytes]) -> Any:
        assert self._doorkeeper is not None
        authorization = headers.get(b"authorization")
        kept = cookie_pass(scope, headers) if authorization is None else None
        try:
            door = self._doorkeeper
            token = await (door.admit_page(kept) if kept else door.admit(authorization))
        except StorageError:
            said = "the store of this server is unavailable for now"
            return refusal_of(scope, 503, "StorageError", said, **{"Retry-After": "1"})
        if token is None and scope["method"] in ("GET", "HEAD") and wants_page(scope):
            return to_sign_in(scope)
        if token is None:
            bearer = {"WWW-Authenticate": "Bearer"}
            return refusal_of(scope, 401, "TokenError", self._no_token, **bearer)
        if token.read_only and scope["method"] not in SAFE_METHODS:
            said = f"this token is read-only, so {scope['method']} is not allowed"
            return refusal_of(scope, 403, "TokenError", said)
        scope["state"].update(
            scope=token.job, read_only=token.read_only, signed_in=kept is not None
        )
        return None


def _without_port(host: str) -> str:
    head, colon, port = host.rpartition(":")
    return head if colon and port.isdigit() else host


def _check_headers(scope: Scope) -> Any:
    """Reject repeated headers, which are ambiguous, and changes by pages of other sites."""
    names = [name for name, _ in scope["headers"] if name in _ONCE]
    for name in _ONCE:
        if names.count(name) > 1:
            said = (
                f"a request needs one {name.decode().title()} header, but got {names.count(name)}"
            )
            return refusal_of(scope, 400, "RequestError", said)
    origin = None if scope["method"] in SAFE_METHODS else foreign_origin(scope["headers"])
    if origin is not None:
        said = (
            "changes are accepted from programs and from pages of this server only, but this "
            f"request comes from a page of another site ({origin}); a proxy must pass on Host"
        )
        return refusal_of(scope, 403, "RequestError", said)
    return None


def _check_length(scope: Scope, headers: dict[bytes, bytes]) -> Any:
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > MAX_BODY:
        return refusal_of(scope, 413, "TooLargeError", _TOO_LARGE)
    return None


def _bounded(receive: Receive) -> Receive:
    """Limit the size of bodies without a Content-Length."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return counted
