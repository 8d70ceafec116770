"""How often tests may be tried again, and how many: real runs with tests that fail at first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.child_run import child_run

RACES = """
import pytest

tried = set()

@pytest.mark.real_time
@pytest.mark.parametrize("number", range({count}))
def test_race(number):
    if number not in tried:
        tried.add(number)
        raise AssertionError("lost the race")
"""

OTHERS = """
import pytest

tries = []

@pytest.fixture
def broken():
    yield
    assert len(tries) > 2, "fails in its teardown as well"

@pytest.mark.real_time
def test_each_try_counts_once(broken):
    tries.append(1)
    assert len(tries) > 2

def test_without_the_mark():
    raise AssertionError
"""


@pytest.fixture(params=[[], ["-n", "2"]], ids=["one process", "xdist"])
def options(request):
    return request.param


def test_five_further_tries_are_green_and_named(tmp_path, options):
    done = child_run(tmp_path, RACES.format(count=5), *options)
    assert done.returncode == pytest.ExitCode.OK
    assert "tried again: 5 (at most 5)" in done.stdout
    for number in range(5):
        again = f"RERUN test_it.py::test_race[{number}] - AssertionError: lost the race"
        assert done.stdout.count(again) == 1
    assert "too many" not in done.stdout


def test_six_further_tries_fail_the_run(tmp_path, options):
    done = child_run(tmp_path, RACES.format(count=6), *options)
    assert "6 passed, 6 rerun" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "tried again: 6 (at most 5)" in done.stdout
    assert "too many tests were tried again" in done.stdout


def test_only_tests_in_real_time_are_tried_again(tmp_path, options):
    done = child_run(tmp_path, OTHERS, *options)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in done.stdout
    assert "tried again: 2 (at most 5)" in done.stdout
    assert done.stdout.count("RERUN test_it.py::test_each_try_counts_once") == 2


# --- how many -------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
MAX_MARKED = 150
"""Test functions of the project that may race a clock."""


def marked_tests(body: list[ast.stmt], inherited: bool = False) -> Iterator[str]:
    """Names of the test functions that are marked, by themselves or by their class."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            marked = inherited or any("real_time" in ast.unparse(d) for d in node.decorator_list)
            if isinstance(node, ast.ClassDef):
                yield from marked_tests(node.body, marked)
            elif marked and node.name.startswith("test_"):
                yield node.name


def test_few_tests_are_marked_and_no_modules():
    marked: list[str] = []
    for folder in ("tests", "drivers/tests"):
        for path in (ROOT / folder).rglob("test_*.py"):
            module = ast.parse(path.read_text(encoding="utf-8"))
            assigned = [ast.unparse(node) for node in module.body if isinstance(node, ast.Assign)]
            marks = [each for each in assigned if each.startswith("pytestmark")]
            assert not any("real_time" in mark for mark in marks), path
            marked += marked_tests(module.body)
    assert len(marked) <= MAX_MARKED
