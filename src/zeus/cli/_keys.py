"""Keys of a terminal, from the bytes that it sends for them."""

from __future__ import annotations

import re
from enum import StrEnum


class Key(StrEnum):
    """Keys that are no character."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    TAB = "tab"


_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_MAX_PENDING = 32  # characters of a sequence that has not ended
_KEYS = {
    "[A": Key.UP,
    "[B": Key.DOWN,
    "[5~": Key.PAGE_UP,
    "[6~": Key.PAGE_DOWN,
    "[H": Key.HOME,
    "[1~": Key.HOME,
    "[7~": Key.HOME,
    "[F": Key.END,
    "[4~": Key.END,
    "[8~": Key.END,
}
# The same keys in the application mode of a terminal.
_KEYS |= {f"O{name[-1]}": key for name, key in _KEYS.items() if not name.endswith("~")}


class KeyDecoder:
    """Decodes keys; a sequence may arrive in pieces."""

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys in some bytes: a `Key` each, or a character.

        Sequences of unknown keys are dropped as a whole: their letters are no commands.
        """
        text = self._pending + data.decode("ascii", "replace")
        self._pending = ""
        keys: list[str] = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                keys.append(Key.TAB if text[at] == "\t" else text[at])
                at += 1
                continue
            if found := _SEQUENCE.match(text, at):
                key = _KEYS.get(found[0][1:])
                keys += [key] if key is not None else []
                at = found.end()
            elif _BEGUN.match(text, at) and len(text) - at < _MAX_PENDING:
                self._pending = text[at:]
                break
            else:
                at += 1  # Escape by itself, or with a character
        return keys
