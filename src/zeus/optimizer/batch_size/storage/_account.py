"""Cost of a job, compared with running the default batch size every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zeus.errors import FrontierError
from zeus.frontier import Frontier, Point
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import ProfileInfo
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import Expected
from zeus.optimizer.batch_size.storage._history import Span, Total

_NEAR = 1.0  # watts by which a chosen power limit may differ from the measured one


@dataclass(frozen=True)
class Baseline:
    """Cost of reaching the target once with the default batch size, on one GPU configuration.

    Attributes:
        gpu: Model and number of the GPUs.
        cost: Cost in joules.
        runs: Number of converged runs of the default that `cost` averages; 0 if it is only the
            policy's expectation.
        factor: Cost of an epoch at the highest power limit divided by that at the chosen one;
            `cost` includes it. `None` if not measured: `cost` is then at whatever power limits
            these runs had.
    """

    gpu: GpuModel
    cost: float
    runs: int
    factor: float | None


@dataclass(frozen=True)
class Account:
    """Cost of a job so far, compared with the default batch size.

    Attributes:
        spent: Cost of all trials in joules, including those that did not converge.
        converged: Number of recurrences that reached the target, by GPU configuration.
        baselines: Known baselines, by GPU configuration.
        expected: Cost in joules of reaching the target as often with the default; `None` if that
            is unknown for some GPUs, or if the target was never reached.
    """

    spent: float
    converged: Mapping[GpuModel, int]
    baselines: Mapping[GpuModel, Baseline]
    expected: float | None

    @property
    def saved(self) -> float | None:
        """Joules saved; negative as long as exploration has cost more than it saved."""
        return None if self.expected is None else self.expected - self.spent

    @property
    def share(self) -> float | None:
        """Saving as a fraction of the expected cost of the default."""
        if self.saved is None or not self.expected:
            return None
        return self.saved / self.expected


def account(
    spec: JobSpec,
    totals: Sequence[Total],
    outlooks: Mapping[GpuModel, Sequence[Expected]],
    profiles: Iterable[ProfileInfo],
    max_power: Mapping[GpuModel, float],
) -> Account:
    """Compute the account of a job.

    Args:
        spec: The job.
        totals: Totals of its trials.
        outlooks: The policy's expectations, by GPU configuration.
        profiles: Power-limit profiles of the job.
        max_power: Maximum power of all GPUs together in watts, by GPU configuration.
    """
    converged: dict[GpuModel, int] = {}
    for total in totals:
        if total.state == Outcome.CONVERGED:
            gpu = GpuModel(total.gpu, total.gpus)
            converged[gpu] = converged.get(gpu, 0) + total.trials
    of_default = {
        GpuModel(each.gpu, each.gpus): each
        for each in profiles
        if each.batch_size == spec.default_batch_size
    }
    baselines = {}
    for gpu, beliefs in outlooks.items():
        # The other policies do not choose a single power limit.
        profile = of_default.get(gpu) if spec.optimizes_power else None
        factor = _full_power(spec, profile, max_power.get(gpu))
        found = _baseline(spec, gpu, totals, beliefs, factor)
        if found is not None:
            baselines[gpu] = found
    expected = None
    if converged and all(gpu in baselines for gpu in converged):
        expected = sum(baselines[gpu].cost * runs for gpu, runs in converged.items())
    return Account(sum(total.cost for total in totals), converged, baselines, expected)


def course(spans: Iterable[Span], account_: Account) -> list[tuple[int, float, float | None]]:
    """Return the cumulative cost: recurrence, joules spent, joules expected with the default.

    Args:
        spans: Spans of the job's whole history.
        account_: Account of the job, for the cost of the default.
    """
    spent, expected = 0.0, 0.0
    known = account_.expected is not None
    points: dict[int, tuple[float, float]] = {}
    for span in spans:
        spent += span.cost
        if known and span.state == Outcome.CONVERGED:
            expected += account_.baselines[GpuModel(span.gpu, span.gpus)].cost * span.trials
        points[span.first] = spent, expected
    return [(first, cost, other if known else None) for first, (cost, other) in points.items()]


def _baseline(
    spec: JobSpec,
    gpu: GpuModel,
    totals: Iterable[Total],
    beliefs: Sequence[Expected],
    factor: float | None,
) -> Baseline | None:
    times = 1.0 if factor is None else factor
    for total in totals:
        same = (total.gpu, total.gpus) == gpu and total.batch_size == spec.default_batch_size
        if same and total.state == Outcome.CONVERGED:
            return Baseline(gpu, times * total.cost / total.trials, total.trials, factor)
    for each in beliefs:
        believed = each.standing in (ArmStatus.EXPECTED, ArmStatus.PROVEN)
        if each.batch_size == spec.default_batch_size and believed and each.cost is not None:
            return Baseline(gpu, times * each.cost, 0, factor)
    return None


def _full_power(
    spec: JobSpec, profile: ProfileInfo | None, max_power: float | None
) -> float | None:
    """Return the cost at the highest measured limit, relative to the chosen limit."""
    limit = None if profile is None else profile.power_limit
    if profile is None or profile.frontier is None or limit is None or max_power is None:
        return None
    try:
        points = Frontier.from_dict(profile.frontier).points
    except FrontierError:
        return None
    limits = {p.knob: p for p in points if isinstance(p.knob, int | float)}
    if not limits:
        return None
    highest, chosen = max(limits), min(limits, key=lambda watts: abs(watts - limit))
    if abs(chosen - limit) > _NEAR:
        return None

    def cost(point: Point) -> float:
        return spec.cost(point.energy, point.time, max_power)

    least = cost(limits[chosen])
    return cost(limits[highest]) / least if least > 0 else None
