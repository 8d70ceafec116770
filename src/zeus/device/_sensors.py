"""Models of GPU sensors: readings as functions of the actual power draw.

A driver's power reading and energy counter are not live: each is refreshed periodically, at a
phase of its own, as a mean over some past time. Simulated GPUs have the sensor behavior published
for the real parts (presets below), so that code that measures correctly here does so there.
Energies are functions of time: joules drawn up to an instant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from zeus._rules import Number

JoulesAt = Callable[[float], float]
WattsAt = Callable[[float], float]

_INSTANT = 1e-5  # averaging time of a reading without a window, in seconds
_LIVE_NOISE = 1e-3  # seconds for which the noise of a live sensor stays the same

# Added to the salt of a GPU, so that its sensors differ.
COUNTER, POWER, AVERAGE, USAGE = 0, 8, 16, 24


@dataclass(frozen=True)
class Sensor:
    """How a power reading or an energy counter follows the actual power.

    Attributes:
        period: Seconds between refreshes; 0 for a live sensor.
        phase: Offset of refreshes from multiples of the period, as a share of it, from 0 to below
            1; `None` for one that differs by GPU and sensor.
        window: Averaging time of a power reading, in seconds. If shorter than the period, the
            sensor samples part of the time only.
        lag: Delay of the reading, in seconds.
        jitter: Maximum random delay of a refresh, in seconds.
        noise: Standard deviation of a power reading, as a share of it; counters have none.
        gain: Reading divided by true value: a calibration error, which software cannot detect.
        part_time: For a counter: seconds before each refresh whose mean power it extrapolates to
            the whole time since the previous refresh; 0 for one that counts all energy.
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
            Number(0).check(name, getattr(self, name), ValueError)
        if self.period and self.jitter >= self.period:
            raise ValueError(
                f"`jitter < period` must hold, so that refreshes stay in order, but got "
                f"jitter={self.jitter!r}, period={self.period!r}"
            )
        if self.part_time and not self.period:
            raise ValueError(
                f"`period > 0` must hold for a counter with part_time, but got "
                f"part_time={self.part_time!r}, period={self.period!r}"
            )
        Number(0, above=True).check("gain", self.gain, ValueError)
        if self.phase is not None and not 0 <= self.phase < 1:
            raise ValueError(f"`0 <= phase < 1` must hold, but got {self.phase!r}")

    @property
    def reach(self) -> float:
        """Seconds of history that a reading may depend on."""
        return 2 * self.period + self.jitter + self.lag + max(self.window, self.part_time)

    def placed(self, salt: int) -> Sensor:
        """Return this sensor with its phase on one GPU."""
        return replace(self, phase=scatter(0, salt)) if self.phase is None else self

    def refresh(self, number: int, salt: int) -> float:
        """Return the instant of a refresh, by its number.

        Args:
            number: Any integer; instants ascend with it.
            salt: Seed of this GPU and sensor, for phase, jitter and noise. Salts of two sensors
                differ by four or more.
        """
        phase = scatter(0, salt) if self.phase is None else self.phase
        late = self.jitter * scatter(number, salt + 1) if self.jitter else 0.0
        return (number + phase) * self.period + late

    def last_refresh(self, now: float, salt: int) -> int:
        """Return the number of the last refresh at or before an instant; needs a period."""
        number = math.floor(now / self.period) + 1  # one too far, as the quotient is rounded
        while self.refresh(number, salt) > now:
            number -= 1
        return number

    def power(
        self, joules_at: JoulesAt, now: float, salt: int = 0, watts_at: WattsAt | None = None
    ) -> float:
        """Return the reading of a power meter of this kind, in watts.

        Args:
            joules_at: Energy actually drawn up to an instant.
            now: Instant of the reading, in seconds.
            salt: Seed of this GPU and sensor.
            watts_at: Actual power, for a meter without a window; by default a mean over 10 µs.
        """
        if self.period:
            number = self.last_refresh(now, salt)
            end = self.refresh(number, salt) - self.lag
        else:
            number = math.floor(now / _LIVE_NOISE)
            end = now - self.lag
        if watts_at is not None and not self.window:
            watts = watts_at(end)
        else:
            begin = end - (self.window or _INSTANT)
            # Not by the window: the difference of two instants is rounded, and windows are short.
            watts = (joules_at(end) - joules_at(begin)) / (end - begin)
        if self.noise:
            watts *= 1 + self.noise * normal(number, salt)
        return self.gain * watts

    def energy(self, joules_at: JoulesAt, now: float, salt: int = 0) -> float:
        """Return the value, in joules, of an energy counter of this kind that counts all energy."""
        instant = self.refresh(self.last_refresh(now, salt), salt) if self.period else now
        return self.gain * joules_at(instant - self.lag)

    def increment(self, joules_at: JoulesAt, number: int, salt: int = 0) -> float:
        """Return the joules that a part-time counter adds at a refresh, by its number."""
        end, begin = self.refresh(number, salt), self.refresh(number - 1, salt)
        window = min(self.part_time, end - begin)
        seen = joules_at(end - self.lag) - joules_at(end - self.lag - window)
        return self.gain * seen / window * (end - begin)

    def part_time_energy(
        self, joules_at: JoulesAt, since: int, until: int, steady: float, salt: int = 0
    ) -> float:
        """Return the joules that a part-time counter adds at a range of refreshes.

        Args:
            joules_at: Energy actually drawn up to an instant.
            since: The number of the last refresh already counted.
            until: The number of the last refresh to count.
            steady: The instant from which power is constant, so that not all need be visited.
            salt: Seed of this GPU and sensor.
        """
        joules = 0.0
        for number in range(since + 1, until + 1):
            begin, end = self.refresh(number - 1, salt), self.refresh(number, salt)
            added = self.increment(joules_at, number, salt)
            if end - self.lag - self.part_time >= steady:
                return joules + added / (end - begin) * (self.refresh(until, salt) - begin)
            joules += added
        return joules


