"""Files in which training processes publish metrics, for the exporter of their node.

A process has one small JSON file in a directory of its user, in a place that all users of the
machine share, so that no side needs any configuration. The exporter shows a file for as long as its
process lives. It trusts a file with nothing but its own user's metrics: who wrote it follows from
the owner of the directory, sizes and numbers are bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zeus.device import _record_places
from zeus.state._files import (
    STATE_VARIABLE,
    boot_id,
    process_namespace,
    process_start,
    state_directory,
)
from zeus.state._locks import signs_of_life
from zeus.telemetry._metrics import Family, Kind, Labels, Metric
from zeus.telemetry._owners import OWNER_LABELS, Owner, owner_in
from zeus.telemetry._readings import NodeReading

_PREFIX = "zeus-training-"
_VERSION = 1
_MAX_BYTES = 16_384
_MAX_FILES = 256  # of one user
_HUGE = 1e300
_MAX_LABEL = 128  # characters
_MEGA = 1e6


@dataclass(frozen=True)
class TrainingState:
    """What a training process publishes; a value that is unknown is `None`.

    Attributes:
        job: Name of the job.
        rank: Rank of the process on its node.
        steps: Steps so far.
        seconds: Measured seconds of training so far.
        energy: Joules of this process's GPUs in these seconds.
        step_energy: Joules per step, lately.
        step_seconds: Seconds per step, lately.
        sample_energy: Joules per training sample, lately.
        power_limit: Watts that the optimizer has chosen for each GPU.
        graphics_clock: MHz, likewise.
        batch_size: Samples in a step of this process.
        saved_energy: Joules saved so far, against the setting before the run.
        saved_energy_ratio: Share of the energy of a step that the chosen setting saves.
        slowdown_ratio: Share by which a step takes longer at the chosen setting.
        observing: Whether the choice is only reported, not applied.
    """

    job: str = ""
    rank: int = 0
    steps: int = 0
    seconds: float = 0.0
    energy: float | None = None
    step_energy: float | None = None
    step_seconds: float | None = None
    sample_energy: float | None = None
    power_limit: float | None = None
    graphics_clock: float | None = None
    batch_size: int | None = None
    saved_energy: float | None = None
    saved_energy_ratio: float | None = None
    slowdown_ratio: float | None = None
    observing: bool | None = None


_LABELS = ("job_name", "rank", "pid", *OWNER_LABELS)


def _metric(name: str, text: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(f"zeus_training_{name}", text, _LABELS, kind)


_METRICS: dict[str, tuple[Metric, float]] = {
    "steps": (_metric("steps_total", "Training steps of a process.", Kind.COUNTER), 1),
    "seconds": (_metric("seconds_total", "Time of these steps.", Kind.COUNTER), 1),
    "energy": (
        _metric("energy_joules_total", "Energy of the process's GPUs in them.", Kind.COUNTER),
        1,
    ),
    "step_energy": (_metric("step_energy_joules", "Energy per step, lately."), 1),
    "step_seconds": (_metric("step_seconds", "Time per step, lately."), 1),
    "sample_energy": (_metric("sample_energy_joules", "Energy per training sample, lately."), 1),
    "power_limit": (_metric("power_limit_watts", "Power limit that the optimizer has chosen."), 1),
    "graphics_clock": (
        _metric("graphics_clock_hertz", "Highest graphics clock that it has chosen."),
        _MEGA,
    ),
    "batch_size": (_metric("batch_size", "Samples in a step of the process."), 1),
    "saved_energy": (
        _metric("saved_energy_joules", "Energy saved so far, against the setting before the run."),
        1,
    ),
    "saved_energy_ratio": (
        _metric("saved_energy_ratio", "Share of a step's energy that the chosen setting saves."),
        1,
    ),
    "slowdown_ratio": (
        _metric("slowdown_ratio", "Share by which a step takes longer at the chosen setting."),
        1,
    ),
    "observing": (_metric("observing", "1 if the choice is only reported, not applied."), 1),
}
TRAINING_METRICS = tuple(metric for metric, _ in _METRICS.values())
"""Metrics of training processes."""


class TrainingFile:
    """The file of this process.

    Raises:
        OSError: If no directory can be written.
    """

    def __init__(self) -> None:
        directory = own_directory()
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._process = {
            "version": _VERSION,
            "pid": os.getpid(),
            "started": process_start(os.getpid()) or "",
            "boot": boot_id(),
            "namespace": process_namespace(),
            "sign_of_life": signs_of_life.give(directory / "alive"),
        }
        self._path = directory / f"{os.getpid()}-{os.urandom(4).hex()}.json"
        _remove_ended(directory)

    def write(self, state: TrainingState) -> None:
        """Publish the state.

        Raises:
            OSError: If the file cannot be written.
        """
        known = {name: value for name, value in asdict(state).items() if value is not None}
        # Not synced to a disk: what a crash of the machine leaves is of no use.
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._process | {"state": known}), encoding="utf-8")
        new.chmod(0o644)
        new.replace(self._path)

    def remove(self) -> None:
        """Publish nothing any more."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class TrainingSource:
    """Metrics of the training processes on this machine."""

    name = "training"
    problem = ""

    def families(self, reading: NodeReading) -> list[Family]:  # noqa: ARG002
        """Return the metrics of the processes that live."""
        # By labels: a scrape with two samples of one series is refused as a whole.
        states = {
            (state.job, f"{state.rank}", f"{pid}", *owner.labels): state
            for directory in directories()
            for pid, owner, state in _states(directory)
        }
        return [
            _family(metric, factor, {labels: getattr(s, name) for labels, s in states.items()})
            for name, (metric, factor) in _METRICS.items()
        ]

    def close(self) -> None:
        """Do nothing: there is no background work."""


