"""The result of a window: time, and energy by device, with method and uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, replace
from typing import Any, NoReturn

from zeus.monitor._samples import Energy, Method

GPU, CPU, DRAM, SOC = "gpu", "cpu", "dram", "soc"
_JOULES_PER_KWH = 3.6e6
_LEAST_KWH = 0.01
_HEADINGS = ("device", "energy", "power", "method")


@dataclass(frozen=True)
class Reading:
    """Energy of one device over a window.

    Attributes:
        domain: "gpu", "cpu", "dram" or "soc".
        index: Number of the GPU or CPU package, or the name of a part of a system on a chip.
        device: Product name.
        energy: Joules; `None` if it could not be measured.
        method: How it was obtained: counter, integrated, estimated or unavailable.
        uncertainty: Maximum error in joules for about 19 of 20 windows; `None` if unknown.
        note: Why it is unavailable, or how it was derived.
        key: Unique ID of the device across machines (a UUID, or a name with the machine's), so
            that sums over processes count each device once.
        contained: Whether this energy is part of another reading, and so excluded from sums.
    """

    domain: str
    index: int | str
    device: str
    energy: float | None
    method: Method
    uncertainty: float | None = None
    note: str = ""
    key: str = ""
    contained: bool = False

    @classmethod
    def of(
        cls,
        domain: str,
        index: int | str,
        device: str,
        energy: Energy,
        *,
        key: str = "",
        contained: bool = False,
    ) -> Reading:
        """Make a reading from an energy.

        Args:
            domain: Domain of the device, such as "gpu".
            index: Index of the device in its domain.
            device: Name of the device.
            energy: Its energy.
            key: Key of the device in the job.
            contained: Whether another reading includes this one.
        """
        return cls(domain, index, device, *energy[:4], key=key, contained=contained)

    def to_energy(self) -> Energy:
        """Return the energy without the device."""
        return Energy(self.energy, self.method, self.uncertainty, self.note)


class Measurement:
    """Time and energy of a window.

    Energies are final when the GPU's counter has ticked after the window's end, at most about 0.1 s
    later (`settled`); before that, they are estimates with a larger uncertainty. Measurements are
    immutable to callers, and neither reading one nor `end_window` waits for a driver.

    Attributes:
        time: Duration in seconds.
    """

    __slots__ = ("__weakref__", "_readings", "_resolve", "time")

    time: float
    _readings: tuple[Reading, ...] | None
    _resolve: Callable[[], tuple[tuple[Reading, ...], bool]] | None

    def __init__(
        self,
        time: float,
        gpu_energy: Mapping[int, float] | None = None,
        cpu_energy: Mapping[int, float] | None = None,
        dram_energy: Mapping[int, float] | None = None,
        soc_energy: Mapping[str, float] | None = None,
    ) -> None:
        """Create a measurement with known energies, in joules by device index.

        Args:
            time: Duration in seconds.
            gpu_energy: Energies of GPUs.
            cpu_energy: Energies of CPUs.
            dram_energy: Energies of DRAM.
            soc_energy: Energies of a system on a chip, by domain.
        """
        given = ((GPU, gpu_energy), (CPU, cpu_energy), (DRAM, dram_energy), (SOC, soc_energy))
        readings = tuple(
            Reading(domain, index, "", joules, Method.COUNTER)
            for domain, energies in given
            for index, joules in (energies or {}).items()
        )
        self._fill(time, readings, None)

    @classmethod
    def deferred(
        cls, time: float, resolve: Callable[[], tuple[tuple[Reading, ...], bool]]
    ) -> Measurement:
        """Make a measurement from a function that returns readings and whether they are final.

        Args:
            time: Duration in seconds.
            resolve: The function.
        """
        measurement = cls.__new__(cls)
        measurement._fill(time, None, resolve)
        return measurement

    @classmethod
    def of(cls, time: float, readings: Iterable[Reading]) -> Measurement:
        """Make a measurement from readings.

        Args:
            time: Duration in seconds.
            readings: One for each device.
        """
        measurement = cls.__new__(cls)
        measurement._fill(time, tuple(readings), None)
        return measurement

    def _fill(
        self,
        time: float,
        readings: tuple[Reading, ...] | None,
        resolve: Callable[[], tuple[tuple[Reading, ...], bool]] | None,
    ) -> None:
        put = object.__setattr__
        put(self, "time", time)
        put(self, "_readings", readings)
        put(self, "_resolve", resolve)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Measurement.of, (self.time, self.readings)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Every device with its energy, method and uncertainty."""
        readings, resolve = self._readings, self._resolve
        if readings is None and resolve is not None:
            readings, final = resolve()
            if final:
                # Two threads may do this at once; their results are the same.
                object.__setattr__(self, "_readings", readings)
                object.__setattr__(self, "_resolve", None)
        readings = self._readings if readings is None else readings
        assert readings is not None
        return readings

    @property
    def settled(self) -> bool:
        """Whether the energies are final."""
        self.readings  # noqa: B018  (access may settle)
        return self._readings is not None

    def _by_index(self, domain: str) -> dict[Any, float]:
        return {
            reading.index: reading.energy
            for reading in self.readings
            if reading.domain == domain and reading.energy is not None
        }

    @property
    def gpu_energy(self) -> dict[int, float]:
        """Joules by GPU index. A GPU that could not be measured is absent; see `unavailable`."""
        return self._by_index(GPU)

    @property
    def cpu_energy(self) -> dict[int, float] | None:
        """Joules by CPU package; `None` if no package was measured."""
        return self._by_index(CPU) or None

    @property
    def dram_energy(self) -> dict[int, float] | None:
        """Joules of memory by CPU package; `None` if none was measured."""
        return self._by_index(DRAM) or None

    @property
    def soc_energy(self) -> dict[str, float] | None:
        """Joules by part of the system on a chip; `None` if there is none."""
        return self._by_index(SOC) or None

    @property
    def total_energy(self) -> float:
        """Joules of all measured GPUs. See `complete` for whether that is all of them.

        As in Zeus's published API, 0 if no GPU was measured; `energy` is `None` in that case.
        """
        return sum(self.gpu_energy.values())

    @property
    def energy(self) -> float | None:
        """Joules over all measured domains; `None` if nothing was measured."""
        known = [r.energy for r in self.readings if r.energy is not None and not r.contained]
        return sum(known) if known else None

    @property
    def uncertainty(self) -> float | None:
        """Uncertainty of `energy` in joules; `None` if unknown."""
        squares = [
            reading.uncertainty**2
            for reading in self.readings
            if reading.energy is not None
            and not reading.contained
            and reading.uncertainty is not None
        ]
        return math.sqrt(sum(squares)) if squares else None

    @property
    def average_power(self) -> float | None:
        """Watts over all measured domains; `None` if nothing was measured or no time passed."""
        energy = self.energy
        return energy / self.time if energy is not None and self.time > 0 else None

    @property
    def average_gpu_power(self) -> dict[int, float]:
        """Watts by GPU index."""
        if self.time <= 0:
            return {}
        return {index: energy / self.time for index, energy in self.gpu_energy.items()}

    @property
    def unavailable(self) -> tuple[Reading, ...]:
        """Requested devices that could not be measured, with the reasons."""
        return tuple(r for r in self.readings if r.method is Method.UNAVAILABLE)

    @property
    def complete(self) -> bool:
        """Whether every requested device was measured."""
        return not self.unavailable

    # --- comparing and showing --------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Measurement):
            return NotImplemented
        return self.time == other.time and self.readings == other.readings

    def __hash__(self) -> int:
        return hash((self.time, self.readings))

    def __repr__(self) -> str:
        parts = [f"time={self.time!r}", f"gpu_energy={self.gpu_energy!r}"]
        for name in ("cpu_energy", "dram_energy", "soc_energy"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={value!r}")
        parts += [f"unavailable={r.domain}{r.index}: {r.note}" for r in self.unavailable]
        return f"Measurement({', '.join(parts)})"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return device, energy, average power and method of each reading, formatted."""
        return [_row(reading, self.time) for reading in self.readings]

    def __str__(self) -> str:
        if not self.readings:
            return self.summary()
        table = [_HEADINGS, *self.rows()]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        lines = [
            f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip()
            for a, b, c, d in table
        ]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """Return time, energy and power in one line."""
        if self.energy is None:
            return f"{show_seconds(self.time)}, energy not measured"
        text = f"{show_seconds(self.time)}, {show_energy(self.energy)}"
        if self.average_power is not None:
            text += f", {self.average_power:.1f} W on average"
        if not self.complete:
            text += f" (incomplete: {len(self.unavailable)} device(s) could not be measured)"
        return text

    def __rich__(self) -> Any:
        """Return a table for `rich`, which calls this."""
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=self.summary(), title_justify="left")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right" if heading in ("energy", "power") else "left")
        for row in self.rows():
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from html import escape  # noqa: PLC0415

        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        return (
            f"<table><caption>{escape(self.summary())}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, as types that JSON supports."""
        return {
            "time": self.time,
            "gpu_energy": _with_text_keys(self.gpu_energy),
            "cpu_energy": _with_text_keys(self.cpu_energy),
            "dram_energy": _with_text_keys(self.dram_energy),
            "soc_energy": _with_text_keys(self.soc_energy),
            "total_energy": self.total_energy if self.gpu_energy else None,  # unknown is not 0
            "energy": self.energy,
            "uncertainty": self.uncertainty,
            "average_power": self.average_power,
            "complete": self.complete,
            "readings": [asdict(reading) for reading in self.readings],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text.

        Args:
            indent: Spaces of indentation; `None` for one line.
        """
        import json  # noqa: PLC0415

        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Measurement:
        """Inverse of `to_dict`.

        Raises:
            ValueError: If the record is not of a measurement.
        """
        try:
            readings = [
                Reading(**{**reading, "method": Method(reading["method"])})
                for reading in record["readings"]
            ]
            return cls.of(float(record["time"]), readings)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the record of a measurement: {error!r}") from None

    @classmethod
    def combined(cls, measurements: Iterable[Measurement]) -> Measurement:
        """Combine the measurements of a job's processes.

        Time is the longest; energies add up, except that a device measured by several processes
        (identified by its UUID or PCI address) counts once, with its largest reading.
        """
        time = 0.0
        chosen: dict[tuple[str, str, str], Reading] = {}
        for number, measurement in enumerate(measurements):
            time = max(time, measurement.time)
            for reading in measurement.readings:
                identity = reading.key or f"{number}"  # without a key it counts separately
                slot = (reading.domain, identity, "" if reading.key else str(reading.index))
                other = chosen.get(slot)
                if other is None or (reading.energy or 0.0) > (other.energy or 0.0):
                    chosen[slot] = reading
        counts: dict[str, int] = {}
        renumbered: list[Reading] = []
        for reading in chosen.values():
            index: int | str = reading.index
            if isinstance(index, int):
                index = counts.get(reading.domain, 0)
                counts[reading.domain] = index + 1
            renumbered.append(replace(reading, index=index))
        return cls.of(time, renumbered)


def _with_text_keys(energies: Mapping[Any, float] | None) -> dict[str, float] | None:
    return None if energies is None else {str(index): value for index, value in energies.items()}


_KINDS = {GPU: "GPU", CPU: "CPU", DRAM: "DRAM", SOC: "SoC"}


def _row(reading: Reading, time: float) -> tuple[str, str, str, str]:
    device = f"{_KINDS.get(reading.domain, reading.domain)} {reading.index} {reading.device}"
    if reading.energy is None:
        return device.strip(), "-", "-", f"unavailable: {reading.note}"
    energy = show_joules(reading.energy)
    if reading.uncertainty is not None:
        energy += f" ± {show_joules(reading.uncertainty, digits=2)}"
    power = f"{reading.energy / time:.1f} W" if time > 0 else "-"
    how = f"{reading.method}" + (f": {reading.note}" if reading.note else "")
    return device.strip(), energy, power, how


def show_joules(joules: float, digits: int = 4) -> str:
    """Format an energy in J, kJ, MJ or GJ."""
    for unit, size in (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3)):
        if abs(joules) >= size:
            return f"{joules / size:.{max(digits, 3)}g} {unit}"
    return f"{joules:.{digits}g} J"


def show_energy(joules: float, digits: int = 4) -> str:
    """Format an energy in J, kJ, MJ or GJ, and in kWh where that is readable."""
    hours = joules / _JOULES_PER_KWH
    text = show_joules(joules, digits)
    return f"{text} ({hours:.3g} kWh)" if abs(hours) >= _LEAST_KWH else text


def show_seconds(seconds: float) -> str:
    """Format a duration in ms, s, min or h."""
    if seconds < 1:
        return f"{seconds * 1e3:.4g} ms"
    if seconds < 120:
        return f"{seconds:.4g} s"
    if seconds < 7200:
        return f"{seconds / 60:.4g} min"
    return f"{seconds / 3600:.4g} h"
