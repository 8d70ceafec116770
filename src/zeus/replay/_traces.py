"""Recorded outcomes of real training runs and power sweeps, as published with the Zeus paper.

A folder holds `summary_train.csv` (the epoch in which each run reached each metric) and one
`summary_power_GPU.csv` for each GPU model (time and average power of an epoch at each batch size
and power limit).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from zeus.errors import TraceError

TRAINING = "summary_train.csv"
SOURCE = "github.com/ml-energy/zeus: examples/research_reproducibility/zeus_nsdi23/trace"
"""Where the authors of the paper published theirs."""
_POWER = "summary_power_{}.csv"
_WHERE = f"those of the Zeus paper are in {SOURCE}"

Key = tuple[str, str, str]
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class TrainingRow:
    """The epoch in which one run reached one value of the metric.

    Attributes:
        batch_size: Batch size of the run.
        learning_rate: Learning rate of the run.
        run: Label of the run among those with the same settings.
        target_metric: Value of the metric.
        target_epoch: Epoch that reached it, from 1; infinite if none did.
    """

    batch_size: int
    learning_rate: float
    run: str
    target_metric: float
    target_epoch: float


@dataclass(frozen=True)
class PowerRow:
    """Time and power of an epoch at one batch size and power limit.

    Attributes:
        batch_size: Batch size.
        power_limit: Power limit in watts.
        time_per_epoch: Duration in seconds.
        average_power: Average power in watts.
    """

    batch_size: int
    power_limit: float
    time_per_epoch: float
    average_power: float


@dataclass(frozen=True)
class Traces:
    """Everything recorded in one folder.

    Attributes:
        folder: Path of the folder.
        training: Rows of the training trace, by dataset, network and optimizer.
        power: Rows of each GPU model's power trace, by dataset, network and optimizer.
    """

    folder: Path
    training: dict[Key, list[TrainingRow]]
    power: dict[str, dict[Key, list[PowerRow]]]


def gpus_in(folder: Path) -> list[str]:
    """Return the GPU models that have a power trace in the folder."""
    head, tail = _POWER.split("{}")
    return sorted(path.name[len(head) : -len(tail)] for path in folder.glob(_POWER.format("*")))


def load_traces(folder: Path | str, gpus: list[str] | None = None) -> Traces:
    """Read the traces of a folder.

    Args:
        folder: Path of the folder.
        gpus: GPU models; by default all that have a power trace.

    Raises:
        TraceError: If a file is missing or a line is invalid.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(
            f"{folder} must be a folder with traces, but there is no such folder; {_WHERE}"
        )
    found = gpus_in(folder)
    if not found:
        raise TraceError(f"{folder} must hold files {_POWER.format('GPU')}, but has none; {_WHERE}")
    wanted = found if gpus is None else gpus
    missing = [gpu for gpu in wanted if gpu not in found]
    if missing:
        raise TraceError(
            f"{folder} has no power trace of {', '.join(missing)}; it has {', '.join(found)}"
        )
    training = _read(folder / TRAINING, _training_row)
    return Traces(
        folder, training, {gpu: _read(folder / _POWER.format(gpu), _power_row) for gpu in wanted}
    )


def _read(path: Path, parse: Callable[[dict[str, str]], _Row]) -> dict[Key, list[_Row]]:
    rows: dict[Key, list[_Row]] = {}
    for line, fields in _lines(path):
        try:
            row = parse(fields)
            key = (fields["dataset"], fields["network"], fields["optimizer"])
        except KeyError as error:
            raise TraceError(f"{path}:{line}: there is no column {error}") from None
        except (ValueError, TypeError) as error:
            raise TraceError(f"{path}:{line}: {error}") from None
        rows.setdefault(key, []).append(row)
    if not rows:
        raise TraceError(f"{path} must have lines below its header, but has none")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            for fields in reader:
                if None in fields or None in fields.values():
                    raise TraceError(
                        f"{path}:{reader.line_num}: a line must have "
                        f"{len(reader.fieldnames or ())} values, like the header"
                    )
                yield reader.line_num, fields
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path} cannot be read: {reason}") from None


def _training_row(fields: dict[str, str]) -> TrainingRow:
    epoch = float(fields["target_epoch"] or "nan")
    if not (math.isnan(epoch) or epoch >= 1):
        raise ValueError(f"`target_epoch >= 1` must hold, but got {fields['target_epoch']!r}")
    return TrainingRow(
        batch_size=_batch_size(fields),
        learning_rate=_positive(fields, "learning_rate"),
        run=fields["run"],
        target_metric=float(fields["target_metric"]),
        target_epoch=math.inf if math.isnan(epoch) else epoch,
    )


def _power_row(fields: dict[str, str]) -> PowerRow:
    return PowerRow(
        batch_size=_batch_size(fields),
        power_limit=_positive(fields, "power_limit"),
        time_per_epoch=_positive(fields, "time_per_epoch"),
        average_power=_positive(fields, "average_power"),
    )


def _batch_size(fields: dict[str, str]) -> int:
    value = _positive(fields, "batch_size")
    if value != int(value):
        raise ValueError(f"`batch_size` must be a whole number, but got {fields['batch_size']!r}")
    return int(value)


def _positive(fields: dict[str, str], name: str) -> float:
    value = float(fields[name])
    if not 0 < value < math.inf:
        raise ValueError(f"`{name} > 0` must hold, but got {fields[name]!r}")
    return value
