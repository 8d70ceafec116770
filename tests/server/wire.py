"""A few lines of HTTP over asyncio: thousands of requests at once from one process."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class HttpClient:
    """One connection; it is opened when needed, and again after the server has gone."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self._host, self._port = host, port
        self._bearer = "" if token is None else f"Authorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of the answer.

        Raises:
            OSError: If there is none.
        """
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{self._bearer}"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
            self._writer.write(head.encode() + content)
            assert self._reader is not None
            answer = await self._reader.readuntil(b"\r\n\r\n")
            lines = answer.split(b"\r\n")
            length = next(
                int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")
            )
            content = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise ConnectionError(str(error)) from error
        return int(lines[0].split(b" ", 2)[1]), json.loads(content) if content else None

    def close(self) -> None:
        """Give up the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
