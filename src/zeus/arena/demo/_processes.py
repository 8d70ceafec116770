"""Starts the models of the demonstration, each in a process that ends with this one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from zeus.arena.demo._models import MODELS, demo_models
from zeus.errors import ArenaError


@contextlib.contextmanager
def demo_servers() -> Iterator[list[tuple[str, str]]]:
    """Start the models; yield name and URL of each, and stop them at the end.

    Raises:
        ArenaError: If one does not start.
    """
    with contextlib.ExitStack() as stack:
        started = [(key, stack.enter_context(_process(key))) for key in demo_models()]
        yield [(MODELS[key].name, _url(key, process)) for key, process in started]


@contextlib.contextmanager
def _process(key: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "zeus.arena.demo", key]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _url(key: str, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("http://"):  # whatever else a library prints
            return line.strip()
    raise ArenaError(f"the model {MODELS[key].name!r} of the demonstration does not start")
