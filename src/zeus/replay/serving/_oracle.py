"""The least energy that settings which never change can reach, for somebody who knows the traffic.

The better of the best clock for all and the best pair of clocks, one per phase, where each change
between phases is paid for with the clock's lag. Bounds hold over the whole traffic, which such
settings use up in fewer minutes than the default: so there is a second one that keeps the minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from zeus.optimizer.serving._interval import ServingSetting
from zeus.replay.serving._runs import Bounds, Runs
from zeus.testing import ServingResult

_COARSE = 4  # rungs between the first tries
_FEWER_MINUTES = 0.01  # share of the minutes that may keep the bounds less than at the default

Keeps = Callable[[ServingResult], bool]


@dataclass(frozen=True)
class Oracle:
    """Best settings under bounds.

    Attributes:
        static: The best setting with one clock.
        phases: The best setting with a clock for each phase; may be the same.
        best: The better of both.
        steady: The best setting that also keeps the bounds in as many minutes as the default, less
            one in a hundred.
    """

    static: ServingSetting
    phases: ServingSetting
    best: ServingSetting
    steady: ServingSetting


def find_oracle(runs: Runs, bounds: Bounds) -> Oracle:
    """Search the settings of least energy that keep the bounds over the whole traffic.

    All clocks of `Runs.clocks` are tried for both phases together. Pairs are searched: a coarse
    line along each phase, then the neighbors of the best pair until none is better.

    Args:
        runs: Runs of the traffic.
        bounds: Bounds.
    """
    clocks = runs.clocks()
    same = [ServingSetting(clock, clock) for clock in clocks]
    minutes = bounds.kept_share(runs.default) - _FEWER_MINUTES

    def steady(result: ServingResult) -> bool:
        return bounds.kept_by(result) and bounds.kept_share(result) >= minutes

    found = []
    for keeps in bounds.kept_by, steady:
        static = _best(runs, keeps, same)
        phases = _best_pair(runs, keeps, clocks, clocks.index(static.prefill))
        found.append((static, phases, _best(runs, keeps, [static, phases])))
    return Oracle(*found[0], found[1][-1])


def _best(runs: Runs, keeps: Keeps, settings: list[ServingSetting]) -> ServingSetting:
    kept = [each for each in settings if keeps(runs.static(each))]
    return min(kept or [runs.workload.highest], key=lambda each: runs.static(each).energy)


def _best_pair(runs: Runs, keeps: Keeps, clocks: tuple[float, ...], static: int) -> ServingSetting:
    last = len(clocks) - 1

    def cost(pair: tuple[int, int]) -> float:
        setting = ServingSetting(clocks[pair[0]], clocks[pair[1]])
        result = runs.static(setting)
        return result.energy if keeps(result) else float("inf")

    # Decode first: it slows prompts down hardly at all.
    best = min([(0, index) for index in (*range(0, last, _COARSE), last)], key=cost)
    best = min([best, (static, best[1]), (static, static)], key=cost)
    best = min([(index, best[1]) for index in {*range(0, last, _COARSE), best[0]}], key=cost)
    while True:
        better = min([best, *_neighbors(best, last)], key=cost)
        if cost(better) >= cost(best):
            return ServingSetting(clocks[best[0]], clocks[best[1]])
        best = better


def _neighbors(pair: tuple[int, int], last: int) -> Iterator[tuple[int, int]]:
    prefill, decode = pair
    for one, other in ((-1, 0), (1, 0), (0, -1), (0, 1), (1, -1), (-1, 1), (2, 0), (0, 2)):
        if 0 <= prefill + one <= last and 0 <= decode + other <= last:
            yield prefill + one, decode + other
