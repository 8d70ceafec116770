"""Tables, bars and texts, and what a stream can show of them."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from zeus.cli._output import PreparedFile
from zeus.cli._parser import indices, number, whole_number
from zeus.cli._terminal import Console, clean, clip, number_ranges, pad, width


def console(encoding: str = "utf-8") -> Console:
    return Console(io.TextIOWrapper(io.BytesIO(), encoding=encoding))


def colored() -> Console:
    painted = console()
    painted.colors = True
    return painted


def test_columns_are_aligned():
    rows = [("a", "10 W", "x"), ("bbb", "5 W", "yy")]
    assert console().table(rows, right=(1,)) == ["a    10 W  x", "bbb   5 W  yy"]


def test_the_last_cell_of_a_short_row_may_stick_out():
    rows = [("0", "10 W", "x"), ("1", "a long reason"), ("2", "5 W", "y")]
    assert console().table(rows, right=(1,)) == ["0  10 W  x", "1  a long reason", "2   5 W  y"]


def test_colors_take_no_room():
    painted = colored()
    (line, _) = painted.table([(painted.style("ab", "red"), "x"), ("abcd", "y")])
    assert line == "\x1b[31mab\x1b[0m    x"
    assert width(line) == 7


def test_no_colors_without_a_terminal():
    assert console().style("ab", "red") == "ab"


@pytest.mark.parametrize(
    ("share", "bar"), [(0, "    "), (0.5, "██  "), (1, "████"), (7, "████"), (0.53125, "██▏ ")]
)
def test_bars(share, bar):
    assert console().bar(share, 4) == bar


@pytest.mark.parametrize(("share", "bar"), [(0, "...."), (0.5, "##.."), (1, "####")])
def test_bars_in_ascii(share, bar):
    assert console("ascii").bar(share, 4) == bar


def test_what_the_encoding_lacks_is_spelt_out():
    ascii_only = console("ascii")
    assert ascii_only.table([("1 ± 2", "x"), ("10", "y")]) == ["1 +/- 2  x", "10       y"]
    ascii_only.print("68 °C → 名")
    ascii_only.stream.seek(0)
    assert ascii_only.stream.read() == "68 C -> ?\n"


def test_undecodable_text_can_be_printed():
    utf8 = console()
    utf8.print("\udcff")
    utf8.stream.seek(0)
    assert utf8.stream.read() == "?\n"


def test_text_from_elsewhere_cannot_steer_the_terminal():
    assert clean("evil\x1b[2J\n名") == "evil?[2J?名"


def test_wide_characters_count_twice():
    assert width("名a") == 3
    assert pad("名", 4) == "名  "
    assert clip("名名", 3) == "名"


def test_clipping_keeps_colors_whole():
    assert clip("\x1b[31mabcdef\x1b[0m", 3) == "\x1b[31mabc\x1b[0m"
    assert clip("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2, 5], "0-2, 5"), ([3, 1], "3, 1"), ([], "")]
)
def test_number_ranges(numbers, text):
    assert number_ranges(numbers) == text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0,2", [0, 2]), ("0-3", [0, 1, 2, 3]), (" 1 , 4-5", [1, 4, 5]), ("none", [])],
)
def test_indices(text, numbers):
    assert indices(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "-1", "1.5", "0,,1", "3-1", "99999"])
def test_wrong_indices(text):
    with pytest.raises(argparse.ArgumentTypeError):
        indices(text)


def test_numbers():
    assert number(0.1, unit="seconds")("0.1") == 0.1
    assert number(0, 1)("1e0") == 1.0
    assert whole_number(0, 65535)("65535") == 65535


@pytest.mark.parametrize("text", ["one", "", "nan", "inf", "0", "-1", "2.1"])
def test_wrong_numbers(text):
    with pytest.raises(argparse.ArgumentTypeError, match="seconds, more than 0 and at most 2, but"):
        number(0, 2, unit="seconds", above=True)(text)


@pytest.mark.parametrize("text", ["one", "", "1.0", "0", "-1", "11", "9" * 9999])
def test_wrong_whole_numbers(text):
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1 and at most 10, but got"):
        whole_number(1, 10)(text)


# Files that are whole or absent


def test_a_file_appears_when_it_is_complete(tmp_path):
    file = PreparedFile(str(tmp_path / "out.json"))
    assert not (tmp_path / "out.json").exists()
    file.write(json.dumps({"a": 1}))
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}


def test_an_abandoned_file_leaves_nothing(tmp_path):
    (tmp_path / "out.json").write_text("old")
    PreparedFile(str(tmp_path / "out.json")).close()
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "old"


def test_a_replaced_file_keeps_its_mode_and_a_link_stays_one(tmp_path):
    target = tmp_path / "real.json"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    file = PreparedFile(str(link))
    file.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_and_not_replaced():
    file = PreparedFile("/dev/null")
    file.write("text")
    file.close()
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["missing/out.json", "."])
def test_what_cannot_be_written_is_known_at_once(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="directory"):
        PreparedFile(name)
