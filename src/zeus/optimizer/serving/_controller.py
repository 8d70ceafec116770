"""The controller of a service: a setting for each interval, the least energy under the bounds.

A generator: it is sent what a server did in an interval and yields the setting for the next. It
knows no server, GPU or clock. At first the highest setting is kept until the latencies at this load
are known. Then, in each interval, of the settings near the present one, those a little below what
was tried included, the one of least predicted power is chosen that keeps every bound: by the
latencies that are predicted, or because requests can be no later than the bound allows (`_delay`).
When a bound is threatened, the highest setting follows at once.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence

from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving._bounds import Bound, bounds_of
from zeus.optimizer.serving._budget import Budget
from zeus.optimizer.serving._delay import Delay
from zeus.optimizer.serving._interval import (
    TTFT,
    Decision,
    ServingInterval,
    ServingSetting,
)
from zeus.optimizer.serving._knowledge import Knowledge, Prediction, thinned
from zeus.optimizer.serving._levels import level_of, upper
from zeus.optimizer.serving._life import Life
from zeus.optimizer.serving._load import Demand, LoadTracker

_ENOUGH = 3.0  # requests that must be known about a load
_MARGIN = 0.97  # of a bound that predictions may take up
_UNSEEN_ENOUGH = 60.0  # likewise, where it is not known how long requests have waited
_UNSEEN_MARGIN = 0.7  # likewise, where it is not known how long requests have waited
_TOLERATED = 1.02  # slowdown where a bound leaves no slack
_SPARE_SHARE = 0.35  # share of the budget to aim at over all loads
_TYPICAL_EVERY = 20  # uses after which that is computed again
_UNUSUAL = 1.5  # of the median time per token, beyond which answers stand still
_GAIN = 0.005  # share of energy that a change must save
_COARSE = 4  # rungs between settings for prompts that are tried at once, far from the present one
_STEPS = 2  # below the lowest setting that was tried, for the next trial
_FAMILIAR = 600.0  # seconds until it is known how long queues become
_BOLD = 0.1  # share of the time that a bound leaves that may be lost at the beginning
_THREAT = 0.4  # share of a bound that a request may wait, with the work before it


def control(
    ladder: Sequence[float],
    bounds: All | LatencyBound | Iterable[LatencyBound],
    *,
    phases: bool = False,
    knowledge: Knowledge | None = None,
) -> Generator[Decision, ServingInterval, None]:
    """Decide on a setting for each interval.

    Args:
        ladder: Settings to choose from, decreasing: MHz, or watts. The first is the default. Those
            that are less than 4.5 % below another are left out.
        bounds: Bounds on latencies, such as `LatencyBound("ttft p99", 1.5)`.
        phases: Whether prefill and decode may have different settings.
        knowledge: What is known about the service already; it is updated.

    Yields:
        The setting for the next interval; send what happened in it.
    """
    controller = Controller(ladder, bounds, phases=phases, knowledge=knowledge)
    decision = controller.first()
    while True:
        decision = controller.decide((yield decision))


class Controller:
    """The state of `control`, one call per interval.

    Args:
        ladder: As there.
        bounds: As there.
        phases: As there.
        knowledge: As there.
        observe: Whether settings are not carried out, so that all of them may be considered.
    """

    def __init__(
        self,
        ladder: Sequence[float],
        bounds: All | LatencyBound | Iterable[LatencyBound],
        *,
        phases: bool = False,
        knowledge: Knowledge | None = None,
        observe: bool = False,
    ) -> None:
        self.bounds = bounds_of(bounds)
        self.phases = phases
        self._observe = observe
        names = [bound.latency for bound in self.bounds]
        self.knowledge = knowledge or Knowledge(thinned(ladder), names)
        self._load = LoadTracker()
        self._budgets = {bound: Budget(bound) for bound in self.bounds}
        self._lives = {bound: Life(brief=bound.of_prefill) for bound in self.bounds}
        self._rungs = (0, 0)
        self._before = (0, 0)
        self._calm = 0
        self._delay = Delay()
        self._typical: dict[Bound, tuple[float, float]] = {}
        self._typical_age = 0
        self._waits_known = False
        self._apart = False
        self._seconds = 1.0

    @property
    def ladder(self) -> tuple[float, ...]:
        """The settings to choose from."""
        return self.knowledge.ladder

    def first(self) -> Decision:
        """Return the setting for the first interval."""
        return self._decision((0, 0), "highest: nothing is known yet")

    def decide(self, interval: ServingInterval) -> Decision:
        """Learn from an interval and return the setting for the next."""
        self._waits_known = self._waits_known or interval.oldest_wait is not None
        self._apart = self._apart or bool(interval.busy)
        self._seconds = interval.seconds
        if interval.seconds <= 0:
            return self._decision(self._rungs, "kept: an interval of no duration")
        in_force = self._rungs_of(interval.setting) if interval.setting else self._rungs
        self._learn(interval, in_force)
        threat = self._threat(interval)
        if threat:
            self._calm = 0
            # Where prompts are what takes time, generating tokens faster does not help them.
            rungs = (0, self._rungs[1] if self._prompts_first(interval) else 0)
            return self._decision(rungs, threat, threatened=True)
        self._calm += 1
        if self._calm < 2 and self.knowledge.intervals > 3:
            return self._decision(self._rungs, "kept: a bound was just threatened")
        if not (interval.arrived or interval.waiting or interval.running):
            return self._decision(self._rungs, "kept: no request")
        return self._chosen()

    def _prompts_first(self, interval: ServingInterval) -> bool:
        alarmed = any(budget.alarming for budget in self._budgets.values())
        prompts = interval.busy.get("prefill", 0.0) if self.phases else 0.0
        return not alarmed and prompts > 0.5 * sum(interval.busy.values())

    def forecast(self) -> tuple[float, float] | None:
        """Return the predicted watts at the highest setting and at the present one, if known.

        Both are for what the present one gets done, which may be less than arrives.
        """
        demand = self._load.demand()
        if demand is None or not self.knowledge.power.known:
            return None
        known = self.knowledge
        chosen = known.predict(demand, *self._rungs, apart=self._apart)
        default = known.predict(demand, 0, 0, apart=self._apart).power / chosen.overrun
        return default, min(chosen.power, default)

    # --- learning ---------------------------------------------------------------------------

    def _learn(self, interval: ServingInterval, rungs: tuple[int, int]) -> None:
        known = self.knowledge
        known.learn(interval, *rungs)
        prefill, idle = known.at_highest(interval, *rungs)
        self._load.add(interval, prefill, idle)
        demand = self._load.demand()
        if demand is None:
            return
        busy, lost = known.lost(interval, *rungs)
        self._delay.add(interval, busy, lost, demand.prompt_seconds)
        prediction = known.predict(demand, *rungs, apart=self._apart)
        for bound in self.bounds:
            life = self._lives[bound]
            if bound.of_prefill or not interval.busy:
                life.add(interval, prediction.scale(bound), interval.seconds)
            else:
                life.add(interval, busy / (busy - lost) if busy > lost else 1.0, busy)
            latencies = interval.latencies.get(bound.latency)
            if latencies is not None and latencies.total > 0:
                level = self._level(bound, demand)
                cap = self._delay.served if self._followed(bound) else math.inf
                known.levels[bound.latency].add(
                    level, latencies, life.scale, cap, prediction.paused(bound)
                )
                above = latencies.share_above(bound.seconds)
                self._budgets[bound].add(level, latencies.total, above)

    # --- threats ----------------------------------------------------------------------------

    def _threat(self, interval: ServingInterval) -> str:
        for bound in self.bounds:
            if self._followed(bound):
                if interval.waiting and self._delay.seconds >= self._room(bound):
                    return f"highest: a request waits for {interval.oldest_wait or 0.0:.2g} s"
            elif bound.of_prefill:
                limit = _THREAT * bound.seconds
                queued = interval.waiting * self._prompt_seconds(bound) * self._lives[bound].scale
                waited = interval.oldest_wait or 0.0
                if waited > limit / 2 and waited + queued > limit:
                    return f"highest: a request waits for {waited:.2g} s"
                if queued > limit:
                    return f"highest: {interval.waiting} requests wait"
            pace = self._pace(bound)
            if pace > 1:
                return f"highest: tokens come {pace:.2g} times as slowly as they may for long"
            recent = self._budgets[bound]
            if recent.alarming:
                return f"highest: {recent.recent_share:.0%} of requests exceeded {bound}"
        return ""

    def _pace(self, bound: Bound) -> float:
        """Return the time per token now, relative to where it is likely to break a bound.

        That is where answers stand still while many prompts are processed.
        """
        demand = self._load.demand()
        if bound.of_prefill or demand is None or not demand.running:
            return 0.0
        limit = max(_THREAT * bound.seconds, _UNUSUAL * self._usual(bound, median=True))
        return demand.per_token / self._lives[bound].scale / limit

    def _prompt_seconds(self, bound: Bound) -> float:
        """Return the seconds that one of several waiting requests takes."""
        demand = self._load.demand()
        if demand is None:
            return 0.0
        if demand.prompt_seconds > 0:
            return demand.prompt_seconds
        seen = self.knowledge.levels[bound.latency].at(self._level(bound, demand), _ENOUGH)
        return (seen.percentile(50) or 0.0) if seen is not None and bound.latency == TTFT else 0.0

    # --- choosing ---------------------------------------------------------------------------

    def _chosen(self) -> Decision:
        demand = self._load.demand()
        if demand is None:
            return self._decision((0, 0), "highest: nothing is known yet")
        if not self.knowledge.power.known:
            return self._decision((0, 0), "highest: energies are not known")
        allowed = self._allowed(demand)
        if isinstance(allowed, str):
            return self._decision((0, 0), allowed)
        known = self.knowledge
        best: tuple[Prediction, tuple[int, int]] | None = None
        current = math.inf
        for rungs in self._candidates():
            predicted = known.predict(demand, *rungs, apart=self._apart)
            if rungs == (0, 0) or all(
                predicted.latency(bound, at_highest) <= limit or self._in_time(bound, predicted)
                for bound, (at_highest, limit) in allowed.items()
            ):
                if rungs == self._rungs:
                    current = predicted.cost
                if best is None or predicted.cost < best[0].cost:
                    best = predicted, rungs
        if best is None or current <= best[0].cost * (1 + _GAIN):
            return self._decision(self._rungs, "kept: nothing saves more within the bounds")
        watts = best[0].power
        return self._decision(best[1], f"least energy within the bounds, {watts:.0f} W predicted")

    def _candidates(self) -> Iterable[tuple[int, int]]:
        """Return settings near the present one.

        Prompts take as long as is assumed, or less. For tokens, settings are tried by and by.
        """
        last = len(self.ladder) - 1
        if self._observe:
            return [(rung, rung) for rung in range(last + 1)]
        of_decode = min(last, self.knowledge.decode.lowest + _STEPS)
        if not self.phases:
            return [(rung, rung) for rung in range(of_decode + 1)]
        found = {(0, 0), self._before}
        near = range(max(0, self._rungs[0] - 2), min(last, self._rungs[0] + 2) + 1)
        of_prefill = {*near, *range(0, last + 1, _COARSE)}
        near = range(max(0, self._rungs[1] - 2), min(of_decode, self._rungs[1] + 2) + 1)
        for decode in {*near, self._before[1]}:
            found |= {(prefill, decode) for prefill in of_prefill}
        return sorted(found)

    def _followed(self, bound: Bound) -> bool:
        """Whether it is known by how much a setting makes requests wait longer."""
        return bound.latency == TTFT and self._waits_known

    def _room(self, bound: Bound) -> float:
        """Return the seconds by which first tokens may be late."""
        limit, usual = _MARGIN * bound.seconds, self._usual(bound)
        if self._delay.ahead > usual:  # nobody knows how long this queue will become
            known = self._delay.ahead < _THREAT * bound.seconds
            return (limit - self._delay.ahead) / 2 if known else 0.0
        # In the first minutes nobody knows how long queues become: one burst may be all there is.
        familiar = min(1.0, _BOLD + self.knowledge.intervals * self._seconds / _FAMILIAR)
        return max(familiar * (limit - usual), (_TOLERATED - 1) * bound.seconds)

    def _in_time(self, bound: Bound, predicted: Prediction) -> bool:
        """Whether requests get no later than they may, even if they queue for as long again."""
        if not self._followed(bound):
            return False
        lost = max(self._seconds, bound.seconds) * (1 - 1 / predicted.slowest)
        return self._delay.seconds + lost <= self._room(bound)

    def _allowed(self, demand: Demand) -> dict[Bound, tuple[float, float]] | str:
        """Return for each bound the latency at the highest setting and what it may become here."""
        found = {}
        for bound in self.bounds:
            level = self._level(bound, demand)
            levels = self.knowledge.levels[bound.latency]
            if levels.highest is None or (bound.of_prefill and level > levels.highest + 1):
                return "highest: no such load was seen before"
            enough = _ENOUGH if self._waits_known else _UNSEEN_ENOUGH
            seen = levels.at(min(level, levels.highest), enough)
            if seen is None:
                return "highest: too few requests are known at this load"
            share = bound.share_wanted(60 * demand.arrivals) * self._budgets[bound].generosity(
                level
            )
            typical = upper(seen, share)
            unseen = bound.of_prefill and not self._waits_known
            margin = _UNSEEN_MARGIN if unseen else _MARGIN
            allowed = max(_TOLERATED * typical, margin * bound.seconds)
            if not unseen:
                allowed = max(allowed, typical * self._spare(bound))
            found[bound] = typical, allowed
        return found

    def _spare(self, bound: Bound) -> float:
        """Return by which factor all latencies of the run could be longer, at any load.

        Where a few loads have all the long latencies, the bound leaves room even for them.
        """
        return _MARGIN * bound.seconds / self._usual(bound)

    def _usual(self, bound: Bound, *, median: bool = False) -> float:
        """Return the latency that hardly any request of the run exceeds at the highest setting.

        Args:
            bound: The bound that it is about.
            median: Whether half of the requests may exceed it.
        """
        self._typical_age -= 1
        if self._typical_age < 0 or bound not in self._typical:
            self._typical_age = _TYPICAL_EVERY
            for each in self.bounds:
                seen = self.knowledge.levels[each.latency].all()
                share = _SPARE_SHARE * each.budget * self._budgets[each].left
                known = seen.total > 0
                self._typical[each] = (
                    upper(seen, share) if known else math.inf,
                    seen.percentile(50) or math.inf,
                )
        return self._typical[bound][median]

    def _level(self, bound: Bound, demand: Demand) -> int:
        """Return the level that a latency depends on: arriving work, or how fast tokens come."""
        if bound.of_prefill:
            return level_of(demand.tokens)
        return level_of(1000 * demand.per_token / self._lives[bound].scale)

    def _rungs_of(self, setting: ServingSetting) -> tuple[int, int]:
        def nearest(value: float) -> int:
            return min(range(len(self.ladder)), key=lambda rung: abs(self.ladder[rung] - value))

        return nearest(setting.prefill), nearest(setting.decode)

    def _decision(
        self, rungs: tuple[int, int], reason: str, *, threatened: bool = False
    ) -> Decision:
        if rungs == (0, 0) and self._rungs != rungs:
            self._before = self._rungs
        self._rungs = rungs
        setting = ServingSetting(self.ladder[rungs[0]], self.ladder[rungs[1]])
        return Decision(setting, reason, threatened)
