"""Detects requests sent by a web page of another site (CSRF).

A page can make the browser send requests anywhere, also to a server on the visitor's own machine:
`fetch` with `mode: "no-cors"` and forms need no preflight. Browsers name the source of such a
request in headers that no page can change; other programs send none of them.
"""

from __future__ import annotations

from collections.abc import Iterable

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

_OWN = ("same-origin", "none")  # "same-site" is any port of this host, also of another server
_PORTS = {"http": ":80", "https": ":443"}


def foreign_origin(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Describe the origin of a request if it is another site; else return `None`.

    Only host and port of `Origin` and `Host` are compared: behind a TLS proxy, the page is loaded
    over https and the request arrives over http.

    Args:
        headers: Request headers, with names in lower case.
    """
    told = [(name, value.decode("latin-1").strip()) for name, value in headers]
    host = next((value for name, value in told if name == b"host"), "")
    for name, value in told:
        if name == b"origin" and not _same(value.lower(), host.lower()):
            return f"Origin {value[:200]!r}, Host {host[:200]!r}"
        if name == b"sec-fetch-site" and value.lower() not in _OWN:
            return f"Sec-Fetch-Site {value[:200]!r}"
    return None


def _same(origin: str, host: str) -> bool:
    scheme, _, place = origin.partition("://")
    port = _PORTS.get(scheme)
    return port is not None and place.removesuffix(port) == host.removesuffix(port) != ""
