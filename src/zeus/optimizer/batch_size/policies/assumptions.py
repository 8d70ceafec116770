"""What our policy takes for granted about training in general.

None of it is about a workload or a GPU. The figures were found on the recorded workloads and on
GPUs of our own making; `benchmarks/replay_policies.py` says how, and how they do elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """What is taken for granted about training in general; nothing about a workload or a GPU.

    All in natural logarithms, and by doubling of the batch size where there is a slope or length.

    Attributes:
        trend: By how much log Epochs rises with a doubling: larger batches make fewer steps.
        bend: How far log Epochs strays from that, over `bend_length` doublings.
        tilt: How far its slope strays.
        rough: How far each batch size strays by itself.
        noise: How far runs of the same batch size stray; worth `noise_weight` runs.
        price_bend: The same for log EpochCost, as are `price_length`, `price_tilt`, `price_rough`.
        idle: Share of the unused power of a GPU that larger batches put to use.
        transfer: How much of that variance is left when EpochCost is known on another GPU.
        fit_weight: How many batch sizes the assumed scales are worth, against those seen.
        never: Rate, by doubling, at which batch sizes away from those proven never converge.
        cliff: Odds that a batch size larger than any proven one never converges.
        horizon: Recurrences to come that an exploration pays for, besides `per_run` of those seen.
        margin: Standard errors by which costs must differ to be told apart, at first; they grow by
            `caution` with each doubling of the recurrences.
        convex: The share of that by which the curve of log Epochs may bend the wrong way.
        reach: Doublings from a proven batch size within which others are explored.
        bold: Standard deviations by which one further away must be expected to be better.
        restart: How much dearer than starting over the expected rest of a trial may be.
        luck: How far a single run that did not converge may have been from the usual.
        doubt: By what factor each such run raises the odds that none ever will.
        again: Standard errors within which a batch size that has converged must be better by
            `worthwhile` to get another look. Beyond `settled` trials, `looks` runs of it are due
            with each doubling of the trials.
        wild: Share of jobs whose curves vary `wilder` times as much.
        relapse: How much dearer a proven batch size is for each miss since it last converged.
        odd: How far a single run that converged may have been from the usual.
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
