"""Time and energy of a pipeline's computations at each clock, by stage and instruction.

A profile is a CSV table with the columns stage, instruction, frequency (MHz), time (s) and energy
(J, of one GPU). Rows of the instruction `communication` have no frequency: their time is that of a
message between the stage and the next one, in either direction. A column `label` may name what else
is chosen besides the clock; a row with a label may have no frequency.

Measurements are used as they are. Noise in them is handled like this:

- *Repeated.* Several rows of one stage, instruction, frequency and label are measurements of the
  same thing; their mean is used.
- *Dominated.* An option that takes longer than another, and saves no energy against running the
  other and waiting, is never chosen (`useful`). A higher clock that was measured to be slower and
  to need more energy is one of these.
- *Off the convex hull.* An option that a mix of two others would beat can still be run, and may
  fill a gap that they do not fit into. Plans may use it; the continuous bound does not.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from zeus.errors import StageProfileError
from zeus.optimizer.pipeline_frequency._tables import number, refuse, rows

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
COMMUNICATION = "communication"
GRADIENT_EXCHANGE, OPTIMIZER_STEP = "gradient_exchange", "optimizer_step"
LABEL = "label"  # a further column, which a table may lack
# Beyond any GPU, yet sums and quotients of such values do not overflow.
MIN_SECONDS, MAX_SECONDS, MAX_JOULES, MAX_MEGAHERTZ = 1e-12, 1e6, 1e12, 1e5
_MAX_LABEL = 200  # characters


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run an operation, on one GPU.

    Attributes:
        frequency: MHz; `None` if no clock is set for the operation.
        time: Seconds.
        energy: Joules.
        label: Name of what else is chosen besides the clock: a communication schedule, a share of
            the SMs, a number of nanobatches. Empty if it is only the clock.
    """

    frequency: float | None
    time: float
    energy: float
    label: str = ""

    @property
    def power(self) -> float:
        """Average watts; 0 if it takes no time."""
        return self.energy / self.time if self.time > 0 else 0.0

    @property
    def setting(self) -> str:
        """The clock and the label, for people; empty if nothing is set."""
        clock = "" if self.frequency is None else f"{self.frequency:g} MHz"
        return ", ".join(filter(None, (clock, self.label)))


