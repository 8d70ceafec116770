"""What the authors' program decides for one job whose runs follow each other, step by step."""

from __future__ import annotations

from collections import defaultdict

import numpy as np


class Published:
    """The published algorithm with lists instead of arrays, written from its description.

    Args:
        arms: How many batch sizes there are, from the smallest.
        default: Where the first round of exploration begins.
        beta: The stopping threshold, as a multiple of the lowest cost of a recurrence.
        window: How many of its latest costs count for a batch size; 0 counts all.
        draws: Standard normal numbers by decision and arm.
    """

    def __init__(self, arms, default, beta, window, draws):
        self.default, self.beta, self.window, self.draws = default, beta, window, draws
        self.costs = defaultdict(list)
        self.lowest, self.spent, self.decisions = np.inf, 0.0, 0
        self.survivors = None
        self.exploration = self._explore(list(range(arms)))
        self.next = next(self.exploration)

    def _explore(self, arms):
        first = self.default
        for _ in range(2):
            good = {}
            place = arms.index(first)
            for direction in (arms[place::-1], arms[place + 1 :]):
                for arm in direction:
                    cost, converged = yield arm
                    if not converged:
                        break
                    good[arm] = cost
            arms = sorted(good)
            if not arms:
                return
            first = min(good, key=lambda arm: good[arm])
        self.survivors = arms

    @property
    def threshold(self):
        return self.beta * self.lowest

    def choose(self):
        if self.next is not None:
            return self.next
        if self.survivors is None:  # the program would raise an error
            return self.default
        return min(self.survivors, key=self._sample)

    def _sample(self, arm):
        costs = self.costs[arm][-self.window :]
        return np.mean(costs) + np.std(costs) / len(costs) ** 0.5 * self.draws(self.decisions, arm)

    def ended(self, arm, epochs, cost, converged):
        self.decisions += 1
        refused = not converged and epochs == 0
        if not refused or self.threshold < np.inf:
            self.costs[arm].append(100 * self.threshold if refused else cost)
        self.spent += cost
        if converged:
            self.lowest, self.spent = min(self.lowest, self.spent), 0.0
        if self.next is not None:
            try:
                self.next = self.exploration.send((cost, converged))
            except StopIteration:
                self.next = None
