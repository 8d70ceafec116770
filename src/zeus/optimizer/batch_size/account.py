"""What a job has cost, against what it would have cost to run the default every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zeus.errors import FrontierError
from zeus.frontier import Frontier, Point
from zeus.optimizer.batch_size.answers import ProfileInfo
from zeus.optimizer.batch_size.brain import Expected
from zeus.optimizer.batch_size.events import CONVERGED, GpuModel
from zeus.optimizer.batch_size.policies import Standing
from zeus.optimizer.batch_size.spec import JobSpec
from zeus.optimizer.batch_size.store.history import Span, Total

_NEAR = 1.0  # watts by which a chosen power limit may differ from the one that was measured


@dataclass(frozen=True)
class Baseline:
    """What reaching the target once costs with the default batch size, on some GPUs.

    Attributes:
        gpu: What it runs on.
        cost: Joules of cost.
        runs: How many converged runs of the default this is the mean of; 0 if it is only what the
            policy expects.
        factor: By how much more an epoch costs at the highest power limit than at the one that was
            chosen, which is part of the cost; `None` if that was not measured. Then it is the cost
            at whatever power limits these runs had.
    """

    gpu: GpuModel
    cost: float
    runs: int
    factor: float | None


@dataclass(frozen=True)
class Account:
    """What was spent, against the default.

    Attributes:
        spent: Joules of cost of all trials, those that did not converge among them.
        converged: Recurrences that reached the target, by GPUs.
        baselines: By GPUs, as far as they are known.
        expected: Joules that the default would have cost to reach the target as often; `None` if
            for some GPUs that is not known, or if the target was never reached.
    """

    spent: float
    converged: Mapping[GpuModel, int]
    baselines: Mapping[GpuModel, Baseline]
    expected: float | None

    @property
    def saved(self) -> float | None:
        """Joules; negative as long as exploring has cost more than it has brought."""
        return None if self.expected is None else self.expected - self.spent

    @property
    def share(self) -> float | None:
        """What was saved, as a share of what the default would have cost."""
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
    """Put it together.

    Args:
        spec: The job.
        totals: Of its trials.
        outlooks: What is believed, by GPUs.
        profiles: Of the job.
        max_power: Watts that all GPUs together may draw at most.
    """
    converged: dict[GpuModel, int] = {}
    for total in totals:
        if total.state == CONVERGED:
            gpu = GpuModel(total.gpu, total.gpus)
            converged[gpu] = converged.get(gpu, 0) + total.trials
    of_default = {
        GpuModel(each.gpu, each.gpus): each
        for each in profiles
        if each.batch_size == spec.default_batch_size
    }
    baselines = {}
    for gpu, outlook in outlooks.items():
        # The others run at no one power limit of their choice.
        chooses = spec.policy in ("zeus", "paper")
        profile = of_default.get(gpu) if chooses else None
        factor = _full_power(spec, profile, max_power.get(gpu))
        found = _baseline(spec, gpu, totals, outlook, factor)
        if found is not None:
            baselines[gpu] = found
    expected = None
    if converged and all(gpu in baselines for gpu in converged):
        expected = sum(baselines[gpu].cost * runs for gpu, runs in converged.items())
    return Account(sum(total.cost for total in totals), converged, baselines, expected)


def course(spans: Iterable[Span], account_: Account) -> list[tuple[int, float, float | None]]:
    """How spending went on: a recurrence, joules spent, and what the default would have cost.

    Args:
        spans: Of the whole life of the job.
        account_: Says what the default costs.
    """
    spent, expected = 0.0, 0.0
    known = account_.expected is not None
    points: dict[int, tuple[float, float]] = {}
    for span in spans:
        spent += span.cost
        if known and span.state == CONVERGED:
            expected += account_.baselines[GpuModel(span.gpu, span.gpus)].cost * span.trials
        points[span.first] = spent, expected
    return [(first, cost, other if known else None) for first, (cost, other) in points.items()]


def _baseline(
    spec: JobSpec,
    gpu: GpuModel,
    totals: Iterable[Total],
    outlook: Sequence[Expected],
    factor: float | None,
) -> Baseline | None:
    times = 1.0 if factor is None else factor
    for total in totals:
        same = (total.gpu, total.gpus) == gpu and total.batch_size == spec.default_batch_size
        if same and total.state == CONVERGED:
            return Baseline(gpu, times * total.cost / total.trials, total.trials, factor)
    for each in outlook:
        believed = each.standing in (Standing.EXPECTED, Standing.PROVEN)
        if each.batch_size == spec.default_batch_size and believed and each.cost is not None:
            return Baseline(gpu, times * each.cost, 0, factor)
    return None


def _full_power(
    spec: JobSpec, profile: ProfileInfo | None, max_power: float | None
) -> float | None:
    """How much dearer the same work is at the highest limit that was measured."""
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