class Profile(Mapping[tuple[int, str], tuple[Option, ...]]):
    """Options by stage and instruction, each by falling frequency, then by label.

    Args:
        options: At least one per stage and instruction; stages are numbered from 0 on.
        name: Name of the profiled model, for messages and pictures.

    Raises:
        StageProfileError: If a value is invalid.
    """

    def __init__(
        self, options: Mapping[tuple[int, str], Iterable[Option]], name: str = "profile"
    ) -> None:
        self.name = name
        self._options: dict[tuple[int, str], tuple[Option, ...]] = {}
        for (stage, instruction), given in sorted(options.items()):
            where = f"{name}: stage {stage} {instruction}"
            checked = [_checked(option, where) for option in given]
            if not checked:
                raise StageProfileError(f"{where}: at least one option is needed, but got none")
            self._options[stage, instruction] = _merged(checked)
        present = {stage for stage, _ in self._options}
        self.stages = len(present)
        # Compared by count, not listed in a range: a wrong stage number may be huge.
        if not present or min(present) != 0 or max(present) != len(present) - 1:
            found = ", ".join(f"{stage}"[:20] for stage in sorted(present)) or "none"
            raise StageProfileError(
                f"{name}: stages must be numbered 0, 1, 2, ... without a gap, but got {found}"
            )

    def __getitem__(self, key: tuple[int, str]) -> tuple[Option, ...]:
        return self._options[key]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        options = sum(map(len, self._options.values()))
        return f"Profile({self.name!r}: {self.stages} stages, {options} options)"

    def of(self, stage: int, instruction: str) -> tuple[Option, ...]:
        """Return the options of one instruction of one stage.

        Raises:
            StageProfileError: If it was not measured.
        """
        try:
            return self._options[stage, instruction]
        except KeyError:
            known = ", ".join(repr(i) for s, i in self._options if s == stage) or "nothing"
            raise StageProfileError(
                f"{self.name}: stage {stage} has no {instruction!r}; measured: {known}"
            ) from None

    def has(self, instruction: str) -> bool:
        """Return whether every stage has this instruction."""
        return all((stage, instruction) in self._options for stage in range(self.stages))

    def with_copy(self, of: str, named: str) -> Profile:
        """Return a profile with one more instruction, of the same time and energy as another.

        Args:
            of: Name of the instruction that is there.
            named: Name of the new one.
        """
        return self.with_parts(of, {named: 1.0})

    def with_parts(self, of: str, shares: Mapping[str, float]) -> Profile:
        """Return a profile with more instructions, each a share of the time and energy of `of`.

        Args:
            of: The measured instruction to divide.
            shares: Share of each part, above 0 and at most 1; `{"backward_input": 0.5, ...}`.

        Raises:
            StageProfileError: If a share is out of range, or a stage lacks the instruction.
        """
        for part, share in shares.items():
            if not 0 < share <= 1:
                raise StageProfileError(
                    f"`0 < share <= 1` must hold for a part of {of!r}, but got {part}={share!r}"
                )
        options = dict(self._options)
        for stage in range(self.stages):
            whole = self.of(stage, of)
            for part, share in shares.items():
                options[stage, part] = tuple(
                    replace(each, time=each.time * share, energy=each.energy * share)
                    for each in whole
                )
        return Profile(options, self.name)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile from a CSV table.

        Args:
            path: File to read.

        Raises:
            StageProfileError: If the table is invalid; names the file and the line.
            OSError: If it cannot be read.
        """
        return _read(Path(path))


def useful(options: Iterable[Option], blocking_power: float) -> tuple[Option, ...]:
    """Return the options that are not dominated, by rising time.

    A GPU that finishes earlier waits, and draws the blocking power meanwhile. So the cost of an
    option is its energy minus the energy of waiting for its time; the cost falls from each
    returned option to the next.

    Args:
        options: All options.
        blocking_power: Watts of a waiting GPU.
    """
    kept: list[Option] = []
    least = math.inf
    for option in sorted(options, key=lambda option: (option.time, option.energy)):
        cost = option.energy - blocking_power * option.time
        if cost < least:
            kept.append(option)
            least = cost
    return tuple(kept)


# --- rules ----------------------------------------------------------------------------------------


def _checked(option: Option, where: str) -> Option:
    if option.frequency is not None:
        _check("frequency", option.frequency, True, MAX_MEGAHERTZ, where)
    _check("time", option.time, True, MAX_SECONDS, where)
    if option.time < MIN_SECONDS:
        raise StageProfileError(
            f"{where}: `time >= {MIN_SECONDS:g}` must hold, but got time={option.time!r}"
        )
    _check("energy", option.energy, False, MAX_JOULES, where)
    _check_label(option.label, where)
    return option


def _check_label(given: object, where: str) -> None:
    if not isinstance(given, str) or len(given) > _MAX_LABEL:
        raise StageProfileError(
            f"{where}: `label` must be a text of at most {_MAX_LABEL} characters, but got "
            f"{given!r:.60}"
        )


def _check(name: str, given: object, beyond: bool, most: float, where: str) -> None:
    """Check that a value is a number from 0 (above 0 if `beyond`) up to `most`."""
    value = given if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
    if value > most:
        rule = f"{name} <= {most:g}"
    elif value > 0 or (value == 0 and not beyond):
        return
    else:
        rule = f"{name} {'>' if beyond else '>='} 0"
    raise StageProfileError(f"{where}: `{rule}` must hold, but got {name}={given!r:.60}")


def _merged(options: Sequence[Option]) -> tuple[Option, ...]:
    """Return one option per frequency and label, the mean of its measurements, highest first."""

    def setting(option: Option) -> tuple[float, str]:
        return math.inf if option.frequency is None else -option.frequency, option.label

    merged = []
    for _, group in groupby(sorted(options, key=setting), setting):
        same = list(group)
        merged.append(
            same[0]
            if len(same) == 1
            else replace(
                same[0],
                time=math.fsum(option.time for option in same) / len(same),
                energy=math.fsum(option.energy for option in same) / len(same),
            )
        )
    return tuple(merged)


# --- the file -------------------------------------------------------------------------------------


def _read(path: Path) -> Profile:
    options: dict[tuple[int, str], list[Option]] = {}
    for where, cells in rows(path, COLUMNS, "a profile", [LABEL]):
        try:
            stage = int(cells["stage"])
        except ValueError:
            stage = -1
        if stage < 0:
            refuse(where, "stage", "a whole number, 0 or more", cells["stage"])
        if not cells["instruction"]:
            refuse(where, "instruction", "a name", cells["instruction"])
        option = Option(
            _frequency(cells, where),
            number(cells, "time", where),
            number(cells, "energy", where),
            cells.get(LABEL, ""),
        )
        key = stage, cells["instruction"]
        options.setdefault(key, []).append(_checked(option, where))
    return Profile(options, str(path))


def _frequency(cells: Mapping[str, str], where: str) -> float | None:
    if cells["instruction"] == COMMUNICATION:
        for name in ("frequency", LABEL):
            if cells.get(name):
                refuse(where, name, f"empty for {COMMUNICATION}", cells[name])
        return None
    # What else is chosen, or an exchange by the network alone, may have no clock.
    clockless = cells.get(LABEL) or cells["instruction"] == GRADIENT_EXCHANGE
    if clockless and not cells["frequency"]:
        return None
    frequency = number(cells, "frequency", where)
    return int(frequency) if frequency.is_integer() else frequency
