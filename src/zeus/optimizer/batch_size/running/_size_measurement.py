"""Measures for some seconds what an epoch costs at each batch size, before any is decided.

A few steps of each batch size are enough to know the cost of an epoch, and whether a batch fits in
memory: `step` trains a model that is thrown away. All processes of a job run the same number of
steps, because steps may contain communication.
"""

from __future__ import annotations

import gc
import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from zeus.device._vendors import vendor_named
from zeus.monitor import Measurement, ZeusMonitor
from zeus.optimizer.batch_size.job._share import BatchShare, can_share
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._agreement import from_first
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._reporter import Reporter, default_decision
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.optimizer.training._ranks import Ranks
from zeus.optimizer.training._training_meter import TrainingMeter
from zeus.optimizer.training._training_run import Share, together

logger = logging.getLogger(__name__)

# Steps before any is measured: the first ones allocate memory, choose kernels and compile.
_WARM_UP = 3
# Part of the time of a measurement that is spent before it, so that clocks and power settle.
_SETTLING = 0.1
# A measurement takes at most this part of an epoch of the default, so that all of them together are
# a trifle beside a training, but not less than some ticks of an energy counter.
_MAX_PART, _MIN_SECONDS = 0.05, 0.5
# In the recorded trainings of the paper, no batch size reached the target sooner than the default
# if an epoch took more than four times as long. Such ones are measured for a part of the time only;
# but they are measured, because that takes little, and the policy need not guess.
_HOPELESS, _GLANCE = 4.0, 0.2

# Frameworks have errors of their own, and need not be installed.
_MEMORY_ERRORS = ("OutOfMemoryError", "ResourceExhaustedError")


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error means that memory was too small.

    Args:
        error: The error, if there was one.
    """
    if isinstance(error, MemoryError) or type(error).__name__ in _MEMORY_ERRORS:
        return True
    return isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)  # that of JAX


@dataclass(frozen=True)
class MeasuredSize:
    """A batch size of which steps were measured.

    Attributes:
        batch_size: The batch size.
        epoch_cost: Cost of an epoch in joules; `None` if a step ran out of memory.
        load: Average power as a fraction of the maximum; `None` if unknown.
        implied: Whether it follows from another batch size, so that it need not be stored.
    """

    batch_size: int
    epoch_cost: float | None
    load: float | None = None
    implied: bool = False


class SizeMeasurement:
    """Measures batch sizes in all processes of a job.

    Args:
        monitor: Measures time and energy of this process.
        ranks: All processes.
        spec: The job.
        step: Trains on as many samples as it is called with.
        seconds: Maximum duration of the measurement of each batch size.
        samples: Number of samples of an epoch, of all processes together.
        max_power: Maximum power of all GPUs together in watts.
        weighs_energy: Whether that is known, so that energy can be weighed against time.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        ranks: Ranks,
        spec: JobSpec,
        step: Callable[[int], object],
        *,
        seconds: float,
        samples: int,
        max_power: float,
        weighs_energy: bool,
    ) -> None:
        self._monitor = monitor
        self._ranks = ranks
        self._spec = spec
        self._step = step
        self._seconds = seconds
        self._samples = samples
        self._max_power = max_power
        self._weighs_energy = weighs_energy
        self._usual: float | None = None  # seconds of the first epoch that was measured

    def sizes(self, shares: Sequence[BatchShare]) -> Iterator[MeasuredSize]:
        """Measure batch sizes, the nearest to the default first, and yield each.

        Args:
            shares: Share of a replica in each batch size.
        """
        default = self._spec.default_batch_size
        order = sorted(shares, key=lambda share: abs(math.log(share.batch_size / default)))
        known: dict[int, Share | None] = {}
        for share in order:
            local, size = share.local_batch_size, share.batch_size
            # What is larger than one that does not fit does not fit either.
            if any(step is None and local > other for other, step in known.items()):
                yield MeasuredSize(size, None, implied=True)
                continue
            # With accumulated gradients, several batch sizes have the same local batch.
            if local not in known:
                known[local] = self._measured(local, share.replicas)
            step = known[local]
            if step is None:
                logger.info("job %r: batch size %d does not fit in memory", self._spec.name, size)
                yield MeasuredSize(size, None)
                continue
            found = self._of_epoch(step, self._samples / (local * share.replicas))
            logger.info("job %r: batch size %d, %.4g J an epoch", self._spec.name, size, found[0])
            yield MeasuredSize(size, *found)

    def _of_epoch(self, step: Share, steps: float) -> tuple[float, float | None]:
        """Return the cost of an epoch in joules, and the load."""
        energy = step.energy if self._weighs_energy else None
        most = self._max_power * step.time
        cost = self._spec.cost(most if energy is None else energy, step.time, self._max_power)
        return cost * steps, None if energy is None else energy / most

    def _measured(self, local: int, replicas: int) -> Share | None:
        """Return time and energy of a step of all processes; `None` if one ran out of memory."""
        try:
            for _ in range(_WARM_UP):
                took = self._run(local, 1)
                if took is None:
                    return None
                duration = took.time
            seconds = self._time_for(duration, local * replicas)
            settling = max(math.ceil(_SETTLING * seconds / duration), 1)
            took = self._run(local, settling)
            if took is None:
                return None
            count = max(math.ceil(seconds * settling / took.time), 1)
            took = self._run(local, count)
        finally:
            self._release_memory()
        if took is None:
            return None
        energy = took.energy
        return Share(took.time / count, None if energy is None else energy / count)

    def _time_for(self, duration: float, samples: int) -> float:
        """Return for how many seconds to measure steps of such a duration, and so many samples."""
        epoch = duration * self._samples / samples
        if self._usual is None:
            self._usual = epoch
        seconds = min(self._seconds, max(_MAX_PART * self._usual, _MIN_SECONDS))
        if epoch > _HOPELESS * self._usual:
            seconds = min(seconds, max(_GLANCE * seconds, _MIN_SECONDS))
        return seconds

    def _run(self, local: int, steps: int) -> Share | None:
        """Run steps in all processes; `None` if one ran out of memory."""
        meter = TrainingMeter(self._monitor, "batch size")
        mine: Measurement | None = None
        meter.begin()
        try:
            for _ in range(steps):
                self._step(local)
            meter.end()
            mine = meter.take()
        except Exception as error:
            if not out_of_memory(error):
                raise
        finally:
            meter.discard()
        all_of_them = self._ranks.share(mine)
        if None in all_of_them:
            return None
        took = together(all_of_them)
        return Share(max(took.time, 1e-9), took.energy)

    def _release_memory(self) -> None:
        """Give back what a framework caches: the next batch size needs other blocks of it."""
        gc.collect()
        torch = sys.modules.get("torch")
        for gpu in self._monitor.gpus:
            backend = getattr(torch, vendor_named(gpu.identity.vendor).framework_module, None)
            if backend is not None and backend.is_initialized():
                backend.empty_cache()


