"""Tests marked `real_time` are tried again, but not often in one run.

A test that races a clock may lose on a busy host; a mistake fails every time. So such a test is
tried up to three times. A run with more than a handful of further tries fails all the same: then
a test has a race of its own, or the host is too busy for the run to mean anything.
"""

from __future__ import annotations

import pytest

TRIES_AGAIN = 2
"""Further tries of one test."""
MAX_RERUNS = 5
"""Further tries of all tests of a run that still count as green."""


def pytest_configure(config):
    """Count where all reports arrive: in the only process, or in the controller of xdist."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Budget())


def pytest_collection_modifyitems(items):
    """Let pytest-rerunfailures try tests in real time again, but none that hangs."""
    again = pytest.mark.flaky(reruns=TRIES_AGAIN, rerun_except=["DeadlineExceeded"])
    for item in items:
        if item.get_closest_marker("real_time"):
            item.add_marker(again)


class _Budget:
    def __init__(self):
        # A try that fails in its teardown as well has two reports.
        self._tries = {}

    def pytest_runtest_logreport(self, report):
        if report.outcome == "rerun":
            self._tries.setdefault((report.nodeid, report.rerun), report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if len(self._tries) > MAX_RERUNS and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if not self._tries:
            return
        terminalreporter.section(f"tried again: {len(self._tries)} (at most {MAX_RERUNS})")
        for (test, _), report in self._tries.items():
            terminalreporter.line(f"RERUN {test} - {_reason(report)}")
        if len(self._tries) > MAX_RERUNS:
            terminalreporter.line("FAILED: too many tests were tried again", red=True)


def _reason(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr)).partition("\n")[0]
