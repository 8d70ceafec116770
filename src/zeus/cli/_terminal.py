"""Terminal output: aligned tables, bars and colors, as far as the stream supports them."""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, TextIO

#: Replacements for characters that the encoding lacks.
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
        "↑": "^",
        "↓": "v",
    }
)
_PARTS_OF_A_BLOCK = " ▏▎▍▌▋▊▉"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}

MISSING = "-"
"""Placeholder for an unknown value, which is never shown as 0."""


class Result(Protocol):
    """The result of a command."""

    def to_dict(self) -> dict[str, Any]:
        """Return it in the form of JSON."""

    def lines(self, console: Console) -> list[str]:
        """Return it as text."""


class Console:
    """An output stream and its capabilities."""

    def __init__(self, stream: TextIO | None) -> None:
        # The stream is None if the caller has closed it.
        self.stream: TextIO = stream if stream is not None else io.StringIO()
        self.interactive = self.stream.isatty()
        # Whether it supports escape sequences.
        self.can_be_steered = self.interactive and os.environ.get("TERM", "") not in ("", "dumb")
        self.colors = self.can_be_steered and not os.environ.get("NO_COLOR")
        self.unicode = _knows(self.stream.encoding, "±→█▏°")

    def print(self, *lines: str) -> None:
        """Print lines; unsupported characters are replaced."""
        self.write("".join(line + "\n" for line in lines))

    def print_json(self, value: Any) -> None:
        """Print a value as JSON."""
        self.print(json.dumps(value, indent=2))

    def print_result(self, result: Result, *, as_json: bool) -> None:
        """Print a result as JSON or as text."""
        if as_json:
            self.print_json(result.to_dict())
        else:
            self.print(*result.lines(self))

    def print_table(self, rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
        """Print a table; the first row is its heading."""
        self.print(*self.table(rows, right, heading=True))

    def write(self, text: str) -> None:
        """Write text in one call and flush, so that it does not mix with other writers."""
        encoding = self.stream.encoding or "utf-8"
        text = self.plain(text)
        self.stream.write(text.encode(encoding, "replace").decode(encoding))
        self.stream.flush()

    def plain(self, text: str) -> str:
        """Return the text with unsupported characters replaced."""
        return text if self.unicode else text.translate(_PLAIN)

    def style(self, text: str, *names: str) -> str:
        """Apply colors or weights, if the stream has colors."""
        if not self.colors or not names or not text:
            return text
        return f"\x1b[{';'.join(str(_STYLES[name]) for name in names)}m{text}\x1b[0m"

    def size(self) -> tuple[int, int]:
        """Return columns and lines of the terminal; 80 and 24 if unknown."""
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
        heading: bool = False,
    ) -> list[str]:
        """Return lines with aligned columns.

        Args:
            rows: Cells; rows may differ in length. The last cell of a short row may overflow.
            right: Indices of right-aligned columns.
            indent: Prefix of each line.
            gap: Separator of columns.
            heading: Whether the first row is a heading.
        """
        cells = [[self.plain(cell) for cell in row] for row in rows]
        columns = max((len(row) for row in cells), default=0)
        widths = [
            max((width(row[at]) for row in cells if len(row) > at + 1 or len(row) == columns > at),
                default=0)
            for at in range(columns)
        ]  # fmt: skip
        lines = []
        for row in cells:
            padded = [pad(cell, widths[at], at in right) for at, cell in enumerate(row)]
            lines.append((indent + gap.join(padded)).rstrip())
        return [self.style(lines[0], "bold"), *lines[1:]] if heading else lines

    def bar(self, share: float | None, length: int) -> str:
        """Return a bar that is full at 1, and empty for an unknown share."""
        filled = min(max(share or 0.0, 0.0), 1.0) * length
        if not self.unicode:
            return "#" * round(filled) + "." * (length - round(filled))
        eighths = round(filled * 8)
        whole, part = divmod(eighths, 8)
        text = "█" * whole + (_PARTS_OF_A_BLOCK[part] if part else "")
        return text + " " * (length - len(text))


def _knows(encoding: str | None, characters: str) -> bool:
    try:
        characters.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def clean(text: str) -> str:
    """Replace nonprintable characters of untrusted text, such as escape sequences."""
    return "".join(character if character.isprintable() else "?" for character in text)


def width(text: str) -> int:
    """Return the number of columns of a text, without escape sequences."""
    if text.isascii() and text.isprintable():  # most texts, and much faster
        return len(text)
    return sum(_columns(character) for character in _ESCAPE.sub("", text))


def _columns(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, columns: int, right: bool = False) -> str:
    """Pad text with spaces to a width."""
    space = " " * max(columns - width(text), 0)
    return space + text if right else text + space


def clip(text: str, columns: int) -> str:
    """Truncate text to a width, keeping its colors intact."""
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


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 GPU" or "2 GPUs"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def sections(parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of all nonempty parts, with a blank line between two parts."""
    return [line for part in parts if part for line in ("", *part)][1:]


def number_ranges(numbers: Sequence[int]) -> str:
    """Format sorted numbers as ranges, such as "0-2, 5"."""
    parts: list[str] = []
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at < len(numbers) and numbers[at] == numbers[at - 1] + 1:
            continue
        first, last = numbers[begin], numbers[at - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}")
        begin = at
    return ", ".join(parts)
