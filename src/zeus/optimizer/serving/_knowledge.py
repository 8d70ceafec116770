"""Knowledge of a controller about a service: how a setting changes times, power and latencies.

Everything is kept relative to the highest setting, so that a few visited settings inform the rest
and stays at different loads add up. It can be saved, and continued at the next start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zeus.errors import FrontierError
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._interval import TTFT, ServingInterval
from zeus.optimizer.serving._levels import Levels
from zeus.optimizer.serving._load import Demand
from zeus.optimizer.serving._power import PowerModel, features
from zeus.optimizer.serving._roofline import Roofline
from zeus.optimizer.serving._slowdown import Slowdown

VERSION = 1
_SATURATED = 0.93  # share of time for prompts beyond which queues grow without end
_BACKLOG = 2.0  # seconds of waiting prompts beyond which a queue is worked off
_OVERLOAD = 0.15  # share of the capacity by which arrivals must exceed it to count as overload
_UNKNOWN_PREFILL = 0.4  # share of busy time for prompts that is assumed where it is not known


@dataclass(frozen=True)
class Prediction:
    """Predicted effects of a setting at a load.

    Attributes:
        power: Watts on average.
        first: How many times as long the first token takes as at the highest setting.
        each: Likewise each further token.
        slowest: How many times as long the work of the slower phase takes.
        pause: Seconds by which the first token is late besides, because the setting is changed.
        overrun: Seconds that the work of a second takes, if that is more than one: the rest waits,
            and draws as much power later.
    """

    power: float
    first: float
    each: float
    slowest: float
    pause: float = 0.0
    overrun: float = 1.0

    @property
    def cost(self) -> float:
        """Joules for the work that arrives in a second."""
        return self.power * self.overrun

    def scale(self, bound: Bound) -> float:
        """Return how many times as long the latency of a bound takes."""
        if bound.latency == TTFT:
            return self.first
        return max(self.first, self.each) if bound.of_prefill else self.each

    def paused(self, bound: Bound) -> float:
        """Return by how many seconds the latency of a bound is longer besides."""
        return self.pause if bound.latency == TTFT else 0.0

    def latency(self, bound: Bound, seconds: float) -> float:
        """Return a latency that takes so many seconds at the highest setting."""
        return seconds * self.scale(bound) + self.paused(bound)


def thinned(ladder: Sequence[float]) -> list[float]:
    """Return the highest of some decreasing settings and those at least 4.5 % below another."""
    chosen = list(ladder[:1])
    for setting in ladder[1:]:
        if not 0.955 * chosen[-1] < setting < chosen[-1]:
            chosen.append(setting)
    return chosen


class Knowledge:
    """Knowledge about one service on one kind of GPU with one knob.

    Args:
        ladder: Settings, decreasing.
        latencies: Names of the latencies to learn.
        switch_seconds: Seconds that a change of the setting takes.
    """

    def __init__(
        self, ladder: Sequence[float], latencies: Iterable[str], switch_seconds: float = 0.015
    ) -> None:
        self.ladder = tuple(ladder)
        if not self.ladder or list(self.ladder) != sorted(set(self.ladder), reverse=True):
            raise FrontierError(f"a ladder must be decreasing settings, but got {list(ladder)}")
        self.switch_seconds = switch_seconds
        self.prefill = Slowdown(self.ladder)
        self.decode = Roofline(self.ladder)
        self.power = PowerModel()
        self.levels = {name: Levels() for name in latencies}
        self.intervals = 0
        self._prompts = 0, 0.0, False

    def learn(self, interval: ServingInterval, prefill: int, decode: int) -> None:
        """Learn times and power from an interval at a setting, given by indices in the ladder."""
        self.intervals += 1
        busy = phase_seconds(interval)
        if interval.busy:
            self._learn_prompts(prefill, busy[0], interval.prompt_tokens)
        if interval.generated_tokens > 0 and interval.running > 0:
            iterations = interval.generated_tokens / max(interval.running, 1.0)
            self.decode.add(decode, interval.running, busy[1], iterations)
        if interval.energy is not None and interval.energy > 0:
            self.power.add(self._row(interval, busy, prefill, decode), interval.energy)

    def _learn_prompts(self, rung: int, seconds: float, tokens: float) -> None:
        """Learn from prompts; tokens count when they are done, in a later interval perhaps."""
        if rung != self._prompts[0]:
            self._prompts = rung, 0.0, False
            if seconds > 0:  # begun at another setting
                self._prompts = rung, 0.0, tokens == 0
                return
        _, before, mixed = self._prompts
        if tokens <= 0:
            self._prompts = rung, before + seconds, mixed
            return
        if not mixed:
            self.prefill.add(rung, 0, before + seconds, tokens)
        self._prompts = rung, 0.0, False

    def _row(
        self, interval: ServingInterval, busy: tuple[float, float], prefill: int, decode: int
    ) -> list[float]:
        idle = max(0.0, interval.seconds - sum(busy))
        x, y = self.ladder[prefill] / self.ladder[0], self.ladder[decode] / self.ladder[0]
        return features(idle, *busy, x=x, y=y, tokens=interval.generated_tokens)

    def predict(self, demand: Demand, prefill: int, decode: int, *, apart: bool) -> Prediction:
        """Predict power and slowdowns at a load with a setting.

        Args:
            demand: The load.
            prefill: Index of the setting of prefill in the ladder.
            decode: Index of the setting of decode.
            apart: Whether the times of both phases are known apart.
        """
        slow_decode = self.decode.factor(decode, demand.running)
        slow_prefill = (
            self.prefill.factors()[prefill] if apart else self.ladder[0] / self.ladder[prefill]
        )
        share = demand.prefill
        pause = paused = 0.0
        if prefill != decode and demand.prompt_seconds > 0:
            # Each phase begins at the setting of the one before, for as long as a change takes.
            low, high = sorted((self.ladder[prefill], self.ladder[decode]))
            paused = self.switch_seconds * (1 - low / high)
            pause = paused / demand.prompt_seconds
        if not apart:
            share = _UNKNOWN_PREFILL * (1 - demand.idle)
        wanted = share * (slow_prefill + pause)
        starved = 1.0
        if apart and demand.backlog > _BACKLOG and demand.arriving > 1 + _OVERLOAD:
            # The queue grows by what arrives less what is processed.
            starved = (demand.arriving - 1 / (slow_prefill + pause)) / (demand.arriving - 1)
        elif not apart or demand.backlog <= _BACKLOG:
            if wanted >= _SATURATED and (prefill or decode):
                return Prediction(math.inf, math.inf, math.inf, math.inf)
            if wanted > share:
                starved = (1 - share) / max(1 - wanted, 1 - _SATURATED)
        first = slow_prefill * starved
        each = max(slow_decode, slow_prefill + 0.3 * pause) * starved
        if not apart:  # what is measured of decode has the prompts in between already
            each = max(slow_decode, 0.3 * slow_decode + 0.7 * slow_prefill)
        work = max(1e-9, 1 - demand.idle)
        growth = (share * (slow_prefill + pause) + (work - share) * slow_decode) / work
        idle = max(0.0, demand.idle) ** max(growth, 1e-3) if demand.idle > 0 else 0.0
        x, y = self.ladder[prefill] / self.ladder[0], self.ladder[decode] / self.ladder[0]
        prompts = min(wanted, 1 - idle) if apart else 0.0
        row = features(
            idle, prompts, max(0.0, 1 - idle - prompts), x=x, y=y, tokens=demand.generated
        )
        slowest = max(slow_prefill + pause, slow_decode)
        power = self.power.power(row)
        return Prediction(power, first, each, slowest, paused, max(1.0, work * growth))

    def at_highest(
        self, interval: ServingInterval, prefill: int, decode: int
    ) -> tuple[float, float]:
        """Return an interval's seconds of prefill and without work, as at the highest setting."""
        prompts, tokens = phase_seconds(interval)
        idle = max(0.0, interval.seconds - prompts - tokens) / interval.seconds
        alone = prompts / self.prefill.factors()[prefill]
        busy = prompts + tokens
        if busy <= 0 or idle <= 0:
            return alone, idle * interval.seconds
        growth = busy / max(1e-9, alone + tokens / self.decode.factor(decode, interval.running))
        return alone, idle ** (1 / max(growth, 1.0)) * interval.seconds

    def lost(self, interval: ServingInterval, prefill: int, decode: int) -> tuple[float, float]:
        """Return an interval's busy seconds, and those that the highest setting had saved."""
        prompts, tokens = phase_seconds(interval)
        slow_prompts, slow_tokens = (
            self.prefill.factors()[prefill],
            self.decode.factor(decode, interval.running),
        )
        if not interval.busy:
            slow_tokens = max(slow_tokens, self.ladder[0] / self.ladder[prefill])
        return prompts + tokens, prompts * (1 - 1 / slow_prompts) + tokens * (1 - 1 / slow_tokens)

    # --- for the next start -----------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return {
            "version": VERSION,
            "ladder": list(self.ladder),
            "prefill": self.prefill.state(),
            "decode": self.decode.state(),
            "power": self.power.state(),
            "levels": {name: levels.state() for name, levels in self.levels.items()},
            "intervals": self.intervals,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue with what another controller has learned.

        Raises:
            FrontierError: If the state is of another version or ladder, or cannot be read.
        """
        if state.get("version") != VERSION or state.get("ladder") != list(self.ladder):
            raise FrontierError(
                f"a state must be of version {VERSION} and of the ladder {list(self.ladder)}, but "
                f"got version {state.get('version')!r} and {state.get('ladder')!r}"
            )
        try:
            self.prefill.load(state["prefill"])
            self.decode.load(state["decode"])
            self.power.load(state["power"])
            for name, levels in self.levels.items():
                levels.load(state["levels"].get(name, {}))
            self.intervals = int(state["intervals"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FrontierError(f"a state cannot be read: {error!r}") from None


def phase_seconds(interval: ServingInterval) -> tuple[float, float]:
    """Return the seconds of prefill and decode; all work counts as decode if they are not known."""
    if interval.busy:
        return interval.busy.get("prefill", 0.0), interval.busy.get("decode", 0.0)
    busy = (
        interval.seconds * (1 - math.exp(-interval.running))
        if interval.running < 4
        else (interval.seconds)
    )
    return 0.0, busy
