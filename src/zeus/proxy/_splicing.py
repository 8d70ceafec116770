"""Sets one member of a JSON object in its text: all other bytes stay as they are.

Servers and clients write JSON with spaces, escapes and numbers of their own. What is parsed and
written again is the same to a parser, but no longer the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import WHITESPACE, scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

_decoder = json.JSONDecoder()


class _Member(NamedTuple):
    """Where an object has a member."""

    begin: int  # of its value
    end: int
    first: bool  # whether there is no member yet, where it is not there
    found: bool


def with_member(text: bytes, names: Sequence[str], value: bytes) -> bytes:
    """Return the text of an object with a member set.

    Args:
        text: A valid JSON object, in UTF-8.
        names: The names of the objects that the member is in, which must be there, and its own.
        value: JSON.

    Raises:
        ValueError: If it is no such object.
    """
    string = text.decode()
    at = _skip(string, 0)
    *outer, name = names
    for each in outer:
        at = _member(string, at, each).begin
    begin, end, first, found = _member(string, at, name)
    comma = "" if found or first else ","
    label = "" if found else f"{json.dumps(name)}:"
    return "".join((string[:begin], comma, label, value.decode(), string[end:])).encode()


def _member(text: str, at: int, name: str) -> _Member:
    """Find a member of the object that begins at `at`: the last one, as parsers do."""
    if text[at : at + 1] != "{":
        raise ValueError("this is no JSON object")
    begin = end = last = at + 1
    found, first = False, True
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = scanstring(text, at + 1, False)
        start = _skip(text, _skip(text, at) + 1)  # behind the colon
        _, last = _decoder.raw_decode(text, start)
        if key == name:
            begin, end, found = start, last, True
        first = False
        at = _skip(text, last)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return _Member(begin, end, first, True) if found else _Member(last, last, first, False)


def _skip(text: str, at: int) -> int:
    found: re.Match[str] = WHITESPACE.match(text, at)
    return found.end()
