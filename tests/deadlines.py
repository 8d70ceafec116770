"""Every test has a deadline, so that one that hangs is named, and the run goes on.

pytest-timeout interrupts the body of a test (`timeout` in pyproject.toml; the mark of that name for
the few that take longer). Fixtures have a deadline of their own here: the first test that asks for
a database, a browser or a compiled driver waits until it is there, which says nothing of that test.
What does not return from C cannot be interrupted; there, `faulthandler_timeout` ends the process.
"""

from __future__ import annotations

import signal

import pytest
from pytest_timeout import Settings

FIXTURES = 600.0
"""Seconds for all fixtures of a test to be set up, and for them to be torn down."""


class DeadlineExceeded(BaseException):
    """A test hangs.

    No `Exception`, which a test or what it tests may catch, nor pytest's `Failed`, after which
    Hypothesis would try the same example again, and hang.
    """


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item, settings):
    """Raise an exception that nobody catches once the stacks are printed."""
    is_set = yield
    interrupt = signal.getsignal(signal.SIGALRM)

    def exceeded(number, frame):
        __tracebackhide__ = True
        assert callable(interrupt)
        try:
            interrupt(number, frame)
        except pytest.fail.Exception:
            raise DeadlineExceeded(f"{item.nodeid}: more than {settings.timeout:g} s") from None

    signal.signal(signal.SIGALRM, exceeded)
    return is_set


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Bound the setup of fixtures."""
    return (yield from _bounded(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Bound the teardown of fixtures."""
    return (yield from _bounded(item))


def _bounded(item):
    settings = Settings(FIXTURES, "signal", func_only=False, disable_debugger_detection=False)
    item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
    try:
        return (yield)
    finally:
        item.ihook.pytest_timeout_cancel_timer(item=item)
