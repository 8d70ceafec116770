"""Signals that the caller of the tests ignores: a real run of pytest, as from a script."""

from __future__ import annotations

import pytest
from tests.child_run import child_run

TESTS = """
import os, signal, subprocess, sys

def test_children_end():
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"):
        child = subprocess.Popen([sys.executable, "-c", "import time; print(); time.sleep(600)"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        child.stdout.readline()
        child.send_signal(getattr(signal, name))
        assert child.wait() == -getattr(signal, name)

def test_the_run_outlives_its_terminal():
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getppid(), signal.SIGHUP)  # with xdist, the controller
"""


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_an_ignored_signal_reaches_children_all_the_same(tmp_path, processes):
    test_file = TESTS if processes else TESTS.replace("getppid", "getpid")
    ignoring = ["sh", "-c", "trap '' HUP INT QUIT TERM; exec \"$@\"", "sh"]
    done = child_run(tmp_path, test_file, *processes, starter=ignoring)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "2 passed" in done.stdout
