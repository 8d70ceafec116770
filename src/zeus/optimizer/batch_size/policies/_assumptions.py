"""Prior assumptions of the `zeus` policy about training in general.

None of them is about a workload or a GPU. Where they come from:

- *fitted*: by maximum likelihood to the recorded workloads at all their targets (epochs) and to
  recorded power sweeps (costs of an epoch). Leaving out one workload moves most of them by less
  than a third; least is known of the trend (0.01 to 0.13). `benchmarks/fit_assumptions.py` repeats
  it. The search below moved some of them, within that range.
- *searched*: by trying some hundred sets on recorded workloads with other defaults, targets and
  weights, on seeds from 901 on, for low regret and few wrong choices late.
- *theory*: follows from what it means.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """Hyperparameters of the priors and of exploration; nothing about a workload or a GPU.

    All in natural logarithms, and per doubling of the batch size for slopes and lengths. Deviations
    are standard deviations.

    Attributes:
        trend: Increase of log Epochs per doubling: larger batches make fewer steps. Fitted.
        bend: Deviation of log Epochs from that trend, over `bend_length` doublings. Fitted.
        tilt: Deviation of its slope. Fitted.
        rough: Independent deviation of each batch size. Fitted.
        whole: Deviation of each batch size for taking whole epochs, in epochs. Fitted.
        noise: Deviation between runs of the same batch size; worth `noise_weight` runs. Fitted.
        odd: Deviation of a single run that converged, in addition. Searched.
        price_bend: As `bend`, for log EpochCost; likewise `price_length`, `price_tilt` and
            `price_rough`. Fitted.
        idle: Fraction of the unused power of a GPU that larger batches put to use. Fitted.
        transfer: Fraction of that variance left when EpochCost is known on another GPU. Searched.
        never: Rate per doubling at which batch sizes away from proven ones never converge.
            Searched.
        cliff: Odds that a batch size larger than any proven one never converges. Searched.
        doubt: Factor by which each run that did not converge raises the odds that none ever will.
            Searched.
        luck: Deviation of a single run that did not converge. Searched.
        horizon: Later runs over which an exploration must pay off, plus `per_run` per past run: a
            job that has recurred n times is expected to recur a fraction of n more. Searched.
        caution: Risk of a trial, in runs of the reference, for each doubling beyond the first from
            batch sizes that have converged, at first; it falls as the horizon grows. `blind` in
            units of the trial's waste instead, where the cost of an epoch is unknown. Searched.
        aversion: Log cost by which the first batch size of all must be better, in units of the
            variance of its log Epochs in relation to the default. Theory: one half gives the mean
            of a lognormal distribution. Searched around that.
        kink: Least deviation of the cost of a batch size that has not run, and `step` for taking
            whole epochs, in epochs. Theory: rounding has a deviation of 0.29. Searched around that.
        mistrust: Least gain, per later run, of a batch size that has not run; half of it for each
            of its runs. Theory: any positive value makes every batch size be tried again and
            again; this one matters only after hundreds of runs.
        restart: Factor by which the expected rest of a trial may cost more than starting over.
            Searched.
        relapse: Increase of a proven batch size's log cost for each miss since it last converged.
            Searched.
        again: Standard errors within which a batch size that has converged must be better by
            `worthwhile` to be run again. Beyond `settled` trials, `runs_per_doubling` runs of it
            are due with each doubling of the trials. Searched.
    """

    trend: float = 0.07
    bend: float = 0.5
    bend_length: float = 3.5
    tilt: float = 0.165
    rough: float = 0.078
    whole: float = 0.146
    noise: float = 0.12
    noise_weight: float = 1.1
    odd: float = 0.026
    price_bend: float = 0.76
    price_length: float = 6.6
    price_tilt: float = 0.125
    price_rough: float = 0.022
    idle: float = 0.64
    transfer: float = 0.2
    never: float = 0.024
    cliff: float = 0.069
    doubt: float = 1.9
    luck: float = 0.056
    horizon: float = 10.0
    per_run: float = 0.14
    caution: float = 1.0
    blind: float = 14.0
    aversion: float = 0.38
    kink: float = 0.05
    step: float = 0.37
    mistrust: float = 0.0035
    restart: float = 1.43
    relapse: float = 0.19
    again: float = 1.9
    worthwhile: float = 0.067
    runs_per_doubling: float = 1.1
    settled: float = 17.0
