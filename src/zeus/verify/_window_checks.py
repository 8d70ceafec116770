"""Checks of measured windows: they add up, and their uncertainties cover the truth.

The truth is known on simulated GPUs only. Elsewhere windows are compared with each other: those
back to back, or inside one, with the one around them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeus.monitor import Measurement, Method, ZeusMonitor
from zeus.monitor._sampler import sampler_of
from zeus.verify import _checks as names
from zeus.verify._checks import Check, Why, impossible, judged

if TYPE_CHECKING:
    from zeus.device import Gpu, Node
    from zeus.verify._loads import Load
    from zeus.verify._sensor_fit import SensorFit

_SHORT, _PAUSE, _MIDDLE = 0.05, 0.04, 0.5  # seconds,
_IRREGULAR = 0.2  # give or take this share, so that no sensor is in step with them
_LONG = 5.0  # seconds
_LEARNING = 2.0  # seconds of windows before those that are judged
_CHANCE = 2.6  # standard deviations by which a share of covered windows may be low by chance
_COVERED = 0.95


class _Window(NamedTuple):
    measurement: Measurement
    truth: float | None  # joules


def check_windows(
    gpu: Gpu, node: Node, load: Load | None, power: SensorFit | None, seconds: float
) -> list[Check]:
    """Measure windows of 50 ms, half a second and some seconds, nested and back to back.

    Args:
        gpu: The GPU.
        node: Its node.
        load: The load that runs in half of the short windows; without one, all are idle.
        power: What was found of its power meter.
        seconds: For how long to measure.
    """
    with ZeusMonitor([gpu.index], [], sync_execution_with=None, node=node) as monitor:
        measured = _Measured(monitor, gpu, load)
        measured.run(_LEARNING)
        measured = _Measured(monitor, gpu, load)
        # All short windows lie back to back in those of half a second, and these in long ones.
        for _ in range(max(round(seconds / _LONG), 1)):
            measured.run(_LONG)
        monitor.settle()
        learned = _learned(gpu, node, power)
    checks = [
        *measured.covered(),
        measured.adds_up(),
    ]
    return [*checks, *learned]


class _Measured:
    """Windows of a monitor, by length."""

    def __init__(self, monitor: ZeusMonitor, gpu: Gpu, load: Load | None) -> None:
        self._monitor = monitor
        self._gpu = gpu
        self._load = load
        self._clock = monitor.node.clock
        self._rng = random.Random(9)  # any; the same windows every time
        self.short: list[_Window] = []
        self.middle: list[_Window] = []
        self.long: list[_Window] = []

    def run(self, seconds: float) -> None:
        """Measure one long window, full of others."""
        end = self._clock.now() + seconds
        begin = self._begun("long")
        while self._clock.now() < end:
            self._middle_window()
        self.long.append(self._ended("long", begin))

    def _middle_window(self) -> None:
        end = self._clock.now() + _MIDDLE
        begin = self._begun("middle")
        while self._clock.now() < end:
            for name, usual in (("load", _SHORT), ("pause", _PAUSE)):
                seconds = usual * self._rng.uniform(1 - _IRREGULAR, 1 + _IRREGULAR)
                start = self._begun(name)
                if name == "load" and self._load is not None:
                    self._load.run(seconds)
                else:
                    self._clock.sleep(seconds)
                self.short.append(self._ended(name, start))
        self.middle.append(self._ended("middle", begin))

    def _begun(self, name: str) -> tuple[float, float | None]:
        """Begin a window; return when it did, and the true joules up to then.

        The truth is that of the very instant: a busy host may pause us before and after it.
        """
        self._monitor.begin_window(name)
        begin = self._monitor._open[name].begin
        return begin, self._exact(begin)

    def _exact(self, instant: float) -> float | None:
        return None if self._load is None else self._load.exact_energy(instant)

    def _ended(self, name: str, begun: tuple[float, float | None]) -> _Window:
        measurement = self._monitor.end_window(name)
        begin, before = begun
        after = self._exact(begin + measurement.time)
        truth = None if after is None or before is None else after - before
        return _Window(measurement, truth)

    def energy(self, window: _Window) -> tuple[float, float] | None:
        """Return joules and uncertainty of a window; `None` if it could not be measured."""
        (reading,) = window.measurement.readings
        if reading.energy is None or reading.uncertainty is None:
            return None
        return reading.energy, reading.uncertainty

    def covered(self) -> list[Check]:
        """Return the share of windows whose truth lies within the stated uncertainty."""
        kinds = (
            (names.SHORT_COVERED, self.short),
            (names.MIDDLE_COVERED, self.middle),
            (names.LONG_COVERED, self.long),
        )
        return [check for name, windows in kinds if (check := self._coverage(name, windows))]

    def _coverage(self, name: str, windows: Sequence[_Window]) -> Check | None:
        if any(window.truth is None for window in windows):
            return None  # a real GPU; nothing to say
        pairs = [(energy, w.truth) for w in windows if (energy := self.energy(w)) and w.truth]
        if not pairs:
            return impossible(name, Why.FEW_POLLS)
        within = sum(abs(joules - truth) <= off for (joules, off), truth in pairs)
        errors = sorted(abs(joules / truth - 1) for (joules, _), truth in pairs)
        chance = max(
            _CHANCE * math.sqrt(_COVERED * (1 - _COVERED) / len(pairs)),
            (_COVERED if len(pairs) < 4 else 0.0) / len(pairs),  # one of very few
        )
        detail = f"of {len(pairs)} windows; error {errors[len(errors) // 2]:.2%} in the median"
        return judged(name, within / len(pairs), chance, detail=detail)

    def adds_up(self) -> Check:
        """Compare long windows with the sum of the short ones, which fill them."""
        parts = [self.energy(window) for window in (*self.short, *self.long)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or not self.long:
            return impossible(names.ADD_UP, Why.FEW_POLLS)
        short = known[: len(self.short)]
        whole = sum(joules for joules, _ in known[len(self.short) :])
        whole_off = sum(off for _, off in known[len(self.short) :])
        if whole <= 0:
            return impossible(names.ADD_UP, Why.UNCLEAR)
        if all(
            window.measurement.readings[0].method is not Method.INTEGRATED for window in self.long
        ):
            # Errors of neighbors cancel, as the counter has their sum; how far is not stated.
            short_off = math.hypot(*(off for _, off in short))
        else:
            short_off = sum(off for _, off in short)
        off = (short_off + whole_off) / whole
        share = sum(joules for joules, _ in short) / whole - 1
        under = "under load" if self._load is not None else "of an idle GPU"
        return judged(names.ADD_UP, share, off, detail=f"{len(short)} windows {under}")


def _learned(gpu: Gpu, node: Node, power: SensorFit | None) -> list[Check]:
    """Compare the response that Zeus has learned from windows with the one that was fitted."""
    (source,) = sampler_of(node).sources.of([gpu])
    response = source.estimator.response
    if power is None or power.response is None:
        return []
    fit, best = power.response, response.best
    if not response.sure:
        return [
            impossible(names.LEARNED_WINDOW, Why.NOT_LEARNED, fit.window),
            impossible(names.LEARNED_LAG, Why.NOT_LEARNED, fit.lag),
        ]
    return [
        judged(names.LEARNED_WINDOW, best.window, fit.window_uncertainty, fit.window),
        judged(names.LEARNED_LAG, best.lag, fit.lag_uncertainty, fit.lag),
    ]
