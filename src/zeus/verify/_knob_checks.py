"""Checks of the knobs of one GPU: what it accepts, and, if asked for, setting and restoring them.

Every change is made under a hold, which restores the previous value in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from zeus.device._hold import read_knob
from zeus.device._records import GRAPHICS_CLOCK, POWER_LIMIT, Value
from zeus.errors import CapabilityError, KnobError, Reason
from zeus.verify import _checks as names
from zeus.verify._checks import Check, Why, impossible, judged
from zeus.verify._kernel_load import LoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zeus.clock import Clock
    from zeus.device import Gpu, Hold
    from zeus.verify._loads import Load

_WAIT = 1.0  # seconds for the driver to report a new setting
_PAUSE = 5e-4  # seconds between reading it
_SHOWN = 0.05  # change of step time that counts as an effect
_CONFIRMED = 3  # steps in a row that show it
_FEW_STEPS = 10


class _Knob(NamedTuple):
    name: str  # as in the record of holds
    readback: str
    effect: str
    restored: str


_LIMIT = _Knob(POWER_LIMIT, names.LIMIT_READBACK, names.LIMIT_EFFECT, names.LIMIT_RESTORED)
_CLOCK = _Knob(GRAPHICS_CLOCK, names.CLOCK_READBACK, names.CLOCK_EFFECT, names.CLOCK_RESTORED)


def check_ranges(gpu: Gpu, presets: Mapping[str, float]) -> list[Check]:
    """Compare the range of limits and the ladder of clocks; changes nothing.

    Raises:
        CapabilityError: If the GPU is lost or hangs.
    """
    limits = (names.LOWEST_LIMIT, names.HIGHEST_LIMIT, names.DEFAULT_LIMIT)
    clocks = (names.LOWEST_CLOCK, names.HIGHEST_CLOCK, names.CLOCKS)

    def read_limits() -> tuple[float, ...]:
        found = gpu.power_limits()
        return found.minimum, found.maximum, found.default

    def read_clocks() -> tuple[float, ...]:
        found = gpu.supported_clocks().graphics
        if not found:
            raise CapabilityError(Reason.UNSUPPORTED, "clocks that can be locked")
        return min(found), max(found), len(found)

    return [
        *_range(limits, read_limits, presets),
        *_range(clocks, read_clocks, presets),
    ]


def _range(
    wanted: Sequence[str], read: Callable[[], tuple[float, ...]], presets: Mapping[str, float]
) -> list[Check]:
    try:
        values = read()
    except CapabilityError as error:
        _raise_if_lost(error)
        return [impossible(name, error, presets.get(name)) for name in wanted]
    return [
        judged(name, value, 0.0, presets.get(name))
        for name, value in zip(wanted, values, strict=True)
    ]


def check_knobs(gpu: Gpu, clock: Clock, load: Load | None, seconds: float) -> list[Check]:
    """Set the power limit and the graphics clock, each for some seconds, and restore them.

    Raises:
        CapabilityError: If the GPU is lost or hangs.
    """
    return [
        *_check(gpu, clock, load, _LIMIT, seconds),
        *_check(gpu, clock, load, _CLOCK, seconds),
    ]


def not_asked() -> list[Check]:
    """Return the checks that change settings, which was not asked for."""
    return [
        impossible(name, Why.NOT_ASKED)
        for knob in (_LIMIT, _CLOCK)
        for name in (knob.readback, knob.effect, knob.restored)
    ]


def _limit_to_try(gpu: Gpu) -> float | None:
    """Return a limit that a busy GPU feels: a quarter of the way up."""
    limits = gpu.power_limits()
    limit = float(round(limits.minimum + (limits.maximum - limits.minimum) / 4))
    return None if limits.maximum - limits.minimum < 1 or limit == gpu.power_limit() else limit


def _clock_to_try(gpu: Gpu) -> int | None:
    """Return a clock that slows kernels: about 60 % of the highest."""
    clocks = gpu.supported_clocks().graphics
    if len(clocks) < 2:
        return None
    return min(clocks, key=lambda clock: abs(clock - 0.6 * clocks[0]))


def _check(
    gpu: Gpu,
    clock: Clock,
    load: Load | None,
    knob: _Knob,
    seconds: float,
) -> list[Check]:
    wanted = (knob.readback, knob.effect, knob.restored)
    try:
        value = _limit_to_try(gpu) if knob is _LIMIT else _clock_to_try(gpu)
        if value is None:
            return [impossible(name, Why.FEW_VALUES) for name in wanted]
        before = read_knob(gpu, knob.name)
        hold = (
            gpu.hold(power_limit=value) if knob is _LIMIT else gpu.hold(graphics_clock=int(value))
        )
        tried = _Try(gpu, clock, load, knob, hold)
        tried.run(value, seconds)
        restored = read_knob(gpu, knob.name) == before
    except CapabilityError as error:
        _raise_if_lost(error)
        return [impossible(name, error) for name in wanted]
    except (KnobError, OSError) as error:
        return [impossible(name, Why.NOT_SET, detail=str(error)) for name in wanted]
    way = "through the node agent" if gpu.driver.holds is not None else "by this process"
    return [
        tried.readback,
        tried.effect,
        judged(knob.restored, float(restored), detail=f"set {way}, restored: {_shown(before)}"),
    ]


def _shown(value: Value) -> str:
    return "not locked" if value is None else f"{value}"


class _Try:
    """Sets one knob under a hold while steps run, and finds when it took effect."""

    def __init__(self, gpu: Gpu, clock: Clock, load: Load | None, knob: _Knob, hold: Hold) -> None:
        self._gpu = gpu
        self._clock = clock
        self._load = load
        self._knob = knob
        self._hold = hold
        self.readback = impossible(knob.readback, Why.NOT_REPORTED)
        self.effect = impossible(knob.effect, Why.NO_LOAD)

    def run(self, value: float, seconds: float) -> None:
        """Set the value for some seconds."""
        load = self._load
        if load is not None:
            load.begin_steps(2 * seconds + _WAIT)
            load.pass_time(seconds)
        asked = self._clock.now()
        with self._hold:
            asked_until = self._clock.now()
            self.readback = self._read_back(value, asked)
            settled = self._clock.now()
            if load is not None:
                load.pass_time(seconds)
            until = self._clock.now()
        if load is not None:
            try:
                self.effect = self._effect(
                    load.finish_steps(), (asked, asked_until), (settled + until) / 2, until
                )
            except LoadError as error:
                self.effect = impossible(self._knob.effect, Why.NO_LOAD, detail=str(error))

    def _read_back(self, value: float, asked: float) -> Check:
        """Return how long it took until the driver reported the value."""
        now = self._clock.now
        earlier = asked
        while now() < asked + _WAIT:
            begun = now()
            if self._reads(value):
                return judged(
                    self._knob.readback, (earlier + now()) / 2 - asked, (now() - earlier) / 2
                )
            earlier = begun
            self._clock.sleep(_PAUSE)
        return impossible(self._knob.readback, Why.NOT_REPORTED)

    def _reads(self, value: float) -> bool:
        read = read_knob(self._gpu, self._knob.name)
        if isinstance(read, list):
            return read == [value, value]
        return read is not None and abs(read - value) < 1.0

    def _effect(
        self,
        steps: Sequence[tuple[float, float]],
        setting: tuple[float, float],
        steady: float,
        until: float,
    ) -> Check:
        """Return how long it took until steps were as slow as they stayed.

        Args:
            steps: Begin and duration of each.
            setting: Begin and end of the call that set the knob and recorded the hold.
            steady: Whatever takes longer than until then counts as no effect.
            until: When the knob was restored.
        """
        name, asked = self._knob.effect, setting[0]
        before = [took for begun, took in steps if begun + took <= asked]
        after = [took for begun, took in steps if steady <= begun and begun + took <= until]
        if min(len(before), len(after)) < _FEW_STEPS:
            return impossible(name, Why.FEW_POLLS)
        usual, slow = median(before), median(after)
        if slow < (1 + _SHOWN) * usual:
            detail = f"steps took {usual * 1e3:.2f} ms before and {slow * 1e3:.2f} ms after"
            return impossible(name, Why.NO_EFFECT, detail=detail)
        later = [step for step in steps if step[0] + step[1] > asked]
        limit = (usual + slow) / 2
        for at in range(len(later) - _CONFIRMED):
            if all(took > limit for _, took in later[at : at + _CONFIRMED]):
                begun, took = later[at]
                detail = f"steps take {slow / usual:.2f} times as long"
                # It came in this step or the one before, and was set some time in the call.
                half = (setting[1] - setting[0]) / 2
                return judged(name, max(begun - asked - half, 0.0), took + half, detail=detail)
        return impossible(name, Why.NO_EFFECT)


def _raise_if_lost(error: CapabilityError) -> None:
    if error.reason in (Reason.LOST, Reason.HANGS):
        raise error
