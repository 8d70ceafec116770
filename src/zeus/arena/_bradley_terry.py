"""Ratings of models from votes: the Bradley-Terry model, with bootstrap intervals.

Each model has a strength, and wins against another with probability 1 / (1 + exp(other - own)). A
tie is half a win for both. Two virtual rounds for each pair that met, one won by either, are added
to the votes and drawn with them: without them, a model that never lost would have an infinite
strength, and few votes that agree would look certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_SAMPLES = 400
_ITERATIONS = 60
_CONVERGED = 1e-6
_VIRTUAL = 1.0  # weight of the two virtual rounds of a pair, together
_INTERVAL = (2.5, 97.5)  # percentiles

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Vote:
    """Result of a round.

    Attributes:
        one: Index of a model.
        other: Index of its opponent.
        score: Share of the win that goes to `one`: 1, 0, or 0.5 for a tie.
    """

    one: int
    other: int
    score: float


@dataclass(frozen=True)
class WinRate:
    """Probability that a model wins against another one, averaged over all others.

    Attributes:
        value: Estimate, 0 to 1.
        low: Lower end of its 95 % interval; `high` the upper one.
        rounds: Number of votes that it took part in.
    """

    value: float
    low: float
    high: float
    rounds: int


def win_rates(votes: Sequence[Vote], models: int, seed: int = 0) -> list[WinRate | None]:
    """Return the win rate of each model; `None` for one without votes.

    Args:
        votes: Results of rounds.
        models: Number of models.
        seed: Of the bootstrap; the same votes give the same intervals.
    """
    rounds = np.zeros(models, int)
    for vote in votes:
        rounds[[vote.one, vote.other]] += 1
    met = np.flatnonzero(rounds)
    if not len(met):
        return [None] * models
    place = {int(model): index for index, model in enumerate(met)}
    pool = _pool(votes, place)
    # One set of weights for the estimate itself, then one for each sample of the bootstrap.
    weights = np.vstack([pool.weight, _drawn(pool.weight, seed)])
    rates = _rates(_strengths(pool, weights, len(met)))
    low, high = np.percentile(rates[1:], _INTERVAL, axis=0)
    found: list[WinRate | None] = [None] * models
    for model, index in place.items():
        value = float(rates[0, index])
        found[model] = WinRate(
            value, min(float(low[index]), value), max(float(high[index]), value), int(rounds[model])
        )
    return found


@dataclass(frozen=True)
class _Pool:
    """Votes and virtual rounds as arrays, equal ones together."""

    one: npt.NDArray[np.intp]
    other: npt.NDArray[np.intp]
    score: Array
    weight: Array


def _pool(votes: Sequence[Vote], place: dict[int, int]) -> _Pool:
    counts: dict[tuple[int, int, float], float] = defaultdict(float)
    for vote in votes:
        one, other, score = place[vote.one], place[vote.other], vote.score
        counts[(one, other, score) if one < other else (other, one, 1 - score)] += 1.0
    for pair in sorted({(one, other) for one, other, _ in counts}):
        for score in (1.0, 0.0):
            counts[*pair, score] += _VIRTUAL / 2
    rows = sorted(counts.items())
    one_, other_, score_ = zip(*(key for key, _ in rows), strict=True)
    weight = np.array([count for _, count in rows], float)
    return _Pool(np.array(one_), np.array(other_), np.array(score_), weight)


def _drawn(weight: Array, seed: int) -> Array:
    """Return weights of the bootstrap: in which proportions the rows were drawn.

    The Bayesian bootstrap: the weight of a vote is exponential instead of a count, so that no
    sample loses a pair of models altogether, and equal votes can be drawn together.
    """
    random = np.random.default_rng(seed)
    drawn = random.standard_gamma(weight, (_SAMPLES, len(weight)))
    return np.asarray(drawn * (weight.sum() / drawn.sum(axis=1, keepdims=True)))


def _strengths(pool: _Pool, weights: Array, models: int) -> Array:
    """Return the strengths for each row of weights, by minorization and maximization."""
    samples = len(weights)
    wins = np.zeros((samples, models))
    games = np.zeros((samples, models, models))
    for index, (one, other, score) in enumerate(zip(pool.one, pool.other, pool.score, strict=True)):
        share = weights[:, index]
        wins[:, one] += share * score
        wins[:, other] += share * (1 - score)
        games[:, one, other] += share
        games[:, other, one] += share
    gamma = np.ones((samples, models))
    for _ in range(_ITERATIONS * models):
        sums = gamma[:, :, None] + gamma[:, None, :]
        after = np.maximum(wins, 1e-9) / np.maximum((games / sums).sum(axis=2), 1e-12)
        after /= np.exp(np.log(after).mean(axis=1, keepdims=True))
        change = np.abs(np.log(after / gamma)).max()
        gamma = after
        if change < _CONVERGED:
            break
    return np.asarray(np.log(gamma))


def _rates(strengths: Array) -> Array:
    """Return the mean probability to win against each other model."""
    models = strengths.shape[1]
    won = 1 / (1 + np.exp(strengths[:, None, :] - strengths[:, :, None]))
    own = won.diagonal(axis1=1, axis2=2)
    return np.asarray((won.sum(axis=2) - own) / max(models - 1, 1))
