"""Children of the tests begin with the usual signals, wherever the tests themselves were started.

A shell starts its background with SIGINT and SIGQUIT ignored, and `nohup` ignores SIGHUP. Children
would inherit that, and wait for ever for the signals that tests send them.
"""

from __future__ import annotations

import signal
from typing import Any


def _nothing(_number, _frame):
    """Ignore a signal: unlike SIG_IGN, a handler is not inherited."""


_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: _nothing,  # a run under nohup outlives its terminal
}


def pytest_configure(config):
    """End what was ignored in the process that runs tests, before any of them starts another."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        return  # the controller of xdist runs none, and its workers inherit from it
    for number, usual in _USUAL.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
