"""The metrics of the server that `zeus slo` controls, read with a deadline."""

from __future__ import annotations

import http.client
import time

from zeus import __version__
from zeus.cli._remote_node import NodeAddress
from zeus.optimizer.serving._page import Page
from zeus.transport._deadline_connection import DeadlineConnection

_MAX_PAGE = 16 * 2**20  # bytes
_TIMEOUT = 3.0  # seconds for a whole page


class MetricsServer:
    """A server that publishes metrics.

    Args:
        address: Where its page is.
    """

    def __init__(self, address: NodeAddress) -> None:
        self.address = address
        self._connection = DeadlineConnection(address.host, address.port, secure=address.secure)

    def page(self) -> Page:
        """Read the page.

        Raises:
            OSError: If the server cannot be reached in time, or has no such page.
        """
        deadline = time.monotonic() + _TIMEOUT
        try:
            with self._connection.connected(deadline) as sock:
                connection = self._connection.http_on(sock)
                headers = {"User-Agent": f"zeus/{__version__}", "Accept": "text/plain"}
                connection.request("GET", self.address.path, headers=headers)
                response = connection.getresponse()
                content = response.read(_MAX_PAGE + 1)
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP: {error!r}") from None
        if response.status != http.HTTPStatus.OK:
            raise OSError(f"{self.address.path} has status {response.status}")
        if len(content) > _MAX_PAGE or response.length:
            raise OSError("the page is too long, or truncated")
        return Page(content.decode("utf-8", "replace"))
