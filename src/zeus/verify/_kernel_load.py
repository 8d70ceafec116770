"""The load of a real GPU: matrix products in a child process, which has the framework."""

from __future__ import annotations

import importlib.util
import json
import math
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zeus.device._vendors import vendor_named
from zeus.verify._load_pattern import Edge, Segment

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Gpu

_FRAMEWORKS = ("torch", "cupy", "jax")
_START = 90.0  # seconds until a framework must have loaded and run a first kernel
_LATE = 20.0  # seconds by which an answer may be late
_EDGE = 1.5e-3  # seconds: about the length of a kernel


class LoadError(Exception):
    """No load can be run here, or it has failed; says why."""


class KernelLoad:
    """Kernels of one framework, in a process of their own.

    Args:
        framework: "torch", "cupy" or "jax".
        module: Module of the framework that has the device, such as "cuda".
        ordinal: Number of the device there.
        clock: The node's clock, which is that of all processes.

    Raises:
        LoadError: If the framework cannot use the device; later, if it fails.
    """

    edge_uncertainty = _EDGE

    def __init__(self, framework: str, module: str, ordinal: int, clock: Clock) -> None:
        self._clock = clock
        self._segments: Sequence[Segment] = ()
        self._step_seconds = 0.0
        try:
            self._process = subprocess.Popen(
                # -P keeps the working directory off the path: files there may shadow modules.
                [sys.executable, "-P", "-m", "zeus.verify._kernels"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise LoadError(f"no process could be started: {error.strerror}") from None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="zeus-verify-load", daemon=True).start()
        try:
            self._ask(framework=framework, module=module, ordinal=ordinal)
            self.name = str(self._answer("name", _START))
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _ask(self, **request: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise LoadError("the process that loads the GPU has ended") from None

    def _answer(self, key: str, seconds: float) -> Any:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise LoadError(f"the load has not answered for {seconds:g} s") from None
        if not line:
            raise LoadError("the process that loads the GPU has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise LoadError(str(answer["error"]))
        return answer[key]

    def start(self, segments: Sequence[Segment]) -> None:
        """See `Load`."""
        self._segments = segments
        self._ask(segments=segments)

    def next_edge(self) -> float:
        """See `Load`."""
        return math.inf

    def advance(self) -> None:
        """See `Load`."""

    def finish(self) -> list[Edge]:
        """See `Load`."""
        seconds = sum(segment.seconds for segment in self._segments)
        return [Edge(instant, on) for instant, on in self._answer("edges", seconds + _LATE)]

    def run(self, seconds: float) -> None:
        """See `Load`."""
        self.start([Segment(seconds, on=True)])
        self.finish()

    def begin_steps(self, seconds: float) -> None:
        """See `Load`."""
        self._step_seconds = seconds
        self._ask(steps=seconds)

    def pass_time(self, seconds: float) -> None:
        """See `Load`."""
        self._clock.sleep(seconds)

    def finish_steps(self) -> list[tuple[float, float]]:
        """See `Load`."""
        return [(begin, took) for begin, took in self._answer("steps", self._step_seconds + _LATE)]

    def exact_energy(self, instant: float) -> float | None:  # noqa: ARG002
        """See `Load`."""
        return None

    def close(self) -> None:
        """See `Load`."""
        with suppress(OSError):
            self._process.kill()  # it may hang in a kernel
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


def start_kernels(gpu: Gpu, clock: Clock) -> KernelLoad:
    """Return a load for a GPU, with the first framework that can use it.

    Raises:
        LoadError: If none can; with the reason of each that is installed.
    """
    module = vendor_named(gpu.identity.vendor).framework_module
    if not module:
        raise LoadError(f"no framework is known for GPUs of {gpu.identity.vendor}")
    reasons = []
    for framework in _FRAMEWORKS:
        if importlib.util.find_spec(framework) is None:
            continue
        try:
            return KernelLoad(framework, module, gpu.ordinal, clock)
        except LoadError as error:
            reasons.append(f"{framework}: {error}")
    raise LoadError("; ".join(reasons) or "neither torch, cupy nor jax is installed")
