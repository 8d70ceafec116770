"""A plan: one measured option, and so a frequency, for every operation of an iteration."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zeus.optimizer.pipeline_frequency._pipeline import Execution, Operation, Pipeline
from zeus.optimizer.pipeline_frequency._profile import Option


@dataclass(frozen=True, slots=True)
class Menu:
    """The pipeline that plans are for, and the options that they choose from."""

    pipeline: Pipeline  # the pipeline, which cannot be changed any more
    # Useful options of each operation, by rising time; operations share the tuples
    options: tuple[tuple[Option, ...], ...]


class Plan:
    """The frequency of every operation. Immutable; equal to a plan of the same choices.

    A plan is stored in two bytes per operation and decoded on access.

    Args:
        menu: The options of all operations.
        choices: Index of the chosen option of each, in two bytes.

    Attributes:
        time: Seconds of the iteration, exactly as `execute` computes from the profile.
        energy: Joules over all GPUs of all pipelines, waiting included, likewise.
        lower_bound: Joules below which no plan of this time or less can be: the energy of the
            iteration if operations could mix their options.
    """

    __slots__ = ("_choices", "_menu", "energy", "lower_bound", "time")

    def __init__(
        self, menu: Menu, choices: bytes, time: float, energy: float, lower_bound: float
    ) -> None:
        self._menu = menu
        self._choices = choices
        self.time = time
        self.energy = energy
        self.lower_bound = lower_bound

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that the plan is for."""
        return self._menu.pipeline

    @property
    def gap(self) -> float:
        """Relative energy above the bound: 0.001 means at most 0.1 % above the optimum."""
        return self.energy / self.lower_bound - 1 if self.lower_bound > 0 else 0.0

    @property
    def options(self) -> tuple[Option, ...]:
        """The option of each operation, in the order of `pipeline.operations`."""
        chosen = array("H", self._choices)
        return tuple(
            options[choice] for options, choice in zip(self._menu.options, chosen, strict=True)
        )

    @property
    def frequencies(self) -> tuple[float | None, ...]:
        """MHz of each operation; `None` where there is nothing to set."""
        return tuple(option.frequency for option in self.options)

    def of_device(self, device: int) -> Iterator[tuple[Operation, Option]]:
        """Yield the operations of a device in order, each with its option."""
        for operation, option in zip(self.pipeline.operations, self.options, strict=True):
            if operation.device == device:
                yield operation, option

    def execute(self) -> Execution:
        """Return the execution of an iteration under the plan."""
        return self.pipeline.execute(self.options)

    def to_list(self) -> list[dict[str, Any]]:
        """Return one JSON entry per operation, by start; seconds, MHz, and joules of one GPU."""
        execution = self.execute()
        entries: list[dict[str, Any]] = [
            {
                "device": operation.device,
                "stage": operation.stage,
                "instruction": operation.instruction,
                "microbatch": operation.microbatch,
                "frequency": option.frequency,
                "start": start,
                "time": option.time,
                "energy": option.energy,
            }
            for operation, option, start in zip(
                self.pipeline.operations, execution.options, execution.starts, strict=True
            )
        ]
        entries.sort(key=lambda entry: entry["start"])
        return entries

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self._menu is other._menu and self._choices == other._choices

    def __hash__(self) -> int:
        return hash(self._choices)

    def __repr__(self) -> str:
        return f"Plan({self.time:.6g} s, {self.energy:.6g} J)"

    def __str__(self) -> str:
        clocks = [frequency for frequency in self.frequencies if frequency is not None]
        if not clocks:
            return "nothing to set"
        return f"{sum(clocks) / len(clocks):.0f} MHz on average"