def _family(metric: Metric, factor: float, values: dict[Labels, float | None]) -> Family:
    family = Family(metric)
    for labels, value in values.items():
        family.add(labels, None if value is None else value * factor)
    return family


def own_directory() -> Path:
    """Return the directory of this user's files.

    Raises:
        OSError: If none can be written.
    """
    if not os.environ.get(STATE_VARIABLE):
        for place in _record_places.SHARED_PLACES:
            own = place / f"{_PREFIX}{os.getuid()}"
            if _record_places.usable(own):
                return own
    return state_directory() / "training"


def directories() -> list[Path]:
    """Return the directories of all users whose files this one can see."""
    found = []
    if not os.environ.get(STATE_VARIABLE):
        for place in _record_places.SHARED_PLACES:
            with contextlib.suppress(OSError):
                found += [each for each in sorted(place.glob(f"{_PREFIX}*")) if _owned(each)]
    with contextlib.suppress(OSError):
        found.append(state_directory() / "training")
    return found


def _owned(directory: Path) -> bool:
    number = directory.name.removeprefix(_PREFIX)
    with contextlib.suppress(OSError):  # gone meanwhile
        return number.isdecimal() and _record_places.owned_by(directory, int(number))
    return False


def _states(directory: Path) -> Iterator[tuple[int, Owner, TrainingState]]:
    try:
        uid = directory.stat().st_uid
        paths = sorted(directory.glob("*.json"))
    except OSError:
        return
    for path in paths[:_MAX_FILES]:
        record = _record(path, uid)
        if record is not None and _lives(directory, record):
            state = _state(record.get("state"))
            if state is not None:
                process = (record["namespace"], record["pid"], record["started"])
                yield record["pid"], owner_in(*process, uid), state


def _record(path: Path, owner: int) -> dict[str, Any] | None:
    """Return the content of a file of this owner; `None` if it cannot be used."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        # Any user may put a pipe or a link there: opening it must not block nor lead elsewhere.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
                return None
            record = json.loads(os.read(descriptor, _MAX_BYTES))
        finally:
            os.close(descriptor)
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            return None
        texts = all(isinstance(record.get(key), str) for key in ("started", "boot", "namespace"))
        numbers = [record.get(key) for key in ("pid", "sign_of_life")]
        if texts and all(type(each) is int and 0 <= each < 2**63 for each in numbers):
            return record
    return None


def _lives(directory: Path, record: dict[str, Any]) -> bool:
    if record["boot"] != boot_id():
        return False
    if record["namespace"] == process_namespace():
        started = process_start(record["pid"])
        if started != "":
            return bool(started == record["started"])
    return signs_of_life.seen(directory / "alive", record["sign_of_life"])


def _state(found: Any) -> TrainingState | None:
    if not isinstance(found, dict):
        return None
    known = {each.name for each in fields(TrainingState)}
    values = {name: value for name, value in found.items() if name in known}
    job = values.pop("job", "")
    if not isinstance(job, str) or not all(map(_is_finite, values.values())):
        return None
    return TrainingState(job=job[:_MAX_LABEL], **values)


def _is_finite(value: object) -> bool:
    return isinstance(value, bool | int | float) and -_HUGE < value < _HUGE


def _remove_ended(directory: Path) -> None:
    """Remove files of processes of this user that were killed."""
    with contextlib.suppress(OSError):
        for path in [*directory.glob("*.json"), *directory.glob("*.new")]:
            record = _record(path, os.getuid())
            if record is None or not _lives(directory, record):
                path.unlink(missing_ok=True)
