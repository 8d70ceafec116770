"""Server-sent events, the form in which OpenAI-compatible servers stream.

An event is one or more lines `data: ...`, ended by an empty line. Pieces of a body end anywhere.
"""

from __future__ import annotations

from zeus.errors import BackendError

MAX_EVENT = 8 * 1024 * 1024  # bytes; an event is some text, or an image at most
DONE = b"[DONE]"


class EventReader:
    """Cuts a body into events."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes, without `data:`.

        Comments and other fields (`event:`, `id:`) are left out.

        Raises:
            BackendError: If an event is longer than any answer.
        """
        text = self._rest + piece if self._rest else piece
        if b"\r" in text:
            held = text.endswith(b"\r")  # the line feed may follow
            text = text.replace(b"\r\n", b"\n")
            if not held:
                text = text.replace(b"\r", b"\n")
        *whole, self._rest = text.split(b"\n\n")
        if len(self._rest) > MAX_EVENT:
            raise BackendError(f"an event of a stream is longer than {MAX_EVENT} bytes")
        return [data for block in whole if (data := _data(block)) is not None]

    def rest(self) -> list[bytes]:
        """Return the data of an event that the end of the body completes, if there is one."""
        data, self._rest = _data(self._rest), b""
        return [] if data is None else [data]


def _data(block: bytes) -> bytes | None:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [
        line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")
    ]
    return b"\n".join(lines) if lines else None