def measure_sizes(
    measurement: SizeMeasurement, ranks: Ranks, rank: int, place: Location, notes: RunReport
) -> dict[int, float | None]:
    """Measure the batch sizes that a job does not know on its GPUs, and report each.

    Args:
        measurement: Measures them.
        ranks: All processes, which must all call this.
        rank: Rank of this one; the first asks and reports.
        place: Where the job is kept.
        notes: Notes of a run on these GPUs, without any reports.

    Returns:
        Cost of an epoch in joules, by batch size; `None` for those that do not fit in memory.
    """
    notes.apart = True  # it is no trial
    reporter: Reporter | None = None
    if rank == 0:
        reporter = Reporter(place, notes, default_decision(notes.spec, ""))
    try:
        nothing: list[int] = []
        wanted = from_first(ranks, rank, lambda: _wanted(reporter), nothing)
        replicas, most = notes.replicas or 1, notes.max_local_batch_size
        sizes = [size for size in wanted if can_share(size, replicas)]
        if not sizes:
            return {}
        logger.info("job %r: measuring batch sizes %s", notes.spec.name, sizes)
        found: dict[int, float | None] = {}
        for size in measurement.sizes([BatchShare.of(each, replicas, most) for each in sizes]):
            found[size.batch_size] = size.epoch_cost
            if reporter is not None and not size.implied:
                reporter.report_size(size.batch_size, size.epoch_cost, size.load)
        return found
    finally:
        if reporter is not None:
            reporter.close()


def _wanted(reporter: Reporter | None) -> list[int]:
    """Return the batch sizes to measure; none if server or store is unreachable."""
    found = None if reporter is None else reporter.known_sizes()
    return [each.batch_size for each in found or () if each.measure]
