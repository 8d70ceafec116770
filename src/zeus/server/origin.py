"""Whether a request was sent by a web page of another site.

A page may have the browser send requests anywhere, `fetch` with `mode: "no-cors"` or a form without
asking first, to a server on the visitor's own machine, too. Browsers say where such a request comes
from in headers that no page can change; programs that are no browsers send none of them.
"""

from __future__ import annotations

from collections.abc import Iterable

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

_OWN = ("same-origin", "none")  # "same-site" is any port of this host, whoever serves it
_PORTS = {"http": ":80", "https": ":443"}


def foreign_origin(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Where a request comes from, in words, if that is another site; `None` if not.

    Only host and port of `Origin` and `Host` are compared: before a proxy that speaks TLS the page
    is one of https, and the request comes as one of http.

    Args:
        headers: Of the request, with names in lower case.
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
