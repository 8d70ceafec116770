"""Printing for people: aligned tables, bars, colours, and what a stream can show of them."""

from __future__ import annotations

import io
import os
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import TextIO

#: What stands for a character where the encoding has none for it.
_PLAIN = str.maketrans(
    {
        "±": "+/-",
        "µ": "u",
        "→": "->",
        "–": "-",
        "×": "x",
        "°": "",
        "…": "~",
        "·": "|",
        "≥": ">=",
        "≤": "<=",
        "Δ": "change in",
        "█": "#",
        "░": ".",
    }
)
_PARTS_OF_A_BLOCK = " ▏▎▍▌▋▊▉"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}

MISSING = "-"
"""Stands for a value that could not be had. Never 0."""


class Console:
    """A stream, and what it can show.

    Attributes:
        interactive: Whether a person is looking at it.
        can_be_steered: Whether it is a terminal that understands escape sequences.
        colours: Whether to use them (a terminal, and `NO_COLOR` is not set).
        unicode: Whether its encoding knows the characters that are used here.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # Python has no stream where the caller has closed it.
        self.stream: TextIO = stream if stream is not None else io.StringIO()
        self.interactive = self.stream.isatty()
        self.can_be_steered = self.interactive and os.environ.get("TERM", "") not in ("", "dumb")
        self.colours = self.can_be_steered and not os.environ.get("NO_COLOR")
        self.unicode = _knows(self.stream.encoding, "±→█▏°")

    def print(self, *lines: str) -> None:
        """Print lines, as far as the stream can show them."""
        self.write("".join(line + "\n" for line in lines))

    def write(self, text: str) -> None:
        """Write text at once and flush, so that it keeps its place beside other writers."""
        encoding = self.stream.encoding or "utf-8"
        text = self.plain(text)
        self.stream.write(text.encode(encoding, "replace").decode(encoding))
        self.stream.flush()

    def plain(self, text: str) -> str:
        """The text in characters that this stream has."""
        return text if self.unicode else text.translate(_PLAIN)

    def style(self, text: str, *names: str) -> str:
        """Colour or weight, where there are colours."""
        if not self.colours or not names or not text:
            return text
        return f"\x1b[{';'.join(str(_STYLES[name]) for name in names)}m{text}\x1b[0m"

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            return 80, 24
        return size.columns or 80, size.lines or 24

    def table(
        self,
        rows: Sequence[Sequence[str]],
        right: Collection[int] = (),
        indent: str = "",
        gap: str = "  ",
    ) -> list[str]:
        """Lines with aligned columns.

        Args:
            rows: Cells; rows may be shorter than others. A row's last cell may stick out.
            right: Columns that are aligned to the right.
            indent: Put in front of each line.
            gap: Put between columns.
        """
        cells = [[self.plain(cell) for cell in row] for row in rows]
        columns = max((len(row) for row in cells), default=0)
        widths = [
            max((width(row[at]) for row in cells if len(row) > at + 1 or len(row) == columns > at),
                default=0)
            for at in range(columns)
        ]  # fmt: skip
        return [
            (
                indent + gap.join(pad(cell, widths[at], at in right) for at, cell in enumerate(row))
            ).rstrip()
            for row in cells
        ]

    def bar(self, share: float | None, length: int) -> str:
        """A bar that is full at 1; an unknown share is an empty one."""
        filled = min(max(share or 0.0, 0.0), 1.0) * length
        if not self.unicode:
            return "#" * round(filled) + "." * (length - round(filled))
        eighths = round(filled * 8)
        whole, rest = divmod(eighths, 8)
        text = "█" * whole + (_PARTS_OF_A_BLOCK[rest] if rest else "")
        return text + " " * (length - len(text))


def _knows(encoding: str | None, characters: str) -> bool:
    try:
        characters.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def clean(text: str) -> str:
    """Text from elsewhere (a process's name) without anything that steers a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def width(text: str) -> int:
    """How many columns a text takes, colours not counted."""
    return sum(_columns(character) for character in _ESCAPE.sub("", text))


def _columns(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, columns: int, right: bool = False) -> str:
    """Fill up with spaces."""
    space = " " * max(columns - width(text), 0)
    return space + text if right else text + space


def clip(text: str, columns: int) -> str:
    """Cut off what does not fit, colours unharmed."""
    if width(text) <= columns:
        return text
    taken: list[str] = []
    left = columns
    at = 0
    while at < len(text):
        escape = _ESCAPE.match(text, at)
        if escape:
            taken.append(escape[0])
            at = escape.end()
            continue
        left -= _columns(text[at])
        if left < 0:
            break
        taken.append(text[at])
        at += 1
    if "\x1b" in text:
        taken.append("\x1b[0m")
    return "".join(taken)


def number_ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2 and 5 as "0-2, 5"."""
    parts: list[str] = []
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at < len(numbers) and numbers[at] == numbers[at - 1] + 1:
            continue
        first, last = numbers[begin], numbers[at - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}")
        begin = at
    return ", ".join(parts)
