"""Keys from the bytes of a terminal."""

from __future__ import annotations

import pytest

from zeus.cli._keys import Key, KeyDecoder


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"qQ", ["q", "Q"]),
        (b"\x1b[A\x1b[B", [Key.UP, Key.DOWN]),
        (b"\x1bOA\x1bOB\x1bOH\x1bOF", [Key.UP, Key.DOWN, Key.HOME, Key.END]),
        (b"\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN]),
        (b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1b[7~\x1b[8~", [Key.HOME, Key.END] * 3),
        (b"\t", [Key.TAB]),
        (b"\x1b[1;5A\x1b[15~\x1b[<0;3;4M\x1bOP", []),  # Ctrl-Up, F5, a click, F1
        (b"\x1bq", ["q"]),  # Escape, or Alt
        (b"\xc3\xa9q", ["�", "�", "q"]),
    ],
)
def test_keys(data, keys):
    assert KeyDecoder().feed(data) == keys


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_sequence_may_arrive_in_pieces(cut):
    decoder = KeyDecoder()
    data = b"\x1b[5~"
    assert decoder.feed(data[:cut]) == []
    assert decoder.feed(data[cut:] + b"q") == [Key.PAGE_UP, "q"]


def test_a_sequence_without_an_end_is_not_kept_for_ever():
    decoder = KeyDecoder()
    for _ in range(10):
        decoder.feed(b"\x1b[" + b"1;" * 40)
    assert decoder.feed(b"q")[-1] == "q"
