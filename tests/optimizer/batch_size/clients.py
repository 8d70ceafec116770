"""Training runs of a recurring job on a simulated node, and servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer, JobSpec
from zeus.optimizer.batch_size.api._commands import ListTrials
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store
from zeus.testing import SimulatedNode, Workload

SIZES = (16, 32, 64)
EPOCHS = {16: 4, 32: 3, 64: 5}
"""Until the target is reached, by batch size."""


def job(name: str = "nightly", **changes: Any) -> JobSpec:
    given = {
        "name": name,
        "batch_sizes": SIZES,
        "default_batch_size": 32,
        "target_metric": 0.9,
        "max_epochs": 8,
    }
    return JobSpec(**{**given, **changes})


def step(batch_size: int) -> Workload:
    """Long steps, so that few of them are enough to know a power limit."""
    return Workload("step", gpu_time=0.02 * batch_size, host_time=0.2, activity=1.0)


def watch(node: SimulatedNode, **options: Any) -> ZeusMonitor:
    return ZeusMonitor(None, [], node=node, sync_execution_with=None, **options)


def epoch(node: SimulatedNode, optimizer: BatchSizeOptimizer, steps: int | None = None) -> None:
    """One epoch of training."""
    batch_size = optimizer.get_batch_size()
    optimizer.on_epoch_begin()
    for _ in range(960 // batch_size if steps is None else steps):
        optimizer.on_step_begin()
        step(batch_size).run(node.gpus)
        optimizer.on_step_end()
    optimizer.on_epoch_end()


def train(
    node: SimulatedNode,
    optimizer: BatchSizeOptimizer,
    *,
    steps: int | None = None,
    needed: Mapping[int, int] = EPOCHS,
    after_epoch: Callable[[int], None] = lambda _: None,
) -> BatchSizeOptimizer:
    """A whole run, as long as the optimizer lets it go on."""
    needs = needed[optimizer.get_batch_size()]
    optimizer.on_train_begin()
    done = 0
    while not optimizer.training_finished:
        epoch(node, optimizer, steps)
        done += 1
        optimizer.on_evaluate(0.95 if done >= needs else 0.1 * min(done, 8))
        after_epoch(done)
    optimizer.close()
    return optimizer


def run(storage: str | None, spec: JobSpec | None = None, gpus: str = "v100", **options: Any):
    """A whole run on a node of its own."""
    training = {name: options.pop(name) for name in ("steps", "needed") if name in options}
    with SimulatedNode(gpus) as node:
        optimizer = BatchSizeOptimizer(watch(node), job=spec or job(), storage=storage, **options)
        return train(node, optimizer, **training)


@contextlib.contextmanager
def opened(storage: str) -> Iterator[Jobs]:
    """The jobs of a store, to look at."""
    with contextlib.closing(Jobs(Store(storage))) as jobs:
        yield jobs


def trials(storage: str, name: str = "nightly") -> list[Any]:
    """All trials of a job, from the first on."""
    with opened(storage) as jobs:
        return jobs.do(ListTrials(job=name))[::-1]


class StrangeServer:
    """A socket that takes connections and answers as it is told.

    Attributes:
        url: Where it is.
        asked: How many connections there were.
    """

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                self.asked += 1
                with contextlib.suppress(OSError):
                    self._answer(connection)

    def close(self) -> None:
        # A thread in `accept` or `recv` would not notice that the socket is closed.
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)  # it may have taken another connection meanwhile
        for each in (self._listening, *self._open):
            each.close()


@contextlib.contextmanager
def strange_server(answer: Callable[[socket.socket], None]) -> Iterator[StrangeServer]:
    server = StrangeServer(answer)
    try:
        yield server
    finally:
        server.close()


def hangs(_: socket.socket) -> None:
    """Take the connection, and say nothing."""


def says(text: str) -> Callable[[socket.socket], None]:
    """Answer every request with the same JSON, or whatever it is."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        body = text.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.close()

    return answer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
