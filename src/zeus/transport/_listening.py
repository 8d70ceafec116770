"""Sockets that servers listen on."""

from __future__ import annotations

import ipaddress
import socket

from zeus.errors import ServerError


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Args:
        host: A host name or IP address.
        port: Port number; 0 for any free port.

    Raises:
        ServerError: If the address cannot be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ServerError(f"cannot listen on {host} port {port}: {said}") from error


def is_loopback(listening: socket.socket) -> bool:
    """Return whether the socket listens on a loopback address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def address(listening: socket.socket) -> str:
    """Return the URL of the socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
