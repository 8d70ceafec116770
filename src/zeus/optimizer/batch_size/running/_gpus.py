"""The GPUs that a run of a recurring job uses, over all its processes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zeus.device import Gpu
from zeus.errors import CapabilityError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.training._ranks import merged
from zeus.state._files import job_wide

logger = logging.getLogger(__name__)

NO_GPU = "no GPU"


class GpuInfo(NamedTuple):
    """One GPU of a run.

    Attributes:
        model: Its product name.
        max_power: Maximum power in watts; `None` if it does not report it.
        memory: Memory in bytes; `None` if it does not report it.
    """

    model: str
    max_power: float | None
    memory: int | None = None


@dataclass(frozen=True)
class Gpus:
    """GPUs of a job.

    Attributes:
        name: The GPU model; of mixed GPUs "2 x this + 4 x that".
        number: Number of GPUs.
        max_power: Maximum power of all together in watts. If a GPU does not report it, or there is
            no GPU, 1: the cost then depends on time only.
        known: Whether all of them report it.
        memory: Memory in bytes of the GPU with the least; `None` if any does not report it.
    """

    name: str
    number: int
    max_power: float
    known: bool
    memory: int | None = None

    @classmethod
    def of(cls, monitor: ZeusMonitor) -> Gpus:
        """Return the GPUs of one process."""
        return cls.together([gpu_infos(monitor)])

    @classmethod
    def together(cls, of_processes: Sequence[Mapping[str, GpuInfo]]) -> Gpus:
        """Combine the `gpu_infos` of all processes; a GPU that several see counts once."""
        found = merged(of_processes)
        if not found:
            return cls(NO_GPU, 1, 1.0, known=False)
        models = Counter(sorted(info.model for info in found.values()))
        name = " + ".join(f"{count} x {model}" for model, count in models.items())
        powers = [info.max_power for info in found.values() if info.max_power is not None]
        memories = [info.memory for info in found.values() if info.memory is not None]
        known = len(powers) == len(found)
        return cls(
            name if len(models) > 1 else next(iter(models)),
            len(found),
            sum(powers) if known else 1.0,
            known,
            min(memories) if len(memories) == len(found) else None,
        )


def gpu_infos(monitor: ZeusMonitor) -> dict[str, GpuInfo]:
    """Return the GPUs of a process, by key."""
    # Results of a simulated GPU must never be mistaken for those of a real one.
    mark = " (simulated)" if monitor.node.simulated else ""
    found: dict[str, GpuInfo] = {}
    for gpu in monitor.gpus:
        power: float | None = None
        try:
            power = gpu.power_limits().maximum
        except CapabilityError as error:
            logger.warning("the cost of the run includes only time, not energy: %s", error)
        found[job_wide(gpu.key)] = GpuInfo(f"{gpu.name}{mark}", power, _memory(gpu))
    return found


def _memory(gpu: Gpu) -> int | None:
    """Memory in bytes that one process may fill; `None` if unknown."""
    if gpu.identity.whole_module:
        return None  # of the whole board, of which the process sees a part
    try:
        return gpu.memory().total or None
    except CapabilityError:
        return None
