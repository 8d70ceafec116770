"""Prior assumptions of the `zeus` policy about training in general.

None of them is about a workload or a GPU. The values were tuned on the recorded workloads and on
synthetic GPUs; `benchmarks/replay_policies.py` documents how, and how they perform elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """Hyperparameters of the priors and of exploration; nothing about a workload or a GPU.

    All in natural logarithms, and per doubling of the batch size for slopes and lengths. Deviations
    are standard deviations.

    Attributes:
        trend: Increase of log Epochs per doubling: larger batches make fewer steps.
        bend: Deviation of log Epochs from that trend, over `bend_length` doublings.
        tilt: Deviation of its slope.
        rough: Independent deviation of each batch size.
        noise: Deviation between runs of the same batch size; worth `noise_weight` runs.
        price_bend: As `bend`, for log EpochCost; likewise `price_length`, `price_tilt` and
            `price_rough`.
        idle: Fraction of the unused power of a GPU that larger batches put to use.
        transfer: Fraction of that variance left when EpochCost is known on another GPU.
        fit_weight: Number of observed batch sizes that the assumed scales are worth.
        never: Rate per doubling at which batch sizes away from proven ones never converge.
        cliff: Odds that a batch size larger than any proven one never converges.
        horizon: Future recurrences over which an exploration must pay off, plus `per_run` per past
            recurrence.
        margin: Standard errors by which costs must differ to be distinguished, at first; they grow
            by `caution` with each doubling of the recurrences.
        convex: Fraction of that by which the curve of log Epochs may violate convexity.
        reach: Doublings from a proven batch size within which others are explored.
        bold: Standard deviations by which one further away must be expected to be better.
        restart: Factor by which the expected rest of a trial may cost more than starting over.
        luck: Deviation of a single run that did not converge.
        doubt: Factor by which each such run raises the odds that none ever will.
        again: Standard errors within which a batch size that has converged must be better by
            `worthwhile` to be sampled again. Beyond `settled` trials, `looks` runs of it are due
            with each doubling of the trials.
        wild: Fraction of jobs whose curves vary `wilder` times as much.
        relapse: Increase of a proven batch size's log cost for each miss since it last converged.
        odd: Deviation of a single run that converged.
    """

    trend: float = 0.08
    bend: float = 0.4
    bend_length: float = 3.0
    tilt: float = 0.15
    rough: float = 0.07
    noise: float = 0.17
    noise_weight: float = 5.0
    price_bend: float = 0.18
    price_length: float = 2.2
    price_tilt: float = 0.125
    price_rough: float = 0.02
    idle: float = 0.6
    transfer: float = 0.2
    fit_weight: float = 1.0
    never: float = 0.04
    cliff: float = 0.12
    horizon: float = 16.0
    per_run: float = 0.7
    margin: float = 0.7
    caution: float = 0.25
    convex: float = 0.5
    reach: float = 1.0
    bold: float = 0.5
    restart: float = 1.2
    luck: float = 0.1
    doubt: float = 7.0
    relapse: float = 0.5
    odd: float = 0.02
    again: float = 2.0
    worthwhile: float = 0.05
    looks: float = 1.5
    settled: float = 16.0
    wild: float = 0.1
    wilder: float = 3.9
