"""A plan: one measured option, and so a frequency, for every operation of an iteration."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
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

    A plan is stored in two bytes per operation and decoded on access. Under a cap of power, a plan
    may also delay operations.

    Args:
        menu: The options of all operations.
        choices: Index of the chosen option of each, in two bytes.
        not_before: Seconds before which each operation must not start, in eight bytes; empty if
            each starts as soon as those that it waits for have ended.

    Attributes:
        time: Seconds of the iteration, exactly as `execute` computes from the profile.
        energy: Joules over all GPUs of all pipelines, waiting included, likewise.
        lower_bound: Joules below which no plan of this time or less can be: the energy of the
            iteration if operations could mix their options, or more where they cannot.
    """

    __slots__ = ("_choices", "_menu", "_not_before", "energy", "lower_bound", "time")

    def __init__(
        self,
        menu: Menu,
        choices: bytes,
        time: float,
        energy: float,
        lower_bound: float,
        *,
        not_before: bytes = b"",
    ) -> None:
        self._menu = menu
        self._choices = choices
        self._not_before = not_before
        self.time = time
        self.energy = energy
        self.lower_bound = lower_bound

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that the plan is for."""
        return self._menu.pipeline

    @property
    def menu(self) -> Menu:
        """The options of all operations that the plan chooses from."""
        return self._menu

    def on(
        self, menu: Menu, time: float = 0.0, energy: float = 0.0, lower_bound: float = 0.0
    ) -> Plan:
        """Return the same choices from another menu, which has as many options of each operation.

        Args:
            menu: The other menu.
            time: Seconds of an iteration with these.
            energy: Joules likewise.
            lower_bound: Joules below which no plan of that time or less can be.
        """
        return Plan(menu, self._choices, time, energy, lower_bound)

    def with_options(self, options: Sequence[Option], time: float, energy: float) -> Plan:
        """Return a plan with other options of the same menu, and a time that is no longer.

        Args:
            options: Option of each operation.
            time: Seconds of an iteration with these, at most that of this plan.
            energy: Joules likewise.
        """
        choices = array("H")
        for menu, option in zip(self._menu.options, options, strict=True):
            choices.append(menu.index(option))
        bound = min(self.lower_bound, energy)
        return Plan(self._menu, choices.tobytes(), time, energy, bound)

    @property
    def size(self) -> int:
        """Bytes that the plan itself takes."""
        return len(self._choices) + len(self._not_before)

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

    @property
    def not_before(self) -> tuple[float, ...]:
        """Seconds from the beginning of the iteration before which each operation must not start.

        0 for all that start as soon as those that they wait for have ended.
        """
        return tuple(array("d", self._not_before)) or (0.0,) * len(self._menu.options)

    def of_device(self, device: int) -> Iterator[tuple[Operation, Option]]:
        """Yield the operations of a device in order, each with its option."""
        for operation, option in zip(self.pipeline.operations, self.options, strict=True):
            if operation.device == device:
                yield operation, option

    def execute(self) -> Execution:
        """Return the execution of an iteration under the plan."""
        return self.pipeline.execute(self.options, self.not_before)

    def to_list(self) -> list[dict[str, Any]]:
        """Return one JSON entry per operation, by start; seconds, MHz, and joules of one GPU.

        Options with a label also have `label`, and operations that the plan delays `not_before`.
        """
        execution = self.execute()
        entries: list[dict[str, Any]] = [
            {
                "device": operation.device,
                "stage": operation.stage,
                "instruction": operation.instruction,
                "microbatch": operation.microbatch,
                "frequency": option.frequency,
                **({"label": option.label} if option.label else {}),
                "start": start,
                **({"not_before": earliest} if earliest else {}),
                "time": option.time,
                "energy": option.energy,
            }
            for operation, option, start, earliest in zip(
                self.pipeline.operations,
                execution.options,
                execution.starts,
                self.not_before,
                strict=True,
            )
        ]
        entries.sort(key=lambda entry: entry["start"])
        return entries

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return (
            self._menu is other._menu
            and self._choices == other._choices
            and self._not_before == other._not_before
        )

    def __hash__(self) -> int:
        return hash(self._choices)

    def __repr__(self) -> str:
        return f"Plan({self.time:.6g} s, {self.energy:.6g} J)"

    def __str__(self) -> str:
        clocks = [frequency for frequency in self.frequencies if frequency is not None]
        if not clocks:
            labels = len({option.label for option in self.options if option.label})
            return f"{labels} label{'s' if labels > 1 else ''}" if labels else "nothing to set"
        return f"{sum(clocks) / len(clocks):.0f} MHz on average"