@dataclass(frozen=True)
class Sensors:
    """The sensors of one GPU.

    Attributes:
        counter: Energy counter; `None` if there is none.
        power: Instantaneous power, or the closest reading to it.
        average: Mean over a longer time, if the driver has a separate one.
        timestamps: Whether the counter comes with the instant of its refresh (AMD).
    """

    counter: Sensor | None
    power: Sensor
    average: Sensor | None = None
    timestamps: bool = False

    @property
    def reach(self) -> float:
        """Seconds of history that a reading may depend on."""
        sensors = (self.counter, self.power, self.average)
        return max(sensor.reach for sensor in sensors if sensor is not None)

    def placed(self, salt: int) -> Sensors:
        """Return these sensors with their phases on one GPU."""
        return replace(
            self,
            counter=self.counter and self.counter.placed(salt + COUNTER),
            power=self.power.placed(salt + POWER),
            average=self.average and self.average.placed(salt + AVERAGE),
        )

    def with_live_power(self) -> Sensors:
        """Return the same energy counter with live power readings."""
        average = self.average and Sensor(window=self.average.window)
        return replace(self, power=Sensor(), average=average)


LIVE = Sensors(Sensor(), Sensor())
"""Ideal sensors that no GPU has: always live."""
PART_SENSORS = "part"
"""Name for the sensors published for a GPU's part."""
LIVE_POWER = "live-power"
"""Name for the energy counter of a GPU's part with live power readings."""

_SECOND = Sensor(period=0.1, window=1.0)

PRESETS: dict[str, Sensors] = {
    "live": LIVE,
    # Published for parts of their generation: arXiv 2312.02741, and the cross-layer paper.
    "p100": Sensors(None, Sensor(period=0.02, window=0.02, lag=0.01)),
    "v100": Sensors(Sensor(period=0.02), Sensor(period=0.02, window=0.02, lag=0.01)),
    "a100": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.025)),
    "h100": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.025), _SECOND),
    "rtx6000": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=0.1)),  # Turing
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
"""Sensors by GPU. Values not published for a part are those of the most similar one."""


def scatter(number: int, salt: int) -> float:
    """Return a pseudorandom number in [0, 1), a hash of the arguments."""
    mask = 2**64 - 1
    mixed = number * 0xDF7C85303DD46B6B + salt * 0xF820571E8B29C9DD + 0x3C4F9A1D70E6B285 & mask
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1 & mask
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9 & mask
    mixed ^= mixed >> 32
    return (mixed >> 11) * 2.0**-53


def normal(number: int, salt: int) -> float:
    """Return a normal pseudorandom number of mean 0 and standard deviation 1, a hash likewise."""
    radius = math.sqrt(-2 * math.log(1 - scatter(number, salt + 2)))
    return radius * math.cos(2 * math.pi * scatter(number, salt + 3))
