"""Main function of a worker process: runs tasks from a pipe, until it is closed."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeus.replay.cluster._tasks import Task


def main() -> None:
    """Run tasks; answer each with the numbers of jobs that have started, then with its sums."""
    with Connection(int(sys.argv[2])) as pipe:
        while True:
            try:
                task: Task = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(task.run(pipe.send))
            except BrokenPipeError:
                return
            except Exception as error:
                pipe.send(error)
