"""A stream of a back end as its client gets it: the same bytes, and at the end the energy.

The end is held until all of it has arrived, usually in the same packet, and gets the energy: in
`usage.energy` where the client has asked for usage, else as a field `energy` of the last chunk with
a choice: many clients expect token counts wherever there is a `usage`, and ignore fields that they
do not know.

Most events differ from the one before only in their text. They are recognized by the bytes before
and after it, and not parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from zeus.proxy._client import Usage, parsed
from zeus.proxy._events import DONE, MAX_EVENT, EventCutter, data_of, with_data
from zeus.proxy._splicing import with_member

#: Returns the energy as it is stated to the client; `None` if there is nothing to state.
Measure = Callable[["MeteredStream"], dict[str, Any] | None]

_MAX_FRAMES = 64  # lengths of chunks
_NULL = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')
_TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning)"\s*:\s*"((?:[^"\\]|\\.)*)"')


class MeteredStream:
    """Counts the tokens of a stream, and puts the energy into its end.

    Args:
        token: Called with the number of tokens that have come.
        measure: Ends the measurement.
        usage_asked: Whether the client has asked for usage.
        choices: Number of answers that it has asked for.

    Attributes:
        usage: The tokens, once the back end has stated them.
        failed: Whether the back end has reported an error.
    """

    def __init__(
        self,
        token: Callable[[int], None],
        measure: Measure,
        *,
        usage_asked: bool,
        choices: int,
    ) -> None:
        self.usage: Usage | None = None
        self.failed = False
        self._token = token
        self._measure = measure
        self._usage_asked = usage_asked
        self._choices = choices
        self._cutter = EventCutter()
        self._held: list[bytes] = []  # events of the end
        self._finishes = 0
        # What is before and after the text of an event that is nothing but text; and the same as it
        # is passed on, where that differs.
        self._head = b""
        self._tail: bytes | tuple[bytes, ...] = ()  # which nothing ends with
        self._changed: tuple[bytes, bytes] | None = None
        # What ends such an event as a chunk of its own, if it may pass as it is.
        self._chunk_tail: bytes | tuple[bytes, ...] = ()
        # How such a chunk begins, and where its text does and ends, by its length.
        self._frames: dict[int, tuple[bytes, int, int]] = {}

    def feed(self, data: bytes) -> bytes:
        """Return what is passed on of a piece."""
        if self._is_text(data) and not self._held and not self._cutter.rest:
            self._token(1)
            return data if self._changed is None else self._as_changed(data, *self._changed)
        ready: list[bytes] = []
        for event in self._cutter.cut(data):
            self._pass(event, ready)
        if len(self._cutter.rest) > MAX_EVENT:  # no event is as long: pass on what is not one
            ready += [*self._held, self._cutter.rest]
            self._held.clear()
            self._cutter.rest = b""
        alone = not (self._held or self._cutter.rest or self._changed) and self._head
        self._chunk_tail = self._tail + b"\r\n" if alone and isinstance(self._tail, bytes) else ()
        return b"".join(ready)

    def chunk_passer(self, send: Callable[[bytes], None]) -> Callable[[bytes], bool]:
        """Return what passes on a chunk of the body, with its framing, if it can do without `feed`.

        It can if all before was passed on, and the chunk is an event that differs from an earlier
        one only in its text. Nearly all of a stream does: it is neither parsed nor framed again.

        Args:
            send: Sends chunks with their framing.
        """
        token, frames = self._token, self._frames

        def passed(framed: bytes) -> bool:
            if not framed.endswith(self._chunk_tail):
                return False
            begin, text, end = frames.get(len(framed)) or self._learn_frame(len(framed))
            if not framed.startswith(begin) or framed.find(b'"', text, end) >= 0:
                return False
            token(1)
            send(framed)
            return True

        return passed

    def end(self) -> bytes:
        """Return what is passed on at the end of the stream."""
        if self._cutter.rest:
            self._held.append(self._cutter.rest)
            self._cutter.rest = b""
        ready: list[bytes] = []
        self._release(ready)
        return b"".join(ready)

    def broken(self) -> bytes:
        """Return what has come of a stream that has broken off, and was not passed on."""
        return b"".join((*self._held, self._cutter.rest))

    def _is_text(self, event: bytes) -> bool:
        """Return whether an event differs from an earlier one only in its text."""
        if not event.endswith(self._tail) or not event.startswith(self._head):
            return False
        assert isinstance(self._tail, bytes)
        begin, end = len(self._head), len(event) - len(self._tail)
        return begin < end and event.find(b'"', begin, end) < 0

    def _as_changed(self, event: bytes, head: bytes, tail: bytes) -> bytes:
        return head + event[len(self._head) : len(event) - len(self._tail)] + tail

    def _pass(self, raw: bytes, ready: list[bytes]) -> None:
        """Count an event, and pass it on or hold it."""
        if self._is_text(raw):
            self._token(1)
            if self._changed is not None:
                raw = self._as_changed(raw, *self._changed)
            self._pass_on(raw, ready)
            return
        content = data_of(raw)
        if content is not None and content.strip() == DONE:
            self._held.append(raw)
            self._release(ready)
            return
        data = parsed(content) if content else None
        if data is None:
            self._pass_on(raw, ready)
            return
        usage = Usage.of(data.get("usage"))
        self.usage = usage or self.usage
        if usage is not None and not data.get("choices"):
            self._held.append(raw)
            return
        if "error" in data and "choices" not in data:
            self.failed = True
        shown = raw
        if not self._usage_asked and data.get("usage", 0) is None and raw.count(b'"usage"') == 1:
            shown = _NULL.sub(b"", raw)
        finishes = _finishes(data)
        if _has_text(data):
            self._token(1)
            if not finishes and usage is None and self._choices == 1:
                self._learn(raw, shown)
        self._finishes += finishes
        if finishes and self._finishes >= self._choices:
            self._held.append(shown)
        else:
            self._pass_on(shown, ready)

    def _pass_on(self, raw: bytes, ready: list[bytes]) -> None:
        if self._held:  # the end was not the end
            ready += self._held
            self._held.clear()
        ready.append(raw)

    def _learn(self, raw: bytes, shown: bytes) -> None:
        """Learn what is before and after the text of an event that is nothing but text."""
        texts = list(_TEXT.finditer(raw))
        if len(texts) != 1:
            return
        begin, end = texts[0].span(1)
        self._head, self._tail, self._changed = raw[:begin], raw[end:], None
        self._frames.clear()
        if shown is not raw:
            begin, end = next(_TEXT.finditer(shown)).span(1)
            self._changed = shown[:begin], shown[end:]

    def _learn_frame(self, size: int) -> tuple[bytes, int, int]:
        """Return how a chunk of a length begins, and where its text does and ends."""
        fixed = len(self._head) + len(self._tail)
        length = next((size - n - 4 for n in range(1, 8) if len(b"%x" % (size - n - 4)) == n), 0)
        begin = b"%x\r\n" % length + self._head
        frame = (begin, len(begin), len(begin) + length - fixed)
        if length <= fixed:
            frame = b"\n", 0, 0  # with which none begins
        elif len(self._frames) < _MAX_FRAMES:
            self._frames[size] = frame
        return frame

    def _release(self, ready: list[bytes]) -> None:
        """Pass on the end of a stream, with the energy."""
        energy = self._measure(self)
        held, self._held = self._held, []
        ready += held if energy is None else self._with_energy(held, as_json(energy))

    def _with_energy(self, held: list[bytes], energy: bytes) -> list[bytes]:
        """Return the end of a stream with the energy, and without usage that was not asked for."""
        found: list[bytes] = []
        chunks: list[int] = []  # those of them that are objects
        stated = False
        hidden: dict[str, Any] = {}
        for raw in held:
            data = _object_of(raw)
            usage = data.get("usage") if data is not None else None
            if data is not None and isinstance(usage, dict):
                if not self._usage_asked and not data.get("choices"):
                    hidden = data
                    continue
                raw = _set(raw, ("usage", "energy"), energy)  # noqa: PLW2901
                stated = True
            elif data is not None:
                chunks.append(len(found))
            found.append(raw)
        if chunks and not stated and not self._usage_asked:
            raw = found[chunks[0]]
            # Servers state more in their last chunk (llama.cpp: timings), whichever it is.
            own = _object_of(raw) or {}
            for name, value in hidden.items():
                if name != "usage" and name not in own:
                    raw = _set(raw, (name,), as_json(value))
            found[chunks[0]] = _set(raw, ("energy",), energy)
        return found


def as_json(data: object) -> bytes:
    """Return JSON as short as servers write it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a character that only an escape can state
        return json.dumps(data, separators=(",", ":")).encode()


def _set(raw: bytes, names: tuple[str, ...], value: bytes) -> bytes:
    """Return an event with a member of its object set."""
    try:
        return with_data(raw, with_member(data_of(raw) or b"", names, value))
    except ValueError:  # in another encoding than UTF-8
        return raw


def _object_of(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object of an event; `None` if it has none."""
    content = data_of(raw)
    return parsed(content) if content else None


def _choices_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    found = data.get("choices")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _finishes(data: dict[str, Any]) -> int:
    # An empty reason is none.
    return sum(bool(choice.get("finish_reason")) for choice in _choices_of(data))


def _has_text(data: dict[str, Any]) -> bool:
    """Return whether a chunk has something generated: text, reasoning, a call of a tool."""
    for choice in _choices_of(data):
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if any(value for name, value in delta.items() if name != "role"):
                return True
        elif choice.get("text"):
            return True
    return False
