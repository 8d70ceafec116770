"""Divides the energy of one GPU over requests, interval by interval of its counter.

An interval is divided over the phases in it by their powers, a phase over its steps by time, and a
step over its requests. Parts add up to the interval's energy: nothing is lost or counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from zeus.monitor._request_powers import PHASES, PhasePowers
from zeus.monitor._request_steps import Phase, Step

_STEP_SPREAD = 0.05  # of power, by which steps of one phase within an interval differ


class Account:
    """Energy of a request on one GPU.

    Attributes:
        prompt: Joules due to the prompt.
        generated: Joules due to generated tokens.
    """

    __slots__ = (
        "edge", "edge_instant", "generated", "inferred", "levels", "prompt", "variance",
    )  # fmt: skip

    def __init__(self) -> None:
        self.prompt = 0.0
        self.generated = 0.0
        #: Variance (J²) of what differs from interval to interval.
        self.variance = 0.0
        #: Standard deviation (J) of what is inferred of prompts.
        self.inferred = 0.0
        #: Seconds by which its energy changes with the power of each phase, which stays the same.
        self.levels = [0.0] * PHASES
        #: Share of the last interval, and that interval's end.
        self.edge = 0.0
        self.edge_instant = -math.inf

    def pass_edge(self, begin: float, end: float, share: float, variance: float) -> None:
        """Count that it is uncertain when the interval before ended and this one began.

        What a misplaced edge takes from one interval it gives to the next.

        Args:
            begin: Begin of this interval.
            end: Its end.
            share: The request's share of it.
            variance: Variance (J²) of this interval's energy, due to both ends.
        """
        before = self.edge if self.edge_instant == begin else 0.0
        self.variance += variance / 2 * (share - before) ** 2
        self.edge, self.edge_instant = share, end


class Charged(Protocol):
    """A request that energy is charged to."""

    @property
    def sums(self) -> Hashable:
        """What its energy is added to, together with that of others."""

    def account(self, gpu: int) -> Account:
        """Return the account for a GPU, by its position among those measured."""


class _Parts:
    """Expected joules of one request in an interval, by phase."""

    __slots__ = ("generated", "inferred", "prompt", "squares")

    def __init__(self) -> None:
        self.prompt = [0.0] * PHASES
        self.generated = [0.0] * PHASES
        self.squares = 0.0
        self.inferred = 0.0


class GpuShares:
    """Divides the energy of one GPU.

    Args:
        gpu: Its position among those measured.
    """

    def __init__(self, gpu: int) -> None:
        self.powers = PhasePowers()
        self.gpu = gpu
        #: Until when energy was divided; `None` before the first interval.
        self.until: float | None = None
        #: When the first interval began.
        self.since = math.nan
        self.joules = 0.0
        self.idle = 0.0
        #: Joules of prompts and of generated tokens in the last interval, by `Charged.sums`.
        self.charged: dict[Any, tuple[float, float]] = {}

    def divide(
        self, begin: float, end: float, joules: float, variance: float, steps: Iterable[Step]
    ) -> None:
        """Divide the energy of an interval.

        Args:
            begin: Its begin in seconds.
            end: Its end.
            joules: Its energy.
            variance: Variance of that (J²), due to when its ends were.
            steps: Steps that cover it, in the order of time; parts outside of it do not count.
        """
        if self.until is None:
            self.since = begin
        self.until = end
        self.joules += joules
        seconds, expected, batches = [0.0] * PHASES, [0.0] * PHASES, [0.0] * PHASES
        parts: dict[Charged, _Parts] = {}
        clipped = list(_clipped(steps, begin, end))
        for step, length in clipped:
            seconds[step.phase] += length
            batches[step.phase] += length * step.batch
        self.powers.learn(seconds, batches[Phase.DECODE], joules)
        for step, length in clipped:
            energy = self.powers.power(step.phase, step.batch) * length
            expected[step.phase] += energy
            self._collect(parts, step, energy)
        spreads = self._variances(seconds, batches, expected)
        found = _divided(joules, expected, spreads, seconds)
        idle = found[Phase.IDLE]
        if not parts:  # rounding
            idle = joules
        self.idle += idle
        scale = [f / e if e > 0 else 0.0 for f, e in zip(found, expected, strict=True)]
        present = [phase for phase in Phase if seconds[phase] > 0]
        only = present[0] if len(present) == 1 else None
        charged = self.charged = {}
        for request, part in parts.items():
            account = request.account(self.gpu)
            if only is not None:  # most intervals
                factor = scale[only]
                prompt, generated = part.prompt[only] * factor, part.generated[only] * factor
                share = (prompt + generated) / joules if joules > 0 else 0.0
                account.variance += part.squares
                account.inferred += part.inferred
            else:
                prompt = math.fsum(map(float.__mul__, part.prompt, scale))
                generated = math.fsum(map(float.__mul__, part.generated, scale))
                share = self._count_variance(account, part, (seconds, expected, spreads))
            account.prompt += prompt
            account.generated += generated
            before = charged.get(request.sums, (0.0, 0.0))
            charged[request.sums] = before[0] + prompt, before[1] + generated
            account.pass_edge(begin, end, share, variance)

    def _collect(self, parts: dict[Charged, _Parts], step: Step, energy: float) -> None:
        phase, squared = step.phase, (_STEP_SPREAD * energy) ** 2
        doubt = step.doubt * energy
        for request, (prompt, generated) in step.shares.items():
            part = parts.get(request)  # type: ignore[call-overload]
            if part is None:
                part = parts[request] = _Parts()  # type: ignore[index]
            if prompt:
                part.prompt[phase] += energy * prompt
                part.squares += squared * prompt * prompt
            if generated:
                part.generated[phase] += energy * generated
                part.squares += squared * generated * generated
            if doubt:
                part.inferred += doubt * (prompt + generated)

    def _variances(
        self, seconds: Sequence[float], batches: Sequence[float], expected: Sequence[float]
    ) -> list[float]:
        """Return the variance (J²) of the expected energy of each phase."""
        found = []
        for phase in Phase:
            length = seconds[phase]
            batch = round(batches[phase] / length) if length > 0 else 0
            level = self.powers.variance(phase, batch) * length * length
            found.append(level + (self.powers.spread * expected[phase]) ** 2)
        return found

    def _count_variance(
        self,
        account: Account,
        part: _Parts,
        phases: tuple[Sequence[float], Sequence[float], Sequence[float]],
    ) -> float:
        """Count how uncertain a part is; return the share of a change of the whole energy."""
        seconds, expected, spreads = phases
        total = math.fsum(spreads)
        own = [
            (p + g) / e if e > 0 else 0.0
            for p, g, e in zip(part.prompt, part.generated, expected, strict=True)
        ]
        share = math.fsum(map(float.__mul__, own, spreads)) / total if total > 0 else 0.0
        for phase in range(PHASES):
            if seconds[phase] > 0:
                lever = own[phase] - share
                account.levels[phase] += lever * seconds[phase]
                account.variance += (lever * self.powers.spread * expected[phase]) ** 2
        account.variance += part.squares
        account.inferred += part.inferred
        return share

    def variance(self, account: Account) -> float:
        """Return the variance (J²) of a request's energy."""
        levels = math.fsum(
            self.powers.variance(phase, 0) * account.levels[phase] ** 2 for phase in Phase
        )
        return account.variance + levels + account.inferred**2


def _clipped(steps: Iterable[Step], begin: float, end: float) -> Iterator[tuple[Step, float]]:
    for step in steps:
        if step.begin >= end:
            break
        length = min(step.end, end) - max(step.begin, begin)
        if length > 0:
            yield step, length


def _divided(
    joules: float, expected: Sequence[float], spreads: Sequence[float], seconds: Sequence[float]
) -> list[float]:
    """Return the energy of each phase; they add up to that of the interval."""
    total, spread = math.fsum(expected), math.fsum(spreads)
    off = joules - total
    if spread > 0:
        found = [e + v / spread * off for e, v in zip(expected, spreads, strict=True)]
        if min(found) >= 0:
            return found
    if total > 0:
        return [e * joules / total for e in expected]
    length = math.fsum(seconds)
    return [joules * s / length if length > 0 else 0.0 for s in seconds]
