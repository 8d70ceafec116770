"""Which tests run without `--thorough`: real runs with tests of each kind."""

from __future__ import annotations

import re
from pathlib import Path

from tests.child_run import child_run

TESTS = """
import pytest

def test_usual(): pass

@pytest.mark.thorough
@pytest.mark.parametrize("number", range(3))
def test_all(number): pass

@pytest.mark.thorough(keep=2)
@pytest.mark.parametrize("number", range(5))
def test_some(number): pass

@pytest.mark.thorough(keep=1)
def test_only(): pass

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_marked(number): pass
"""


def ran(folder: Path, *options: str) -> list[str]:
    done = child_run(folder, TESTS, "-v", *options)
    assert done.returncode == 0, done.stdout
    return re.findall(r"::test_(\S+) PASSED", done.stdout)


def test_variants_that_are_kept_run_always(tmp_path):
    assert ran(tmp_path) == ["usual", "some[0]", "some[4]", "only", "marked[1]"]


def test_all_run_with_the_option(tmp_path):
    assert len(ran(tmp_path, "--thorough")) == 12
