"""A simulated server on simulated GPUs, for monitors, exporters and whatever else reads sensors.

The GPUs' clock decides how quickly the server works, whoever sets it, and the GPUs draw what the
server's steps draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zeus._rules import Number
from zeus.device import Gpu
from zeus.errors import SimulationError
from zeus.testing._serving_events import IDLE, PowerSegment, RequestEvent
from zeus.testing._serving_replica import Observer, Replica
from zeus.testing._serving_result import ServingResult
from zeus.testing._serving_workload import ServingWorkload
from zeus.testing._traffic import Traffic
from zeus.testing._workload import common_clock, load_kept, simulated_driver

_TICK = 0.05  # seconds after which a clock that somebody else has set is seen


def draw_power(gpus: Gpu | Iterable[Gpu], watts: float) -> None:
    """Let simulated GPUs draw this power together, in equal parts, until their load changes.

    They run kernels of such an activity that their power is as asked for at the clock in force now.
    They cannot draw less than while they wait for work, or more than their limit.

    Args:
        gpus: Simulated GPUs.
        watts: Power of all of them.

    Raises:
        ValueError: If a GPU is not simulated, or the power is negative or not finite.
    """
    Number(0).check("watts", watts, SimulationError)
    drivers = [simulated_driver(gpu) for gpu in ((gpus,) if isinstance(gpus, Gpu) else gpus)]
    for driver in drivers:
        model = driver.model
        wanted = watts / len(drivers) - model.static_power
        clock = driver.relative_clock(0.0)
        full = (model.maximum_limit - model.static_power) * model.relative_power(clock)
        driver.set_load(max(0.0, wanted / full))


def serve_on(
    gpus: Gpu | Iterable[Gpu],
    workload: ServingWorkload,
    traffic: Traffic,
    *,
    max_num_seqs: int = 256,
    max_batched_tokens: int = 8192,
    chunk: int | None = None,
    observer: Observer | None = None,
) -> ServingResult:
    """Run a simulated server on simulated GPUs, in the time of their node, virtual or real.

    Afterwards the GPUs' previous load is restored.

    Args:
        gpus: Simulated GPUs of one node that work as one. The lowest of their clocks counts.
        workload: Model and GPU; `ServingWorkload.on` makes one that suits the GPUs.
        traffic: Requests; their times count from now on.
        max_num_seqs: Maximum number of requests that are processed at once.
        max_batched_tokens: Maximum number of prompt tokens in a step; a longer prompt is alone.
        chunk: Tokens per step with chunked prefill.
        observer: Called with each `PowerSegment` when it has passed, and with each `RequestEvent`.

    Raises:
        ValueError: If a GPU is not simulated, or there is none.
    """
    chosen = (gpus,) if isinstance(gpus, Gpu) else tuple(gpus)
    clock = common_clock(chosen)

    def observe(event: PowerSegment | RequestEvent) -> None:
        if isinstance(event, PowerSegment):
            if event.phase == IDLE:
                for gpu in chosen:
                    simulated_driver(gpu).set_load(0.0)
            else:
                draw_power(chosen, event.watts)
            clock.sleep(event.end - event.begin)
        if observer is not None:
            observer(event)

    server = Replica(
        workload,
        list(traffic),
        workload.highest,
        index=0,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        chunk=chunk,
        lag=0.0,
        observer=observe,
    )
    server.knob = _GpuClock(chosen)
    with load_kept(chosen):
        while server.unfinished:
            server.advance(server.now + 1.0, 0.0)
    return ServingResult(
        seconds=server.now,
        replicas=1,
        energy=server.energy,
        idle_energy=server.idle_energy,
        busy=server.busy,
        requests=server.requests,
    )


class _GpuClock:
    """The clock of simulated GPUs, which others set."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._drivers = [simulated_driver(gpu) for gpu in gpus]
        self.value = 0.0
        self.changes_at = 0.0
        self.advance(0.0)

    def request(self, now: float, value: float) -> None:
        """Do nothing: the clock is not the server's to set."""

    def advance(self, now: float) -> None:
        self.value = min(
            driver.relative_clock(0.0) * driver.model.highest_clock for driver in self._drivers
        )
        coming = [each[0] for driver in self._drivers if (each := driver.next_clock(0.0))]
        self.changes_at = now + min([_TICK, *coming])
