"""Who does the tasks: this process, processes of its own on all cores, or a Ray cluster.

What comes out does not depend on it. Every engine is a generator of finished tasks, in any order;
`started` is called with jobs as they start, for a progress bar.
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
from typing import TYPE_CHECKING, Any

from zeus.errors import MissingExtraError, WorkerError

if TYPE_CHECKING:
    from zeus.replay.cluster.lockstep import Sums
    from zeus.replay.cluster.tasks import Task

logger = logging.getLogger(__name__)

Started = Callable[[int], None]
Done = Iterator[tuple[int, "Sums"]]

ENGINES = ("local", "ray")
# One thread each: the arrays are small, and the processes share the cores already.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ROOT = str(Path(__file__).resolve().parents[3])
_WORKER = (
    "import sys; sys.path.append(sys.argv[1]); from zeus.replay.cluster.worker import main; main()"
)


def run_tasks(
    tasks: Sequence[Task],
    engine: str,
    workers: int | None,
    address: str | None,
    started: Started,
) -> Done:
    """Do tasks.

    Args:
        tasks: Those that take longest first.
        engine: "local" or "ray".
        workers: Processes at once; by default one for each core (or all that the Ray cluster has).
        address: Of a Ray cluster that is running; by default what `RAY_ADDRESS` says, or else a
            new one on this machine.
        started: Called with how many jobs have started since the last call.

    Yields:
        Number of a task, and what its groups took.

    Raises:
        WorkerError: If there is no such engine, or a process is gone before its work is done.
        MissingExtraError: If Ray is asked for and not installed.
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
    """A process that does one task after the other; it ends when its pipe does."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        try:
            self.process = subprocess.Popen(
                # -P keeps the user's folder off the path: a file there may have any name.
                [sys.executable, "-P", "-c", _WORKER, _ROOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the parent, which ends this one
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
        with self._alive():
            self.pipe.send(task)

    def answer(self) -> Any:
        """How many jobs have started, or the sums of a task that is done."""
        with self._alive():
            answer = self.pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        # It may die between any two messages, so telling it and hearing it both may find it gone.
        try:
            yield
        except (EOFError, OSError):
            code = self.process.wait()
            raise WorkerError(
                "a process that replays jobs must live until it is told to end, but "
                f"{self.process.pid} ended with exit code {code}"
            ) from None

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
    # Nothing about this machine is told to anybody.
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
        yield  # the caller's own
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
