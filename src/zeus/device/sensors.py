"""What the sensors of GPUs make of the power that is really drawn.

A driver's power reading and energy counter are not live: each is refreshed every so often, at a
phase of its own, as a mean over some time that has passed already. Simulated GPUs have the sensors
that are published of the real parts (presets below), so that whoever measures right here measures
right there. Energies are functions of time: joules drawn up to an instant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

JoulesAt = Callable[[float], float]

_INSTANT = 1e-4  # seconds over which an "instantaneous" reading is a mean


@dataclass(frozen=True)
class Sensor:
    """How a power reading or an energy counter follows what is drawn.

    Attributes:
        period: Seconds between refreshes; 0 for a sensor that is always fresh.
        phase: Seconds by which refreshes lie after multiples of the period, as a share of it from
            0 to 1; `None` for one that differs from GPU to GPU.
        window: Seconds over which a power reading is a mean. Shorter than the period, the sensor
            samples part of the time only.
        lag: Seconds by which the reading is late.
        jitter: Seconds by which a refresh may come late; a different amount each time.
        noise: Standard deviation of a power reading, as a share of it.
        gain: Reading over truth: an error of calibration, which cannot be seen from inside.
        part_time: For a counter: seconds before each refresh whose mean power it takes for all the
            time since the refresh before; 0 for one that misses nothing.
    """

    period: float = 0.0
    phase: float | None = None
    window: float = 0.0
    lag: float = 0.0
    jitter: float = 0.0
    noise: float = 0.0
    gain: float = 1.0
    part_time: float = 0.0

    def __post_init__(self) -> None:
        for name in ("period", "window", "lag", "jitter", "noise", "part_time"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"`{name} >= 0` must hold, but got {value!r}")
        if self.period and self.jitter >= self.period:
            raise ValueError(
                f"`jitter < period` must hold, so that refreshes stay in order, but got "
                f"jitter={self.jitter!r}, period={self.period!r}"
            )
        if not 0 < self.gain < math.inf:
            raise ValueError(f"`gain > 0` must hold, but got {self.gain!r}")

    def refresh(self, number: int, salt: int) -> float:
        """The instant of a refresh, by its number.

        Args:
            number: Any whole number; instants ascend with it.
            salt: Of the GPU and sensor: others have other phases and jitter.
        """
        phase = scatter(0, salt) if self.phase is None else self.phase
        late = self.jitter * scatter(number, salt + 1) if self.jitter else 0.0
        return (number + phase) * self.period + late

    def last_refresh(self, now: float, salt: int) -> int:
        """The number of the last refresh at or before an instant; for a sensor with a period."""
        number = math.floor(now / self.period)
        while self.refresh(number, salt) > now:
            number -= 1
        return number

    def power(self, joules_at: JoulesAt, now: float, salt: int = 0) -> float:
        """What a power meter of this kind reads, in watts.

        Args:
            joules_at: What is really drawn.
            now: When it is read.
            salt: Of the GPU and sensor.
        """
        number = self.last_refresh(now, salt) if self.period else 0
        instant = (self.refresh(number, salt) if self.period else now) - self.lag
        window = self.window or _INSTANT
        watts = (joules_at(instant) - joules_at(instant - window)) / window
        if self.noise:
            watts *= 1 + self.noise * normal(number if self.period else hash(now), salt)
        return self.gain * watts

    def energy(self, joules_at: JoulesAt, now: float, salt: int = 0) -> float:
        """What an energy counter of this kind stands at that misses nothing, in joules."""
        instant = self.refresh(self.last_refresh(now, salt), salt) if self.period else now
        return self.gain * joules_at(instant - self.lag)

    def missing_counted(self, joules_at: JoulesAt, number: int, salt: int = 0) -> float:
        """What a part-time counter adds at a refresh, in joules."""
        end, begin = self.refresh(number, salt), self.refresh(number - 1, salt)
        window = min(self.part_time, end - begin)
        seen = joules_at(end - self.lag) - joules_at(end - self.lag - window)
        return self.gain * seen / window * (end - begin)


@dataclass(frozen=True)
class Sensors:
    """The sensors of one GPU.

    Attributes:
        counter: Energy; `None` if there is none.
        power: Instantaneous power, as far as it is.
        average: The mean over a longer time, if the driver has one apart.
        timestamps: Whether the counter comes with the instant of its refresh (AMD).
    """

    counter: Sensor | None
    power: Sensor
    average: Sensor | None = None
    timestamps: bool = False


LIVE = Sensors(Sensor(), Sensor())
"""Sensors that no GPU has: always fresh."""

_SECOND = Sensor(period=0.1, window=1.0)

PRESETS: dict[str, Sensors] = {
    "live": LIVE,
    # Published for parts of their generation: arXiv 2312.02741, and the cross-layer paper.
    "p100": Sensors(None, Sensor(period=0.02, window=0.02, lag=0.01)),
    "v100": Sensors(Sensor(period=0.02), Sensor(period=0.02, window=0.02, lag=0.01)),
    "a100": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.025)),
    "h100": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.025), _SECOND),
    "rtx": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.1), _SECOND),
    "a40": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.1), _SECOND),
    # AMD: an accumulator with its own timestamp; power is filtered, and lags.
    "mi250x": Sensors(
        Sensor(period=0.001), Sensor(period=0.001, window=0.05, lag=0.02), timestamps=True
    ),
    "mi300x": Sensors(
        Sensor(period=0.001), Sensor(period=0.001, window=0.03, lag=0.01), timestamps=True
    ),
}
"""Sensors by GPU. What is not published of a part is that of its nearest relative."""


def scatter(number: int, salt: int) -> float:
    """A number in [0, 1) that depends on its arguments only, as random as they differ."""
    mask = 2**64 - 1
    mixed = number * 0xDF7C85303DD46B6B + salt * 0xF820571E8B29C9DD + 0x3C4F9A1D70E6B285 & mask
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1 & mask
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9 & mask
    mixed ^= mixed >> 32
    return (mixed >> 11) * 2.0**-53


def normal(number: int, salt: int) -> float:
    """Likewise, with mean 0 and standard deviation 1."""
    radius = math.sqrt(-2 * math.log(1 - scatter(number, salt + 2)))
    return radius * math.cos(2 * math.pi * scatter(number, salt + 3))
