"""Which batch sizes do not fit in the memory of a GPU.

What must fit is the *local* batch: what one replica trains on at once. Out of memory is monotone:
where a local batch did not fit, no larger one does, and neither on a GPU with less memory. A trial
that fails before the end of its first epoch is taken for one that did not fit, but only if a
smaller local batch has run on the same GPU model: a program that always crashes has another
problem. A run that proves otherwise takes the evidence back. Steps that were only measured count
like runs, but less: a trial may need more memory than they did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zeus.optimizer.batch_size.job._events import GpuEvent


class GpuMemory(NamedTuple):
    """The memory that a local batch must fit in.

    Attributes:
        name: The GPU model.
        memory: Memory of one GPU in bytes; `None` if unknown.
        split: Number of GPUs that share one replica.
    """

    name: str
    memory: int | None
    split: int = 1

    @classmethod
    def of(cls, name: str, number: int, replicas: int | None, memory: int | None) -> GpuMemory:
        """Return the memory of one replica.

        Args:
            name: The GPU model.
            number: Number of GPUs.
            replicas: Number of data-parallel replicas; `None` if there is one for each GPU.
            memory: Memory of one GPU in bytes; `None` if unknown.
        """
        return cls(name, memory, max(1, number // (replicas or number)))

    def at_least(self, other: GpuMemory) -> bool:
        """Whether everything that fits in the memory of another fits here, as far as is known."""
        if self.split != other.split:
            return False
        if self.name == other.name:
            return True
        known = self.memory is not None and other.memory is not None
        return known and (self.memory or 0) >= (other.memory or 0)


@dataclass
class MemoryEvidence:
    """What fitted in memory and what did not, in the trials of a job.

    Attributes:
        ran: Largest local batch that ran an epoch, by GPU.
        failed: Smallest local batch that did not run, by GPU.
        measured: Local batches of which steps ran, by GPU, as long as no trial contradicts.
    """

    ran: dict[GpuMemory, int] = field(default_factory=dict)
    failed: dict[GpuMemory, int] = field(default_factory=dict)
    measured: dict[GpuMemory, list[int]] = field(default_factory=dict)

    def note_epoch(self, event: GpuEvent) -> None:
        """Add a trial that has finished its first epoch; it disproves what is said against it.

        Args:
            event: The event that began it.
        """
        gpu, local = _gpu_of(event), event.local_batch_size
        self.ran[gpu] = max(local, self.ran.get(gpu, 0))
        self._disprove(gpu, local)

    def note_steps(self, event: GpuEvent) -> None:
        """Add a batch size of which steps have run.

        Args:
            event: Their measurement.
        """
        gpu, local = _gpu_of(event), event.local_batch_size
        self.measured[gpu] = sorted({*self.measured.get(gpu, ()), local})
        self._disprove(gpu, local)

    def _disprove(self, gpu: GpuMemory, local: int) -> None:
        for other, size in list(self.failed.items()):
            if size <= local and other.at_least(gpu):
                del self.failed[other]

    def note_failure(self, event: GpuEvent) -> bool:
        """Add a batch size that has not run.

        Args:
            event: The event that began a trial which failed before the end of its first epoch, or
                the measurement of a step that ran out of memory.

        Returns:
            Whether memory was too small, as far as is known.
        """
        gpu, local = _gpu_of(event), event.local_batch_size
        for other, sizes in self.measured.items():
            if gpu.at_least(other):
                self.measured[other] = [size for size in sizes if size < local]
        if self._has_run(gpu, local):
            return False  # it has fitted before
        self.failed[gpu] = min(local, self.failed.get(gpu, local))
        return self.too_large(gpu, local)

    def too_large(self, gpu: GpuMemory, local: int) -> bool:
        """Return whether a local batch does not fit in the memory of a GPU, as far as is known.

        Args:
            gpu: The GPU.
            local: Samples that one replica trains on at once.
        """
        return not self._has_run(gpu, local) and any(
            local >= size and other.at_least(gpu) and self._is_evidence(other, size)
            for other, size in self.failed.items()
        )

    def _has_run(self, gpu: GpuMemory, local: int) -> bool:
        """Whether as large a local batch has run there, or with no more memory."""
        return any(local <= size and gpu.at_least(other) for other, size in self._all_that_ran())

    def _all_that_ran(self) -> Iterator[tuple[GpuMemory, int]]:
        yield from self.ran.items()
        yield from ((gpu, size) for gpu, sizes in self.measured.items() for size in sizes)

    def _is_evidence(self, gpu: GpuMemory, failed: int) -> bool:
        """Whether a failure was due to memory: a smaller local batch has run there."""
        return any(
            other.name == gpu.name and other.split == gpu.split and size < failed
            for other, size in self._all_that_ran()
        )

    def to_lists(self) -> list[list[Any]]:
        """Return plain values for JSON."""
        parts = (self.ran.items(), self.failed.items(), self.measured.items())
        return [[[*gpu, found] for gpu, found in each] for each in parts]

    @classmethod
    def from_lists(cls, record: list[list[Any]]) -> MemoryEvidence:
        """Inverse of `to_lists`."""
        return cls(*({GpuMemory(*gpu): found for *gpu, found in each} for each in record))


def _gpu_of(event: GpuEvent) -> GpuMemory:
    return GpuMemory.of(event.gpu, event.gpus, event.replicas, event.memory)
