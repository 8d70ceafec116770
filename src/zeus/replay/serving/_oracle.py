"""The least energy that settings which never change can reach, for somebody who knows the traffic.

The better of the best clock for all and the best pair of clocks, one per phase, where each change
between phases is paid for with the clock's lag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zeus.optimizer.serving._interval import ServingSetting
from zeus.replay.serving._runs import Bounds, Runs

_COARSE = 4  # rungs between the first tries


@dataclass(frozen=True)
class Oracle:
    """Best settings under bounds.

    Attributes:
        static: The best setting with one clock.
        phases: The best setting with a clock for each phase; may be the same.
        best: The better of both.
    """

    static: ServingSetting
    phases: ServingSetting
    best: ServingSetting


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
    static = _best(runs, bounds, same)
    phases = _best_pair(runs, bounds, clocks, clocks.index(static.prefill))
    return Oracle(static, phases, _best(runs, bounds, [static, phases]))


def _best(runs: Runs, bounds: Bounds, settings: list[ServingSetting]) -> ServingSetting:
    kept = [each for each in settings if bounds.kept_by(runs.static(each))]
    return min(kept or [runs.workload.highest], key=lambda each: runs.static(each).energy)


def _best_pair(
    runs: Runs, bounds: Bounds, clocks: tuple[float, ...], static: int
) -> ServingSetting:
    last = len(clocks) - 1

    def cost(pair: tuple[int, int]) -> float:
        setting = ServingSetting(clocks[pair[0]], clocks[pair[1]])
        result = runs.static(setting)
        return result.energy if bounds.kept_by(result) else float("inf")

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
