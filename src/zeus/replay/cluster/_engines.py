"""Engines that run tasks: in this process, in worker processes on all cores, or on a Ray cluster.

The result does not depend on the engine. Every engine is a generator of finished tasks, in any
order; `started` is called with the number of jobs that have started, for a progress bar.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zeus.errors import MissingExtraError, WorkerError

if TYPE_CHECKING:
    from zeus.replay.cluster._groups import Sums
    from zeus.replay.cluster._tasks import Task

logger = logging.getLogger(__name__)

T = TypeVar("T")
Started = Callable[[int], None]
Done = Iterator[tuple[int, "Sums"]]

ENGINES = ("local", "ray")
# One thread per process: the arrays are small, and the processes already use all cores.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ROOT = str(Path(__file__).resolve().parents[3])
_WORKER = (
    "import sys; sys.path.append(sys.argv[1]); from zeus.replay.cluster._worker import main; main()"
)


def run_tasks(
    tasks: Sequence[Task],
    engine: str,
    workers: int | None,
    address: str | None,
    started: Started,
) -> Done:
    """Run tasks.

    Args:
        tasks: The tasks, longest first.
        engine: "local" or "ray".
        workers: Number of processes; by default one per core (or all of the Ray cluster).
        address: Address of a running Ray cluster; by default that in `RAY_ADDRESS`, or else a new
            one on this machine.
        started: Called with the number of jobs that have started since the last call.

    Yields:
        Index of a task, and the sums of its groups.

    Raises:
        WorkerError: If there is no such engine, or a process dies before its work is done.
        MissingExtraError: If Ray is requested and not installed.
    """
    if engine not in ENGINES:
        raise WorkerError(f"`engine` must be one of {', '.join(ENGINES)}, but got {engine!r}")
    if engine == "ray":
        return _on_ray(tasks, workers, address, started)
    count = min(_cores() if workers is None else workers, len(tasks))
    return _here(tasks, started) if count <= 1 else _on_cores(tasks, count, started)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _here(tasks: Sequence[Task], started: Started) -> Done:
    for number, task in enumerate(tasks):
        seen = 0

        def report(count: int) -> None:
            nonlocal seen
            started(count - seen)
            seen = count

        sums = task.run(report)
        started(task.jobs - seen)
        yield number, sums


# --- processes on this machine --------------------------------------------------------------------


class _Worker:
    """A process that runs one task at a time; it exits when its pipe is closed."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        try:
            self.process = subprocess.Popen(
                # -P keeps the current folder off the path: a file there could shadow a module.
                [sys.executable, "-P", "-c", _WORKER, _ROOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C goes to the parent, which ends this process
                env=os.environ | dict.fromkeys(_ONE_THREAD, "1"),
            )
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()
        logger.info("jobs are replayed by process %d", self.process.pid)
        self.number = -1
        self.seen = 0

    def give(self, number: int, task: Task) -> None:
        self.number, self.seen = number, 0
        self._exchange(lambda: self.pipe.send(task))

    def answer(self) -> Any:
        """Return the number of jobs that have started, or the sums of a finished task."""
        answer = self._exchange(self.pipe.recv)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _exchange(self, message: Callable[[], T]) -> T:
        # The process may die between any two messages, so sending and receiving may both fail.
        try:
            return message()
        except (EOFError, OSError):
            pass
        # Not from within: the error of a pipe keeps its buffer, over which the garbage collectors
        # of Python 3.12.1 and 3.13.0 stumble.
        raise WorkerError(
            "a worker process must live until all jobs are replayed, but "
            f"{self.process.pid} ended with exit code {self.process.wait()}"
        )

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


def _on_cores(tasks: Sequence[Task], count: int, started: Started) -> Done:
    waiting = iter(range(len(tasks)))
    with contextlib.ExitStack() as stack:
        busy: dict[Connection, _Worker] = {}
        for number in (next(waiting) for _ in range(count)):
            worker = _Worker()
            stack.callback(worker.end)
            worker.give(number, tasks[number])
            busy[worker.pipe] = worker
        while busy:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                answer = worker.answer()
                if isinstance(answer, int):
                    started(answer - worker.seen)
                    worker.seen = answer
                    continue
                started(tasks[worker.number].jobs - worker.seen)
                yield worker.number, answer
                following = next(waiting, None)
                if following is None:
                    del busy[worker.pipe]
                else:
                    worker.give(following, tasks[following])


# --- Ray ------------------------------------------------------------------------------------------


def _on_ray(
    tasks: Sequence[Task], workers: int | None, address: str | None, started: Started
) -> Done:
    # Ray must not report usage statistics of this machine.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # noqa: PLC0415  (an extra)
    except ImportError:
        raise MissingExtraError("`--engine ray`", "ray") from None
    with _connected(ray, workers, address):
        remote = ray.remote(num_cpus=1)(_run)
        waiting = iter(range(len(tasks)))
        most = len(tasks) if workers is None else workers
        flying: dict[Any, int] = {}

        def submit() -> None:
            number = next(waiting, None)
            if number is not None:
                flying[remote.remote(tasks[number])] = number

        for _ in range(min(most, len(tasks))):
            submit()
        while flying:
            done, _ = ray.wait(list(flying))
            for reference in done:
                number = flying.pop(reference)
                sums = ray.get(reference)
                started(tasks[number].jobs)
                yield number, sums
                submit()


def _run(task: Task) -> Sums:
    return task.run()


@contextlib.contextmanager
def _connected(ray: Any, workers: int | None, address: str | None) -> Iterator[None]:
    if ray.is_initialized():
        yield  # initialized by the caller
        return
    address = address or os.environ.get("RAY_ADDRESS")
    try:
        if address:
            ray.init(address=address, log_to_driver=False)
        else:
            count = _cores() if workers is None else workers
            ray.init(
                address="local", num_cpus=count, include_dashboard=False, log_to_driver=False,
                configure_logging=False,
            )  # fmt: skip
    except ConnectionError as error:
        raise WorkerError(f"there is no Ray cluster at {address}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()
