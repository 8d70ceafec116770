"""A callback that writes down what it is told, and a training step for simulated GPUs."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

from zeus.optimizer.callback import Callback
from zeus.testing import SimulatedNode, Workload

# Long steps, so that few of them are enough to know a power limit.
STEP = Workload("step", gpu_time=1.0, host_time=0.1)
ENOUGH_STEPS = 60

DOCUMENT = Path(__file__).parents[2] / "docs" / "integrations.md"


def run_example(heading: str, document: str = DOCUMENT.name) -> None:
    """Run the example of a document under a heading. In this process: imports take long."""
    text = DOCUMENT.with_name(document).read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(compile(block, f"the example for {heading}", "exec"), {"__name__": "__main__"})


class Recorder(Callback):
    """Writes a story: `[` `]` an epoch, `(` `)` a step, `p` `r` pause and resume, `x` close."""

    def __init__(self) -> None:
        self.story = ""
        self.threads: set[int] = set()
        self.closed = threading.Event()

    def _told(self, mark: str) -> None:
        self.story += mark
        self.threads.add(threading.get_ident())

    def on_epoch_begin(self) -> None:
        self._told("[")

    def on_step_begin(self) -> None:
        self._told("(")

    def on_step_end(self) -> None:
        self._told(")")

    def on_epoch_end(self) -> None:
        self._told("]")

    def pause(self) -> None:
        self._told("p")

    def resume(self) -> None:
        self._told("r")

    def close(self) -> None:
        self._told("x")
        self.closed.set()


class Limits:
    """Work for a simulated node, and the power limits under which it was done."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.before = self.now
        self.seen: list[float] = []

    @property
    def now(self) -> float:
        return self.node.gpus[0].power_limit()

    def work(self) -> None:
        """One step of training on the simulated GPUs."""
        self.seen.append(self.now)
        STEP.run(self.node.gpus)

    def wait_until_restored(self) -> None:
        """Where the end of training is noticed by another thread."""
        deadline = time.monotonic() + 120
        while self.now != self.before and time.monotonic() < deadline:
            time.sleep(0.01)

    def assert_lowered_and_restored(self) -> None:
        assert min(self.seen) < self.before
        assert self.seen[-1] < self.before  # the choice, in force for the rest of training
        assert self.now == self.before
