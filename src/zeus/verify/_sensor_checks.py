"""Checks of the sensors of one GPU: presence, refreshes, response, agreement, idle power."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from zeus._student import student_factor
from zeus.verify import _checks as names
from zeus.verify._checks import Check, Why, impossible, judged
from zeus.verify._load_pattern import Segment, SquareWave, irregular, quick
from zeus.verify._recording import Recording, Sensors, record
from zeus.verify._sensor_fit import SensorFit, fit_counter, fit_meter

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Gpu
    from zeus.verify._loads import Load

_IDLE_GAP, _BURST_GAP, _GAP = 4e-3, 1e-4, 2e-3  # seconds between polls
_BLOCKS = 10  # parts of an idle recording, whose powers show how well their mean is known
_FEWEST_POLLS = 50
_INSTANT = 1e-3  # seconds; shorter windows are called instantaneous

Presets = Mapping[str, float]


class Lengths(NamedTuple):
    """Seconds for which each part of the checks polls."""

    idle: float = 3.0
    burst: float = 0.5
    load: float = 12.0
    windows: float = 25.0
    knob: float = 1.0
    host: float = 1.0


class SensorsFound(NamedTuple):
    """Checks, and what was found of the power meter, to compare with what Zeus learns."""

    checks: list[Check]
    power: SensorFit | None


def check_sensors(
    gpu: Gpu, clock: Clock, load: Load | None, presets: Presets, lengths: Lengths
) -> SensorsFound:
    """Check all sensors of a GPU.

    Raises:
        CapabilityError: If the GPU is lost or hangs.
    """
    rng = random.Random(8)  # any; the same load every time
    sensors = Sensors(gpu, clock)
    idle = record(sensors, clock, _IDLE_GAP, [Segment(lengths.idle, on=False)], rng=rng)
    without = [Segment(lengths.burst, on=False)], [Segment(lengths.load, on=False)]
    patterns = (
        without if load is None else (quick(lengths.burst, rng), irregular(lengths.load, rng))
    )
    burst = record(sensors, clock, _BURST_GAP, patterns[0], load, rng=rng)
    main = record(sensors, clock, _GAP, patterns[1], load, rng=rng)
    wave = SquareWave([*burst.edges, *main.edges])
    edge = 0.0 if load is None else load.edge_uncertainty
    checks = _presence(main, presets)
    counter = fit_counter(burst, main, wave) if main.values("joules") else None
    power = fit_meter(burst, main, wave, "watts") if main.values("watts") else None
    recordings = (idle, burst, main)
    if counter is not None:
        checks += _of_counter(counter, recordings, presets, edge, loaded=load is not None)
    if power is not None:
        checks += _of_meter(power, presets, edge, loaded=load is not None)
        checks += _phase(counter, power)
    if main.values("average"):
        checks.append(_average(burst, main, wave, presets, loaded=load is not None))
    elif names.AVERAGE_WINDOW in presets:
        checks.append(
            impossible(
                names.AVERAGE_WINDOW, Why.NOT_REPORTED, presets.get(names.AVERAGE_WINDOW),
                str(main.missing.get("average", "")),
            )
        )  # fmt: skip
    if counter is not None and power is not None:
        checks.append(_agreement(counter, power, idle, main, wave))
    checks.append(_idle_power(idle, presets))
    return SensorsFound(checks, power)


def _presence(main: Recording, presets: Presets) -> list[Check]:
    found = []
    for field, name in (("joules", names.COUNTER), ("watts", names.METER)):
        there = names.PRESENT if main.values(field) else names.ABSENT
        detail = str(main.missing.get(field, ""))
        found.append(judged(name, there, 0.0, presets.get(name), detail))
    return found


def _period(name: str, fit: SensorFit, presets: Presets, fallback: Why = Why.NO_PERIOD) -> Check:
    preset = presets.get(name)
    if fit.period is None:
        return impossible(name, Why.CONSTANT if fit.changes < 3 else fallback, preset)
    detail = ""
    if fit.refreshes is not None:
        detail = f"{fit.refreshes.seen} refreshes seen"
        if fit.refreshes.jitter > 2e-4:
            detail += f", late by up to {fit.refreshes.jitter * 1e3:.1f} ms"
    elif not fit.period:
        detail = "always fresh, as far as polls show"
    return judged(name, fit.period, fit.period_uncertainty, preset, detail)


def _step(name: str, fit: SensorFit) -> list[Check]:
    return [] if fit.step is None else [judged(name, fit.step)]


def _window(name: str, fit: SensorFit, presets: Presets, edge: float, *, loaded: bool) -> Check:
    preset, response = presets.get(name), fit.response
    if response is None:
        return impossible(name, Why.UNCLEAR if loaded else Why.NO_LOAD, preset)
    if name == names.COUNTER_SHARE and response.window_uncertainty > 1:
        return impossible(name, Why.UNCERTAIN, preset)
    instant = name != names.COUNTER_SHARE and response.window < _INSTANT
    return judged(
        name,
        response.window,
        math.hypot(response.window_uncertainty, edge),
        preset,
        "instantaneous" if instant else "",
    )


def _lag(name: str, fit: SensorFit, presets: Presets, edge: float, *, loaded: bool) -> Check:
    preset, response = presets.get(name), fit.response
    if response is None:
        return impossible(name, Why.UNCLEAR if loaded else Why.NO_LOAD, preset)
    late = math.hypot(response.lag_uncertainty, fit.lag_uncertainty, edge)
    return judged(name, response.lag, late, preset)


def _of_counter(
    fit: SensorFit,
    recordings: Sequence[Recording],
    presets: Presets,
    edge: float,
    *,
    loaded: bool,
) -> list[Check]:
    period = fit.period or 1.0
    # An edge is off by a launch, which is a share of a counter's interval.
    share = _window(
        names.COUNTER_SHARE, fit, presets, edge / max(period, edge, 1e-9), loaded=loaded
    )
    lag = _lag(names.COUNTER_LAG, fit, presets, edge, loaded=loaded)
    values = [value for each in recordings for _, value in each.values("joules")]
    decreases = sum(later < earlier for earlier, later in itertools.pairwise(values))
    return [
        _period(names.COUNTER_PERIOD, fit, presets),
        lag,
        share,
        *_step(names.COUNTER_STEP, fit),
        judged(names.DECREASES, float(decreases), detail=f"in {len(values)} polls"),
    ]


def _of_meter(fit: SensorFit, presets: Presets, edge: float, *, loaded: bool) -> list[Check]:
    return [
        _period(names.POWER_PERIOD, fit, presets),
        _window(names.POWER_WINDOW, fit, presets, edge, loaded=loaded),
        _lag(names.POWER_LAG, fit, presets, edge, loaded=loaded),
        *_step(names.POWER_STEP, fit),
    ]


def _average(
    burst: Recording, main: Recording, wave: SquareWave, presets: Presets, *, loaded: bool
) -> Check:
    fit = fit_meter(burst, main, wave, "average")
    return _window(names.AVERAGE_WINDOW, fit, presets, 0.0, loaded=loaded)


def _phase(counter: SensorFit | None, power: SensorFit) -> list[Check]:
    """Return by how much the counter is refreshed after power, if both have one period."""
    if counter is None or counter.refreshes is None or power.refreshes is None:
        return []
    ours, theirs = counter.refreshes, power.refreshes
    if abs(ours.period - theirs.period) > 0.01 * ours.period:
        return []
    apart = (ours.phase - theirs.phase) % ours.period
    elapsed = abs(ours.phase - theirs.phase) / ours.period
    drift = elapsed * math.hypot(ours.period_uncertainty, theirs.period_uncertainty)
    off = math.hypot(ours.phase_uncertainty, theirs.phase_uncertainty, drift)
    return [judged(names.PHASE, apart, off, detail="after power was refreshed")]


def _agreement(
    counter: SensorFit, power: SensorFit, idle: Recording, main: Recording, wave: SquareWave
) -> Check:
    """Compare counter and power: under load if their responses are known, else over all polls."""
    ours, theirs = counter.response, power.response
    if ours is not None and theirs is not None and ours.high > 0 and theirs.high > 0:
        ratio = ours.high / theirs.high
        off = math.hypot(ours.high_uncertainty / ours.high, theirs.high_uncertainty / theirs.high)
        return judged(names.AGREEMENT, ratio, ratio * off, detail="under load")
    if wave:
        return impossible(names.AGREEMENT, Why.UNCLEAR)
    parts = [*_powers(idle), *_powers(main)]
    if len(parts) < 3 or any(watts <= 0 for _, watts in parts):
        return impossible(names.AGREEMENT, Why.FEW_POLLS)
    ratios = [counted / watts for counted, watts in parts]
    off = student_factor(len(ratios) - 1) * stdev(ratios) / math.sqrt(len(ratios))
    return judged(names.AGREEMENT, fmean(ratios), off, detail="without load")


def _powers(recording: Recording) -> list[tuple[float, float]]:
    """Return watts by the counter and by the meter in parts of a recording of steady power."""
    found = []
    polls = [poll for poll in recording.polls if not math.isnan(poll.joules + poll.watts)]
    size = len(polls) // _BLOCKS
    ticks = [
        at for at in range(1, len(polls)) if polls[at].joules != polls[at - 1].joules
    ]  # fmt: skip
    chosen = ticks[:: max(len(ticks) // _BLOCKS, 1)] if size else []
    for begin, end in itertools.pairwise(chosen):
        seconds = polls[end].ended - polls[begin].ended
        if seconds > 0:
            counted = (polls[end].joules - polls[begin].joules) / seconds
            found.append((counted, fmean(poll.watts for poll in polls[begin:end])))
    return found


def _idle_power(idle: Recording, presets: Presets) -> Check:
    preset = presets.get(names.IDLE_POWER)
    polls = [value for _, value in idle.values("watts")]
    powers = [counted for counted, _ in _powers(idle)]
    if len(powers) < 3:
        size = max(len(polls) // _BLOCKS, 1)
        powers = [fmean(polls[at : at + size]) for at in range(0, len(polls), size)]
    if len(idle.polls) < _FEWEST_POLLS or len(powers) < 3:
        return impossible(names.IDLE_POWER, Why.FEW_POLLS, preset)
    off = student_factor(len(powers) - 1) * stdev(powers) / math.sqrt(len(powers))
    return judged(names.IDLE_POWER, fmean(powers), off, preset)
