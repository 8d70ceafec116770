"""Learns time and power of a rank's instructions at all clocks, from every step it is given.

It does not choose clocks: whatever clock an instruction ran at, while exploring or under a plan, it
is a measurement. So the first profile comes after few steps, and improves while the job runs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zeus.monitor._levels import Integral
from zeus.optimizer.pipeline_frequency._profile import Option
from zeus.optimizer.pipeline_frequency.job._messages import (
    FIXED,
    InstructionKind,
    Measured,
    StepTimes,
)
from zeus.optimizer.pipeline_frequency.running._clock_lag import MAX_LAG, Changed, ClockLag
from zeus.optimizer.pipeline_frequency.running._power_curves import Load, PowerCurves
from zeus.optimizer.pipeline_frequency.running._shared_variation import SharedVariation
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecord
from zeus.optimizer.pipeline_frequency.running._time_curves import TimeCurves

DEFAULT_LAG = 0.008  # seconds, until it is known
_MARGIN = 2e-3  # seconds around a change of the clock in which its instant is uncertain
_HISTORY = 5.0  # seconds of loads that late refreshes may cover
_PASSAGES = 6  # steps whose start and end times are kept
_MAX_INSTANTS = 2_000  # per step, to keep the message small
_LOWEST_GAIN = 0.05  # of the highest clock: how far below the best clock options are reported
_DRIFT = 0.03  # relative change of a time from which it is not noise
_SIGMAS = 4.0
_FEWEST_SEEN = 3  # instructions
_ASSUMED = 0.03  # relative uncertainty of powers that an earlier run measured
_CAUTION, _MAX_CAUTION = 1.5, 0.08  # standard deviations, and relative
_LAG_EVERY = 5  # steps between two estimates of the lag, once it is known
_RECENT = 3  # steps


class _Span(NamedTuple):
    begin: float
    end: float
    kind: InstructionKind | None
    in_step: bool


@dataclass
class _Deviation:
    """Instructions of a kind in a step: ratios to expected times, and how unsure those are."""

    ratios: float = 0.0
    unknown: float = 0.0
    seen: list[tuple[float, float]] = field(default_factory=list)  # clock, seconds

    def add(self, ratio: float, unknown: float, clock: float, seconds: float) -> None:
        self.ratios += ratio
        self.unknown += unknown
        self.seen.append((clock, seconds))


class Profiler:
    """Time and power curves of one rank.

    Args:
        ladder: Clocks that may be chosen, in MHz, the highest first.
        kinds: Kinds of instructions of a step.
        waits_first: Whether the rank waits for another one before its first instruction.

    Attributes:
        times: Times by kind and clock.
        powers: Powers by kind and clock.
        steps: Number of steps learned from.
        lag: Seconds from the request for a clock until it is in force; `None` until known.
    """

    def __init__(
        self,
        ladder: Sequence[float],
        kinds: Iterable[InstructionKind],
        *,
        waits_first: bool = False,
    ) -> None:
        self._waits_first = waits_first
        self._ladder = tuple(ladder)
        self._kinds = tuple(kinds)
        self.times = TimeCurves(self._kinds, self._ladder[0])
        self.powers = PowerCurves(self._kinds, self._ladder[0])
        self.steps = 0
        self.lag: float | None = None
        self._lags = ClockLag()
        self._shared = SharedVariation()
        self._requests: list[tuple[float, float]] = []
        self._spans: deque[_Span] = deque()
        self._passages: deque[StepTimes] = deque(maxlen=_PASSAGES)
        self._recent: deque[dict[InstructionKind, _Deviation]] = deque(maxlen=_RECENT)

    @property
    def ladder(self) -> tuple[float, ...]:
        """Clocks that may be chosen, in MHz, the highest first."""
        return self._ladder

    def assume(self, known: Measured) -> None:
        """Assume the measurements of an earlier run, with little weight: they may not hold."""
        highest = self._ladder[0]
        for kind, options in known.options.items():
            if kind not in self._kinds:
                continue
            for option in options:
                clock = highest if option.frequency is None else option.frequency
                self.times.assume(kind, clock, option.time)
                joules = option.power
                self.powers.add({Load(kind, True, clock): 1.0}, joules, (_ASSUMED * joules) ** 2)
        if known.blocking_power is not None:
            joules = known.blocking_power
            self.powers.add({Load(None, True, highest): 1.0}, joules, (_ASSUMED * joules) ** 2)

    @property
    def chosen(self) -> tuple[InstructionKind, ...]:
        """Kinds of instructions that have a clock to choose."""
        return tuple(kind for kind in self._kinds if kind.name not in FIXED)

    def add_step(
        self, record: StepRecord, requests: Iterable[tuple[float, float]], expected: int
    ) -> None:
        """Learn from a step.

        Args:
            record: The step.
            requests: When clocks were requested, and MHz, since the previous step.
            expected: Number of instructions in a step; another number is not a usual step.
        """
        self._requests += requests
        old = bisect_left(self._requests, (record.begin - _HISTORY, 0.0))
        del self._requests[: max(old - 1, 0)]
        self.steps += 1
        if not record.exact:
            self._spans.clear()  # the loads of this time are not known
            return
        self._add_spans(record)
        usual = len(record.kinds) == expected
        if usual and not record.delayed and 2 * len(record.begins) <= _MAX_INSTANTS:
            self._passages.append(
                StepTimes(record.number, tuple(record.begins), tuple(record.ends))
            )
        ratios: dict[InstructionKind, _Deviation] = {}
        seen = []
        # Instructions of a kind come in the order of microbatches, in common schedules.
        numbers: Counter[InstructionKind] = Counter()
        by_microbatch: dict[int, list[float]] = {}
        for kind, begin, end in zip(record.kinds, record.begins, record.ends, strict=True):
            number = numbers[kind]
            numbers[kind] += 1
            found = self._at_one_clock(kind, begin, end) if end > begin else None
            if found is None:
                continue
            clock, seconds = found
            known = self.times.time(kind, clock)
            if known is not None:
                ratio = min(seconds / known, 10.0)
                unknown = self.times.uncertainty(kind, clock)
                ratios.setdefault(kind, _Deviation()).add(ratio, unknown, clock, seconds)
                by_microbatch.setdefault(number, []).append(ratio - 1)
            seen.append((kind, clock, seconds, known))
        for deviations in by_microbatch.values():
            self._shared.add(deviations)
        for each in seen:  # only now, as the curves are fitted again after each change
            self.times.add(*each)
        self._recent.append(ratios)
        if self.lag is None or self.steps % _LAG_EVERY == 0:
            lag = self._lags.estimate(self.times)
            self.lag = self.lag if lag is None else lag

    def add_energies(self, integrals: Iterable[Integral]) -> None:
        """Learn from energies that the sensors have shown."""
        if not self._spans:
            return
        for each in integrals:
            if each.begin < self._spans[0].begin or each.end > self._spans[-1].end:
                continue
            seconds: dict[Load, float] = {}
            for load, length in self._loads(each.begin, each.end):
                seconds[load] = seconds.get(load, 0.0) + length
            self.powers.add(seconds, each.joules, each.variance)

    def drift(self) -> Mapping[InstructionKind, float]:
        """Return by which factor kinds have become slower (or faster), where that is no noise.

        The curves are corrected at once, so that a drift is returned only once.
        """
        found: dict[InstructionKind, float] = {}
        for kind in self.chosen:
            # The latest step first: a mean over steps before and after a jump is half of it.
            factor = self._deviates(kind, 1) or self._deviates(kind, _RECENT)
            if factor is not None and kind in self._recent[-1]:
                found[kind] = factor
        for kind, factor in found.items():
            self.times.scale(kind, factor, self._recent[-1][kind].seen)
            self._lags.forget(kind)
        if found:
            self._recent.clear()
        return found

    def _deviates(self, kind: InstructionKind, latest: int) -> float | None:
        """Return the factor of a kind over the latest steps; `None` if it may be noise."""
        steps = [step[kind] for step in list(self._recent)[-latest:] if kind in step]
        count = sum(len(step.seen) for step in steps)
        if count < 3:
            return None
        factor = math.fsum(step.ratios for step in steps) / count
        unknown = math.fsum(step.unknown for step in steps) / count
        noise = math.hypot(self.times.variation / math.sqrt(count), unknown)
        return factor if abs(factor - 1) > max(_DRIFT, _SIGMAS * noise) else None

    def option(self, kind: InstructionKind, clock: float) -> Option | None:
        """Return time and energy of a kind at a clock; `None` while unknown."""
        time, power = self.times.time(kind, clock), self.powers.power(kind, clock)
        if time is None or power is None:
            return None
        return Option(clock, time, time * power)

    def durations(self) -> dict[tuple[InstructionKind, float], float]:
        """Return the seconds of each kind at each clock, as far as known."""
        found: dict[tuple[InstructionKind, float], float] = {}
        for kind in self._kinds:
            for clock in self._ladder:
                time = self.times.time(kind, clock)
                if time is not None:
                    found[kind, clock] = time
        return found

    def cost(self, kind: InstructionKind, clock: float) -> float | None:
        """Return the joules of a kind at a clock beyond those of waiting as long."""
        option = self.option(kind, clock)
        if option is None:
            return None
        return option.energy - (self.powers.waiting() or 0.0) * option.time

    def measured(self, revision: int, *, urgent: bool = False) -> Measured | None:
        """Return what is known now, for the server; `None` if a kind is not known at all.

        Args:
            revision: Number of the report, from 1.
            urgent: Whether a plan from earlier reports is wrong.
        """
        options: dict[InstructionKind, Sequence[Option]] = {}
        for kind in self._kinds:
            found = self._options(kind)
            if not found:
                return None
            options[kind] = found
        return Measured(
            options,
            self.powers.waiting(),
            self.steps,
            tuple(self._passages),
            variation=self.times.variation,
            shared=self._shared.share,
            lag=DEFAULT_LAG if self.lag is None else self.lag,
            revision=revision,
            urgent=urgent,
        )

    def _options(self, kind: InstructionKind) -> Sequence[Option]:
        highest = self._ladder[0]
        if kind.name in FIXED:
            # Any time above the minimum was spent waiting for other ranks.
            time, power = self.times.shortest(kind), self.powers.power(kind, highest)
            return () if time is None or power is None else (Option(None, time, time * power),)
        lowest = self.times.lowest_clock(kind)
        found: list[tuple[float, Option]] = []
        for clock in self._ladder:
            if clock < lowest:
                break
            option, cost = self.option(kind, clock), self.cost(kind, clock)
            if option is not None and cost is not None:
                found.append((cost, option))
        if not found:
            return ()
        best = min(found, key=lambda each: each[0])[1].frequency or 0.0
        floor = best - _LOWEST_GAIN * highest
        return tuple(
            self._cautious(kind, option)
            for _, option in found
            if (option.frequency or 0.0) >= floor
        )

    def _cautious(self, kind: InstructionKind, option: Option) -> Option:
        """Return an option with a time that it surely keeps, unless it is the fastest.

        A planner prefers options whose time was measured too short, so that plans would be slower
        than expected wherever little is known.
        """
        if option.frequency is None or option.frequency == self._ladder[0]:
            return option
        unknown = min(_CAUTION * self.times.uncertainty(kind, option.frequency), _MAX_CAUTION)
        return replace(option, time=option.time * (1 + unknown))

    # --- which clock was in force -----------------------------------------------------------------

    def _at_one_clock(
        self, kind: InstructionKind, begin: float, end: float
    ) -> tuple[float, float] | None:
        """Return the clock of an instruction, and how long it took or would have taken at it.

        Clocks are requested ahead, to change when an instruction is expected to end. One that takes
        longer ends at the next clock. If only those that ended in time counted, a kind would seem
        to be faster, changes would be requested earlier, and fewer and faster ones would count. So
        the part at the other clock is converted by the ratio of the known times.
        """
        clock = self._clock_during(kind, begin, end)
        if clock is not None:
            return clock, end - begin
        if self.lag is None:
            return None
        parts = list(self._changes(begin, end))
        if len(parts) == 1:
            return parts[0][2], end - begin
        if len(parts) > 2 or not self._was_in_force(parts[0][2], begin):
            return None
        main, other = sorted(parts, key=lambda part: part[1] - part[0], reverse=True)
        known, converted = (self.times.time(kind, part[2]) for part in (main, other))
        if known is None or converted is None:
            return None
        return main[2], main[1] - main[0] + (other[1] - other[0]) * known / converted

    def _was_in_force(self, clock: float, instant: float) -> bool:
        """Return whether a clock was certainly in force, not replaced before it came."""
        lag = self.lag or 0.0
        at = bisect_left(self._requests, (instant - lag, math.inf)) - 1
        if at < 0 or self._requests[at][1] != clock:
            return False
        later = self._requests[at + 1 : at + 2]
        return not later or later[0][0] - self._requests[at][0] >= lag + _MARGIN

    def _clock_during(self, kind: InstructionKind, begin: float, end: float) -> float | None:
        """Return the clock of an instruction; `None` if it changed, or that is uncertain."""
        early, late = (
            (0.0, MAX_LAG)
            if self.lag is None
            else (max(self.lag - _MARGIN, 0.0), self.lag + _MARGIN)
        )
        if not self._requests:
            return None
        at = bisect_left(self._requests, (end - early, 0.0)) - 1  # the last that may have come
        if at < 0:
            return None
        asked, clock = self._requests[at]
        if asked + late <= begin:
            return clock
        before = self._requests[at - 1] if at else None
        if before is not None and before[0] + late <= begin:
            self._lags.add(Changed(kind, end - begin, begin - asked, before[1], clock))
        return None

    def _changes(self, begin: float, end: float) -> Iterator[tuple[float, float, float]]:
        """Return the clocks in force between two instants: from, to, MHz."""
        lag = DEFAULT_LAG if self.lag is None else self.lag
        at = max(bisect_left(self._requests, (begin - lag, math.inf)) - 1, 0)
        since = begin
        for number in range(at, len(self._requests)):
            last = number + 1 == len(self._requests)
            until = end if last else min(max(self._requests[number + 1][0] + lag, since), end)
            if until > since:
                yield since, until, self._requests[number][1]
            since = until
            if since >= end:
                return

    def _add_spans(self, record: StepRecord) -> None:
        spans = self._spans
        if spans and spans[-1].end < record.begin:
            spans.append(_Span(spans[-1].end, record.begin, None, False))
        now = record.begin
        for number, (kind, begin, end) in enumerate(
            zip(record.kinds, record.begins, record.ends, strict=True)
        ):
            # Before the first instruction of the first stage there is data to load.
            spans.append(_Span(now, begin, None, number > 0 or self._waits_first))
            spans.append(_Span(begin, end, kind, True))
            now = end
        spans.append(_Span(now, record.end, None, False))
        while spans and spans[0].end < record.end - _HISTORY:
            spans.popleft()

    def _loads(self, begin: float, end: float) -> Iterator[tuple[Load, float]]:
        for span in self._spans:
            low, high = max(span.begin, begin), min(span.end, end)
            if high <= low:
                continue
            for since, until, clock in self._changes(low, high):
                yield Load(span.kind, span.in_step, clock), until - since
