"""What a job has saved, compared with running the default batch size at full power every time.

Energy comes first; time and cost are compared in the same way. Everything that was spent counts:
runs that missed the target, retries and exploration. What there is to compare with is what the
default would have taken for as many recurrences that reached the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage._history import Span
from zeus.optimizer.batch_size.storage._tally import GpuTally, Tally

Currency = Literal["energy", "time", "cost"]
CURRENCIES: tuple[Currency, ...] = ("energy", "time", "cost")

MEASURED, PREDICTED = "measured", "predicted"
_ALWAYS_DEFAULT = "the policy always runs the default"
NONE_REACHED = "no run has reached the target yet"
_NO_ENERGY = "the energy of its runs was not measured"


@dataclass(frozen=True)
class Baseline:
    """What reaching the target once takes with the default batch size, on one GPU configuration.

    Attributes:
        gpu: Model and number of the GPUs.
        energy: Joules; `None` if unknown. `time` in seconds and `cost` in joules.
        runs: Number of converged runs of the default that these average; 0 if they follow from
            the cost that the policy expects.
        factor: Energy at the highest power limit divided by that at the chosen one, from a
            measured profile; the values include it. `None` if there is no profile: they are then
            at whatever power limits these runs had.
    """

    gpu: GpuModel
    energy: float | None
    time: float | None
    cost: float
    runs: int
    factor: float | None


@dataclass(frozen=True)
class Comparison:
    """What was spent, and what the default would have taken.

    Attributes:
        spent: Joules or seconds of the trials that have ended.
        default: The same for the default; `None` if unknown.
    """

    spent: float
    default: float | None

    @property
    def saved(self) -> float | None:
        """What was saved; negative as long as exploration has taken more than it saved."""
        return None if self.default is None else self.default - self.spent

    @property
    def share(self) -> float | None:
        """What was saved, as a fraction of what the default would have taken."""
        return self.saved / self.default if self.saved is not None and self.default else None


@dataclass(frozen=True)
class Account:
    """What a job has spent so far, compared with the default batch size.

    Attributes:
        energy: In joules; runs that converged without a measured energy are left out on both
            sides, others that were not measured count with the maximum power of their GPUs.
        time: In seconds.
        cost: In joules.
        converged: Number of recurrences that reached the target, by GPU configuration.
        left_out: Number of runs that the comparison of energies leaves out.
        baselines: Known baselines, by GPU configuration.
        basis: "measured", "predicted" if any baseline is, or empty if there is no comparison.
        words: What the comparison rests on, or why there is none.
    """

    energy: Comparison
    time: Comparison
    cost: Comparison
    converged: Mapping[GpuModel, int]
    left_out: int
    baselines: Mapping[GpuModel, Baseline]
    basis: str
    words: str


def account(
    spec: JobSpec, tally: Tally, expected_cost: Callable[[GpuModel], float | None]
) -> Account:
    """Compute the account of a job.

    Args:
        spec: The job.
        tally: Sums over its trials.
        expected_cost: Returns the cost in joules that the policy expects of reaching the target
            with the default batch size; `None` if it expects nothing.
    """
    sums = tally.gpus
    converged = {gpu: known.converged for gpu, known in sums.items() if known.converged}
    baselines: dict[GpuModel, Baseline] = {}
    if spec.policy != "default":
        for gpu, known in sums.items():
            found = _baseline(spec, gpu, known, expected_cost)
            if found is not None:
                baselines[gpu] = found

    def default(currency: Currency) -> float | None:
        total = 0.0
        for gpu in converged:
            each = getattr(baselines.get(gpu), currency, None)
            if each is None:
                return None
            number = sums[gpu].measured if currency == "energy" else sums[gpu].converged
            total += number * each
        return total if converged and (total or currency != "energy") else None

    left_out = sum(known.converged - known.measured for known in sums.values())
    energy = sum(known.energy + known.bound for known in sums.values())
    comparisons = (
        Comparison(energy, default("energy")),
        Comparison(sum(known.time for known in sums.values()), default("time")),
        Comparison(sum(known.cost for known in sums.values()), default("cost")),
    )
    basis = ""
    if comparisons[2].default is not None:
        measured = all(baselines[gpu].runs for gpu in converged)
        basis = MEASURED if measured else PREDICTED
    words = _words(spec, converged, baselines, left_out, energy=comparisons[0].default is not None)
    return Account(*comparisons, converged, left_out, baselines, basis, words)


def _baseline(
    spec: JobSpec,
    gpu: GpuModel,
    known: GpuTally,
    expected_cost: Callable[[GpuModel], float | None],
) -> Baseline | None:
    power = known.max_power
    energy: float | None
    time: float | None
    if known.default_runs:
        measured = known.default_measured
        energy = known.default_energy / measured if measured else None
        time, cost = (
            known.default_time / known.default_runs,
            known.default_cost / known.default_runs,
        )
    else:
        expected = expected_cost(gpu)
        if expected is None:
            return None
        energy, time, cost = *_split(spec, known, expected), expected
    ratios = (1.0, 1.0, 1.0)
    if known.profile is not None:
        energy_here, time_here, energy_full, time_full = known.profile
        here = spec.cost(energy_here, time_here, power)
        full = spec.cost(energy_full, time_full, power)
        ratios = energy_full / energy_here, time_full / time_here, full / here if here else 1.0
    return Baseline(
        gpu,
        None if energy is None else energy * ratios[0],
        None if time is None else time * ratios[1],
        cost * ratios[2],
        known.default_runs,
        None if known.profile is None else ratios[0],
    )


def _split(spec: JobSpec, known: GpuTally, cost: float) -> tuple[float | None, float | None]:
    """Return the energy and time that a cost stands for, by an average power.

    It is that of the default, in its profile or in runs that missed the target; if it never ran on
    these GPUs, that of all measured trials on them.
    """
    if known.profile is not None:
        watts = known.profile[0] / known.profile[1]
    elif known.load_time > 0 and known.load_energy > 0:
        watts = known.load_energy / known.load_time
    elif known.measured_time > 0 and known.energy > 0:
        watts = known.energy / known.measured_time
    else:
        return None, None
    per_second = spec.cost(watts, 1.0, known.max_power)
    time = cost / per_second if per_second > 0 else None
    return (None, None) if time is None else (watts * time, time)


# --- in words -------------------------------------------------------------------------------------


def gpu_name(gpu: GpuModel) -> str:
    """Return number and model of GPUs, such as "4 × Tesla V100"."""
    return f"{gpu.number} × {gpu.name}" if gpu.number > 1 else gpu.name


def _words(
    spec: JobSpec,
    converged: Mapping[GpuModel, int],
    baselines: Mapping[GpuModel, Baseline],
    left_out: int,
    *,
    energy: bool,
) -> str:
    if spec.policy == "default":
        return _ALWAYS_DEFAULT
    if not converged:
        return NONE_REACHED
    missing = [gpu_name(gpu) for gpu in converged if gpu not in baselines]
    if missing:
        return (
            f"no run with the default batch size, {spec.default_batch_size}, has converged on "
            f"{' and '.join(missing)}, and the policy expects nothing of it"
        )
    parts = []
    for gpu in converged:
        where = f" on {gpu_name(gpu)}" if len(converged) > 1 else ""
        parts.append(_against(baselines[gpu]) + where)
    words = f"against the default batch size, {spec.default_batch_size}: {'; '.join(parts)}"
    if not energy:
        unsplit = all(baselines[gpu].energy is not None for gpu in converged)
        why = _NO_ENERGY if unsplit else "the energy of the default was not measured"
        return f"{words}; {why}"
    if left_out:
        runs = "1 run" if left_out == 1 else f"{left_out} runs"
        words += f"; {runs} without measured energy left out"
    return words


def _against(base: Baseline) -> str:
    power = "at full power" if base.factor is not None else "at the power limits chosen there"
    if not base.runs:
        return f"predicted {power}"
    return f"{'1 run' if base.runs == 1 else f'{base.runs} runs'} {power}"


# --- over time ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoursePoint:
    """Cumulative values after a segment of recurrences.

    Attributes:
        first: First recurrence of the segment.
        energy: In joules; `time` in seconds and `cost` in joules likewise.
    """

    first: int
    energy: Comparison
    time: Comparison
    cost: Comparison


def course(spans: Iterable[Span], account_: Account) -> list[CoursePoint]:
    """Return what was spent and what the default would have taken, as it grew.

    Args:
        spans: Spans of the job's whole history, in their order; running trials are left out.
        account_: Account of the job, for what the default takes.
    """
    known = {each: getattr(account_, each).default is not None for each in CURRENCIES}
    spent = dict.fromkeys(CURRENCIES, 0.0)
    default = dict.fromkeys(CURRENCIES, 0.0)
    points: dict[int, CoursePoint] = {}
    for span in spans:
        if span.state == Outcome.RUNNING:
            continue
        converged = span.state == Outcome.CONVERGED
        spent["energy"] += span.energy + (0.0 if converged else span.bound)
        spent["time"] += span.time
        spent["cost"] += span.cost
        base = account_.baselines.get(GpuModel(span.gpu, span.gpus))
        for each in CURRENCIES if converged and base is not None else ():
            runs = span.measured if each == "energy" else span.trials
            default[each] += runs * (getattr(base, each) or 0.0)
        compared = (
            Comparison(spent[each], default[each] if known[each] else None) for each in CURRENCIES
        )
        points[span.first] = CoursePoint(span.first, *compared)
    return list(points.values())


def break_even(points: Iterable[CoursePoint], currency: Currency) -> int | None:
    """Return the recurrence from which on the job has taken less than the default would have.

    It is the first of a segment, if points stand for several recurrences. `None` if the job has
    taken more so far, or nobody knows.

    Args:
        points: From `course`.
        currency: What is compared.
    """
    found = None
    for point in points:
        compared: Comparison = getattr(point, currency)
        if compared.saved is None or compared.saved <= 0:
            found = None
        elif found is None:
            found = point.first
    return found


def columns(account_: Account) -> Iterator[tuple[str, float | str | None]]:
    """Yield the columns of `accounts` that follow from an account."""
    for each in CURRENCIES:
        compared: Comparison = getattr(account_, each)
        yield f"saved_{each}", compared.saved
        yield f"default_{each}", compared.default
    yield "basis", account_.basis
    yield "comparison", account_.words
