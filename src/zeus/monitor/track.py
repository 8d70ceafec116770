"""What is known about one GPU's energy over the last while.

A track looks at the energy counter and at instantaneous power many times per tick of the counter.
The counter is exact, but only at its ticks; power tells what happens between them. The energy of a
window is therefore the counter's difference between the first and the last tick inside it, plus
power over the rest at both ends, and power alone if no tick falls inside. Only looks from inside
the window count: a window's edges are where load changes, so a look from outside says nothing.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from typing import NamedTuple

from zeus.monitor.credibility import Credibility
from zeus.monitor.looks import Energy, Look, Method, Senses
from zeus.monitor.stale import StaleEnds
from zeus.monitor.ticks import TickModel

HORIZON = 30.0
"""Seconds of looks that are kept. Windows that began earlier keep what they need themselves."""

_MILLIJOULE = 1e-3

_LATE_LOOKS = 500  # seconds to minutes, by how densely they came
_LATEST = 0.1  # seconds; no meter is refreshed more rarely
_FEWEST_CHANGES = 4  # of the power reading, before it is judged how it is refreshed
_LATEST_CHANGES = 16  # of the power reading, by which it is judged
_STALE = 3.0  # log odds, about 20 to 1, from which a meter counts as refreshed at ticks only
_MISSED = 0.02  # of the changes of such a meter seem to come without a tick

# Looks come at least ten times a second, and at once when a window begins or ends. Whoever was not
# seen for so many seconds did not answer.
_BLIND = 0.5

# Power may move between looks in ways they do not show; as a share of the integral.
_UNSEEN = 0.002


class Head(NamedTuple):
    """What a window that began long ago keeps: its energy up to an instant, and the meters there.

    That instant is the first tick of the counter in the window, or its beginning where there is
    none to go by. Both meters are kept, because the counter may fail before the window ends.

    Attributes:
        joules: Energy up to the instant.
        variance: Of these, in joules squared.
        instant: In seconds.
        width: Seconds to either side of it within which the tick lies.
        counter: Joules counted at the instant; `None` if it is no tick.
        integral: Joules of the running integral of power at the instant; `None` if unknown.
        unseen: Of that integral, in joules squared: the variance of what nobody saw until then.
    """

    joules: float
    variance: float
    instant: float
    width: float
    counter: float | None
    integral: float | None
    unseen: float


class EnergyTrack:
    """What the looks at one GPU have shown. May be fed and asked from several threads."""

    def __init__(self, meter_period: float | None = None, *, uniform: bool = False) -> None:
        """Begin with nothing known.

        Args:
            meter_period: Seconds between refreshes of the power meter, 0 for a live one; `None` to
                judge by how closely its changes have followed each other.
            uniform: Whether nothing changes in a long time without looks, as in virtual time.
        """
        self._uniform = uniform
        self._meter_period = meter_period
        self._last_change = -math.inf
        self._change_gaps: deque[float] = deque(maxlen=8)
        self.ticks = TickModel()
        self.senses = Senses()
        self.last_look = -math.inf
        self.lock = threading.RLock()
        self._last_counter: float | None = None
        self._counter_offset = 0.0
        self._last_counter_time = -math.inf
        self._longest_gap = 0.0
        # Looks at power: instants, watts, running integral, and running sums of squared steps in
        # energy (over the time between looks) and in power.
        self._instants: list[float] = []
        self._watts: list[float] = []
        self._integral: list[float] = []
        self._steps: list[float] = []
        self._unseen = 0.0  # variance of all that was integrated over times without looks
        self._jumps: list[float] = []
        # Ticks: instants, half widths of their brackets, counter values.
        self._tick_instants: list[float] = []
        self._tick_widths: list[float] = []
        self._tick_values: list[float] = []
        self._tick_watts: list[float] = []
        # Of the latest changes of the power reading: log odds that they come with ticks only.
        self._odds: deque[float] = deque(maxlen=_LATEST_CHANGES)
        # A change without a tick: its look, and the share of a tick since the look before.
        self._lone_change: tuple[Look, float] | None = None
        self._credibility = Credibility()
        self._judged_from: tuple[float, float, float] | None = None

    # --- taking in --------------------------------------------------------------------------

    def take(self, look: Look) -> None:
        """Take in a look. Those older than the latest are left out."""
        if look.begun < self.last_look:
            return
        with self.lock:
            ticks = len(self._tick_instants)
            if look.joules is not None:
                self._add_counter(look.begun, look.between, look.joules)
            ticked = len(self._tick_instants) > ticks
            self._judge_lone_change(ticked=ticked)
            if look.watts is not None:
                if ticked:
                    self._tick_watts[-1] = look.watts
                if self._watts and look.watts != self._watts[-1]:
                    self._judge_change(look, ticked=ticked)
                self._add_power((look.between + look.ended) / 2, look.watts)
                if ticked:
                    self._judge()
            self.last_look = look.ended

    def _judge_change(self, look: Look, *, ticked: bool) -> None:
        """Weigh a change of the power reading: does the meter move only with the counter?"""
        share = (look.ended - self.last_look) / (self.ticks.period or math.inf)
        if not 0 < share < 0.9:
            return  # a tick had to be seen, whatever the meter does
        if ticked:
            self._odds.append(math.log((1 - _MISSED) / share))
        else:
            self._lone_change = (look, share)

    def _judge_lone_change(self, *, ticked: bool) -> None:
        """Weigh a change without a tick, once it is known whether one came in the same moment.

        The counter is read before power, so a tick may have come between the two.
        """
        if self._lone_change is None:
            return
        look, share = self._lone_change
        self._lone_change = None
        if ticked:
            instant, width = self._tick_instants[-1], self._tick_widths[-1]
            if look.begun <= instant + width and instant - width <= look.ended:
                # By chance as likely as a change in either of the two looks.
                self._odds.append(math.log((1 - _MISSED) / min(2 * share, 1.0)))
                return
        self._odds.append(math.log(_MISSED / (1 - share)))

    @property
    def stale(self) -> bool:
        """Whether the power meter is refreshed at the counter's ticks only, as on many parts.

        Its reading then tells nothing about the time since the last tick.
        """
        return len(self._odds) >= _FEWEST_CHANGES and sum(self._odds) > _STALE

    def lacks_tick(self, begin: float, end: float) -> bool:
        """Whether the tick after a window must be awaited to know anything about it."""
        with self.lock:
            if not self.stale or not self._counter_ok or not self._tick_instants:
                return False
            inside = bisect_right(self._tick_instants, end) > bisect_left(
                self._tick_instants, begin
            )
            return not inside and self._tick_instants[-1] < end

    @property
    def _counter_ok(self) -> bool:
        return self.senses.counter and not self._credibility.note

    @property
    def _power_ok(self) -> bool:
        return self.senses.power

    @property
    def _averaged(self) -> bool:
        return self.senses.averaged

    def _add_power(self, instant: float, watts: float) -> None:
        if self._instants:
            gap = instant - self._instants[-1]
            jump = watts - self._watts[-1]
            if jump:
                self._change_gaps.append(instant - self._last_change)
                self._last_change = instant
            step = jump * gap
            unseen = 0.0 if self._uniform else _blind_variance(gap, (watts + self._watts[-1]) / 2)
            self._unseen += unseen
            self._integral.append(self._integral[-1] + (watts + self._watts[-1]) / 2 * gap)
            self._steps.append(self._steps[-1] + step * step / 4 + 3 * unseen)
            self._jumps.append(self._jumps[-1] + jump * jump)
        else:
            self._integral.append(0.0)
            self._steps.append(0.0)
            self._jumps.append(0.0)
        self._instants.append(instant)
        self._watts.append(watts)

    def _add_counter(self, begun: float, ended: float, raw: float) -> None:
        last, self._last_counter = self._last_counter, raw
        previous_time, self._last_counter_time = self._last_counter_time, begun
        if last is None:
            return
        self._longest_gap = max(self._longest_gap, ended - previous_time)
        if raw < last:
            # The driver was reloaded and counts from zero. What it forgot is estimated by power.
            self._counter_offset += last - raw + self._mean_power() * (ended - previous_time)
            self.ticks = TickModel()
            return
        if raw == last:
            return
        low, high = previous_time, ended
        period = self.ticks.period
        if period is None or high - low < 0.9 * period:
            low, high = self.ticks.observe(low, high, self._longest_gap)
        else:
            low, high = self._latest_tick(begun, ended, period)
        self._longest_gap = 0.0
        self._add_tick((low + high) / 2, (high - low) / 2, raw + self._counter_offset)

    def _latest_tick(self, begun: float, ended: float, period: float) -> tuple[float, float]:
        """Bracket of the tick behind a reading, when several may have passed since the last."""
        expected = self.ticks.last_before(begun)
        if expected is None or expected[1] - expected[0] > period / 2:
            return ended - period, ended
        low, high = expected
        if high > begun or low + period < ended:
            # A tick is expected so close to the reading that it may or may not be in it.
            return low - period if high > begun else low, ended
        return low, high

    def _add_tick(self, instant: float, width: float, value: float) -> None:
        if self._tick_instants:
            if instant <= self._tick_instants[-1]:
                return
            if not self._power_ok:
                # Without a power meter, the counter's own slope is the best guess of power.
                gap = instant - self._tick_instants[-1]
                self._add_power(instant - gap / 2, (value - self._tick_values[-1]) / gap)
        self._tick_instants.append(instant)
        self._tick_widths.append(width)
        self._tick_values.append(value)
        self._tick_watts.append(self._mean_power())

    def _mean_power(self) -> float:
        return self._watts[-1] if self._watts else 0.0

    def _judge(self) -> None:
        """Compare the counter with power over the long run: some parts' counters are wrong."""
        if not self._power_ok or self._averaged or len(self._instants) < 2:
            return
        instant, value = self._tick_instants[-1], self._tick_values[-1]
        integral = self._integral_at(instant)
        if self._judged_from is not None and instant - self._judged_from[0] < 1.0:
            seconds = instant - self._judged_from[0]
            watts = (integral - self._judged_from[2]) / seconds
            counted = value - self._judged_from[1]
            if seconds > 0 and self._credibility.compare(seconds, counted, watts):
                self._tick_instants.clear()
                self._tick_widths.clear()
                self._tick_values.clear()
                self._tick_watts.clear()
        self._judged_from = (instant, value, integral)

    def forget(self, before: float) -> None:
        """Drop looks and ticks from before an instant."""
        with self.lock:
            cut = bisect_left(self._instants, before)
            for numbers in (
                self._instants,
                self._watts,
                self._integral,
                self._steps,
                self._jumps,
            ):
                del numbers[:cut]
            cut = bisect_left(self._tick_instants, before)
            for numbers in (
                self._tick_instants,
                self._tick_widths,
                self._tick_values,
                self._tick_watts,
            ):
                del numbers[:cut]

    # --- answering --------------------------------------------------------------------------

    def head(self, begin: float) -> Head | None:
        """What a window begun at `begin` must keep before it is forgotten; `None` if unknown."""
        with self.lock:
            return self._head(begin)

    def _head(self, begin: float) -> Head | None:
        first = bisect_left(self._tick_instants, begin)
        if self._counter_ok and first < len(self._tick_instants):
            return self._ticking_head(first, begin, math.inf)
        inside = bisect_right(self._instants, begin)
        if inside == len(self._instants):
            return None  # nothing was seen of the window yet
        unseen = _blind_variance(self._instants[inside] - begin, self._watts[inside])
        return Head(0.0, unseen, begin, 0.0, None, self._integral_at(begin), self._unseen)

    def _ticking_head(self, first: int, begin: float, end: float) -> Head:
        """By the first tick inside; or by the last before it, if the beginning was not seen.

        A tick in a time without looks may have come anywhere in it, and many more with it.
        """
        inside = bisect_right(self._instants, begin)
        blind = inside < len(self._instants) and self._instants[inside] - begin > _BLIND
        if not blind or self.stale or self._uniform:
            return self._head_until(first, begin, end)
        if first > 0:
            return self._head_since(first - 1, begin)
        while first + 1 < bisect_right(self._tick_instants, end) and (
            2 * self._tick_widths[first] > _BLIND
        ):
            first += 1
        return self._head_until(first, begin, end)

    def _head_since(self, last: int, begin: float) -> Head:
        """By a tick before the window: less than nothing, until the window begins."""
        tick = self._tick_instants[last]
        joules, variance, _ = self._integrate(tick, begin, -math.inf, begin)
        return Head(
            -joules, variance, tick, self._tick_widths[last], self._tick_values[last],
            self._integral_at(tick), self._unseen,
        )  # fmt: skip

    def _head_until(self, first: int, begin: float, end: float) -> Head:
        tick = self._tick_instants[first]
        if self.stale:
            joules, variance = self._stale_ends().before(first, begin)
        else:
            joules, variance, _ = self._integrate(begin, tick, begin, end)
        integral = self._integral_at(tick) if self._instants else None
        width, counted = self._tick_widths[first], self._tick_values[first]
        return Head(joules, variance, tick, width, counted, integral, self._unseen)

    def _stale_ends(self) -> StaleEnds:
        return StaleEnds(self._tick_instants, self._tick_values, self._tick_watts)

    def energy(self, begin: float, end: float, head: Head | None = None) -> Energy:
        """Energy of a window.

        Args:
            begin: Instant it began.
            end: Instant it ended.
            head: What it kept, if it began long ago.
        """
        with self.lock:
            return self._energy(begin, end, head)

    def _energy(self, begin: float, end: float, head: Head | None) -> Energy:
        trouble = self.senses.trouble
        if trouble is not None and end > self.last_look:
            return Energy(None, Method.UNAVAILABLE, note=str(trouble))
        if not self._instants and not self._tick_instants:
            return Energy(None, Method.UNAVAILABLE, note="nothing was seen of this GPU yet")
        if head is not None:
            return self._since_head(head, begin, end)
        by_counter = self._by_counter(begin, end)
        if self.stale and self._counter_ok and self._tick_instants:
            return by_counter or self._between_ticks(begin, end)
        by_power = self._by_power(begin, end)
        if by_counter is None or _sharper(by_power, by_counter):
            return by_power
        return by_counter

    def _by_power(self, begin: float, end: float) -> Energy:
        joules, variance, looks = self._integrate(begin, end, begin, end)
        variance += (_UNSEEN * joules) ** 2
        method = Method.INTEGRATED if looks else Method.ESTIMATED
        return Energy(joules, method, _spread(variance), self._note())

    def _since_head(self, head: Head, begin: float, end: float) -> Energy:
        last = bisect_right(self._tick_instants, end) - 1
        if self._counter_ok and head.counter is not None and last >= 0:
            return self._from_tick(head, head.counter, begin, end, last)
        if head.integral is None or not self._instants:
            return Energy(None, Method.UNAVAILABLE, note=self._note())
        joules = head.joules + self._integral_at(end) - head.integral
        variance = head.variance + (_UNSEEN * joules) ** 2 + self._unseen - head.unseen
        return Energy(joules, Method.INTEGRATED, _spread(variance), self._note())

    def _by_counter(self, begin: float, end: float) -> Energy | None:
        """By the ticks inside the window, if there are two of them."""
        first = bisect_left(self._tick_instants, begin)
        last = bisect_right(self._tick_instants, end) - 1
        fewest = 1 if self.stale else 2
        if not self._counter_ok or last - first + 1 < fewest:
            return None
        head = self._ticking_head(first, begin, end)
        assert head.counter is not None
        return self._from_tick(head, head.counter, begin, end, last)

    def _between_ticks(self, begin: float, end: float) -> Energy:
        """A window inside one tick of a GPU whose power meter is refreshed with the counter."""
        last = bisect_right(self._tick_instants, begin) - 1
        joules, variance, known = self._stale_ends().between(last, begin, end)
        method = Method.COUNTER if known else Method.ESTIMATED
        return Energy(joules, method, _spread(variance), "from the counter's ticks around it")

    def _from_tick(
        self, head: Head, counted_before: float, begin: float, end: float, last: int
    ) -> Energy:
        if self.stale:
            after, variance = self._stale_ends().after(last, end)
        else:
            after, variance, _ = self._integrate(self._tick_instants[last], end, begin, end)
        counted = self._tick_values[last] - counted_before
        span = max(self._tick_instants[last] - head.instant, 1e-9)
        # A tick that is off by its bracket's half width shifts energy at about the mean power.
        watts = counted / span
        variance += head.variance
        variance += ((head.width**2 + self._tick_widths[last] ** 2) / 3) * watts**2
        return Energy(head.joules + counted + after, Method.COUNTER, _spread(variance))

    def _note(self) -> str:
        source = "mean power over about a second" if self._averaged else "instantaneous power"
        if self._counter_ok:
            return "" if self._power_ok else "from the counter's slope"
        why = self._credibility.note or self.senses.counter_note
        return f"{why}; integrated from {source}"

    def _integral_at(self, instant: float) -> float:
        """Running integral of power at an instant, held constant beyond the looks."""
        right = bisect_right(self._instants, instant)
        if right == 0:
            return self._integral[0] - self._watts[0] * (self._instants[0] - instant)
        gap = instant - self._instants[right - 1]
        watts = self._watts[right - 1]
        if right < len(self._instants):
            whole = self._instants[right] - self._instants[right - 1]
            watts += (self._watts[right] - watts) * gap / whole / 2
        return self._integral[right - 1] + watts * gap

    def _integrate(
        self, begin: float, end: float, inside_from: float, inside_to: float
    ) -> tuple[float, float, int]:
        """Integrate power over [begin, end] from looks within [inside_from, inside_to] only.

        Returns:
            Joules, their variance, and how many looks fell inside.
        """
        instants, watts = self._instants, self._watts
        # Looks low .. high-1 are inside. One at the very edge may be from either side of it: in
        # virtual time load changes without any time passing.
        low = bisect_right(instants, inside_from)
        high = bisect_left(instants, inside_to)
        duration = end - begin
        late = self._lateness()
        if high <= low:
            return self._bridge(low, duration)
        first, final = instants[low], instants[high - 1]
        joules = variance = 0.0
        a, b = begin, end
        if a < first:  # hold the first look back to where the window began
            held = min(first, b) - a
            joules += watts[low] * held
            variance += _blind_variance(held, watts[low])
            if low > 0:
                jump = watts[low] - watts[low - 1]
                variance += (jump * held) ** 2 / 12 + (jump * min(late, duration)) ** 2 / 12
            a = min(first, b)
        if b > final:
            held = b - max(final, a)
            joules += watts[high - 1] * held
            variance += _blind_variance(held, watts[high - 1])
            if high < len(watts):
                variance += ((watts[high] - watts[high - 1]) * held) ** 2 / 12
            b = max(final, a)
        if b > a:
            joules += self._integral_at(b) - self._integral_at(a)
            left = max(bisect_right(instants, a) - 1, 0)
            right = min(bisect_left(instants, b), len(instants) - 1)
            variance += (self._steps[right] - self._steps[left]) / 3
            variance += (self._jumps[right] - self._jumps[left]) * min(late, duration) ** 2 / 3
        return joules, variance, high - low

    def _lateness(self) -> float:
        """Seconds by which the meter may be late to show a change of power."""
        if self._meter_period is not None:
            return self._meter_period
        if len(self._change_gaps) < _FEWEST_CHANGES:
            return 0.0
        return min(*self._change_gaps, self.ticks.period or _LATEST)

    def _bridge(self, at: int, duration: float) -> tuple[float, float, int]:
        """No look fell inside so short a window: go by its neighbours.

        Even if they agree, power inside may have been anything that this GPU has drawn of late.
        """
        near = self._watts[max(at - 1, 0) : at + 1]
        if not near:
            return 0.0, math.inf, 0
        mean = sum(near) / len(near)
        seen = self._watts[max(at - _LATE_LOOKS, 0) : at + 1]
        off = max(max(seen) - mean, mean - min(seen))
        # The bound as two standard deviations.
        variance = (off * duration / 2) ** 2 + _blind_variance(duration, mean)
        return mean * duration, variance, 0


def _blind_variance(seconds: float, watts: float) -> float:
    """Of the energy of a time next to a look of so many watts, in which nothing was seen.

    A short one is nothing special. In a long one the GPU did not answer, and may have drawn
    anything from nothing to twice as much.
    """
    return (watts * seconds) ** 2 / 3 if seconds > _BLIND else 0.0


def _sharper(one: Energy, other: Energy) -> bool:
    assert one.uncertainty is not None
    assert other.uncertainty is not None
    return one.uncertainty < other.uncertainty


def _spread(variance: float) -> float:
    """Two standard deviations, but never less than the drivers' unit."""
    return max(2 * math.sqrt(variance), _MILLIJOULE)
