"""Deadlines of tests: real runs of pytest with tests that hang."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests import deadlines
from tests.child_run import child_run

SHORT = ["-o", "timeout=1", "-o", "timeout_func_only=true", "-o", "timeout_method=signal"]

HANGS = """
import threading, time
import pytest
import tests.deadlines
from hypothesis import given, strategies

tests.deadlines.FIXTURES = 3

def hang():
    threading.Event().wait()

def test_body():
    hang()

@pytest.fixture
def setup():
    hang()

def test_setup(setup):
    pass

@pytest.fixture
def teardown():
    yield
    hang()

def test_teardown(teardown):
    pass

@given(strategies.integers())
def test_property(number):  # Hypothesis tries an example again that has failed
    hang()

def test_cautious():
    try:
        hang()
    except Exception:
        hang()

@pytest.mark.real_time
def test_race():
    hang()

@pytest.fixture
def slow():
    time.sleep(1.5)

def test_slow_fixture(slow):
    pass
"""

DEAF = """
import signal, threading

def hang():
    threading.Event().wait()

def test_deaf():  # all signals wait, as they do while C code runs
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    hang()

def test_after_it():
    pass
"""


def test_what_hangs_is_named_and_the_run_goes_on(tmp_path):
    done = child_run(tmp_path, HANGS, *SHORT, "-n", "2")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    for test in ("body", "property", "cautious", "race"):
        assert f"DeadlineExceeded: test_it.py::test_{test}: more than 1 s" in done.stdout
    for test in ("setup", "teardown"):
        assert f"DeadlineExceeded: test_it.py::test_{test}: more than 3 s" in done.stdout
    assert done.stdout.count("in hang\n") == 6  # the line that each of them stands at
    assert "4 failed, 2 passed, 2 errors" in done.stdout  # and none was tried again


def test_also_without_xdist(tmp_path):
    done = child_run(tmp_path, HANGS, *SHORT, "-k", "body or slow")
    assert "DeadlineExceeded: test_it.py::test_body: more than 1 s" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_what_cannot_be_interrupted_ends_its_process(tmp_path):
    last_resort = ["-o", "faulthandler_timeout=2", "-o", "faulthandler_exit_on_timeout=true"]
    done = child_run(tmp_path, DEAF, *SHORT, *last_resort, "-n", "1")
    assert "crashed while running 'test_it.py::test_deaf'" in done.stdout
    assert "in hang\n" in done.stderr
    assert "1 failed, 1 passed" in done.stdout


def test_the_deadlines_fit_into_each_other(request):
    root = Path(__file__).parents[1]
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    marks = [mark for item in request.session.items for mark in item.iter_markers("timeout")]
    bodies = [options["timeout"], *(mark.args[0] for mark in marks)]
    assert max(*bodies, deadlines.FIXTURES) < options["faulthandler_timeout"]
