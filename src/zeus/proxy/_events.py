"""Server-sent events, the form in which OpenAI-compatible servers stream.

An event is some lines, among them `data: ...`, ended by an empty line. Lines end with a line feed,
a carriage return, or both. Pieces of a body end anywhere.
"""

from __future__ import annotations

import re

from zeus.errors import BackendError

MAX_EVENT = 8 * 1024 * 1024  # bytes; an event is some text, or an image at most
DONE = b"[DONE]"
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_OVERLAP = 3  # bytes of an incomplete blank line at the end of a piece
_LINE = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the begin of a stream


class EventCutter:
    """Cuts a body into events, none of its bytes left out.

    A line feed may come after the carriage return that has ended an event: it is put before the
    next one.
    """

    __slots__ = ("rest",)

    def __init__(self) -> None:
        #: The begin of an event that is not complete.
        self.rest = b""

    def cut(self, piece: bytes) -> list[bytes]:
        """Return the events that this piece completes, with the empty lines that end them."""
        text, at, start = piece, 0, 0
        if self.rest:
            text, at = self.rest + piece, max(len(self.rest) - _OVERLAP, 0)
        found = []
        while (blank := _BLANK.search(text, at)) is not None:
            at = blank.end()
            found.append(text[start:at])
            start = at
        self.rest = text[start:]
        return found


class EventReader:
    """Reads the data of events."""

    __slots__ = ("_cutter",)

    def __init__(self) -> None:
        self._cutter = EventCutter()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes, without `data:`.

        Comments and other fields (`event:`, `id:`) are left out.

        Raises:
            BackendError: If an event is longer than any answer.
        """
        found = [data for each in self._cutter.cut(piece) if (data := data_of(each)) is not None]
        if len(self._cutter.rest) > MAX_EVENT:
            raise BackendError(f"an event of a stream is longer than {MAX_EVENT} bytes")
        return found

    def rest(self) -> list[bytes]:
        """Return the data of an event that the end of the body completes, if there is one."""
        data, self._cutter.rest = data_of(self._cutter.rest), b""
        return [] if data is None else [data]


def data_of(event: bytes) -> bytes | None:
    """Return the data of an event; `None` if it has none."""
    lines = [each for each in _LINE.split(event.removeprefix(_MARK)) if each.startswith(b"data:")]
    return b"\n".join([each[5:].removeprefix(b" ") for each in lines]) if lines else None


def with_data(event: bytes, data: bytes) -> bytes:
    """Return an event with other data; all else stays as it is.

    Args:
        event: An event that has data.
        data: The other data.
    """
    before = data_of(event)
    if before and event.count(before) == 1:  # in one line
        return event.replace(before, data)
    newline = _LINE.findall(event)[-1] if _LINE.search(event) else b"\n"
    kept = [each for each in _LINE.split(event) if each and not each.startswith(b"data:")]
    lines = [*kept, *(b"data: " + each for each in data.split(b"\n"))]
    return newline.join(lines) + 2 * newline
