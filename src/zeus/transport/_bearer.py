"""The bearer token that a client sends: validated when it is read, and shown in no message.

A token with a trailing line break, as a file or a shell may add, would be rejected by the HTTP
library with a message that repeats it, and that would reach the log of a training.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading

from zeus.errors import TokenError
from zeus.transport._local_token import local_token

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "ZEUS_TOKEN"


def checked_token(name: str, token: str | None) -> str | None:
    """Return a token without surrounding white space; `None` if nothing is left.

    Raises:
        TokenError: If it is not a valid token. Names its source and the invalid character only.
    """
    if token is None:
        return None
    if not isinstance(token, str):
        raise TokenError(f"{name} must be a string, but got one of type {type(token).__name__}")
    token = token.strip()
    for position, character in enumerate(token, 1):
        if not "!" <= character <= "~":
            raise TokenError(
                f"{name} must be printable ASCII without spaces, but character {position} of "
                f"{len(token)} is {_kind(character)}"
            )
    return token or None


def _kind(character: str) -> str:
    if character in "\r\n":
        return "a line break"
    if character.isspace():
        return "white space"
    return "a control character" if character.isascii() else "not ASCII"


class Bearer:
    """The token of one client; raises `TokenError` if it is not valid.

    By default it is `ZEUS_TOKEN`, or that of this user's own server (`local_token`) for connections
    to this machine.
    """

    def __init__(self, token: str | None = None) -> None:
        given = checked_token("token", token)
        self._token = given or checked_token(TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE))

    def headers(self, sock: socket.socket, *, secure: bool, shown: str) -> dict[str, str]:
        """Return the headers to send over a connection; `shown` is the server, for a warning."""
        token, loopback = self._token, _is_loopback(sock)
        if token is None and loopback:
            token = local_token()  # each time: a server may have created it since
        if token is None:
            return {}
        if not secure and not loopback:
            _warn_once(shown)
        return {"Authorization": f"Bearer {token}"}


def _is_loopback(sock: socket.socket) -> bool:
    """Return whether the peer is on this machine: by address, as names can resolve to anything."""
    return ipaddress.ip_address(sock.getpeername()[0]).is_loopback


_first = threading.Lock()  # taken by the first warning, and never released


def _warn_once(shown: str) -> None:
    if _first.acquire(blocking=False):
        logger.warning(
            "the token is sent to %s over plain http, so that anyone on the network can read it: "
            "put the server behind a TLS proxy, and use https",
            shown,
        )
