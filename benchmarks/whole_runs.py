"""Whole training runs of recorded jobs under our power limit optimizer, in virtual time.

Every recorded workload, at its default batch size and for as many epochs as it typically takes to
its target, against the same run at the best power limit from the beginning to the end. Once as
recorded, and once as the workload that `zeus.testing` has fitted to the recording.
"""

from __future__ import annotations

import csv
import math
import os
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

from harness import Bench, say
from rows import Row, row
from tools import OURS, ROOT

TASK = "whole_runs"
ETA = 0.5
VARIATION = 0.02  # standard deviation of a step's length, as a share of it
SINGLY = 10.0  # seconds of each epoch that are played step by step; the rest in one stretch
GRID = 25.0  # watts between two limits that the optimizer tries by default
GPUS = ("v100", "a40")


@dataclass(frozen=True)
class Recipe:
    """How a workload is trained by default (Table 1 of the paper; sizes of the data sets).

    Attributes:
        samples: In an epoch.
        batch_size: Where the GPU was recorded with it; else the largest recorded.
        target: Metric to reach.
        falls: Whether the metric gets better by falling.
        optimizer: The rule it trains by.
    """

    samples: int
    batch_size: int
    target: float
    optimizer: str
    falls: bool = False


RECIPES = {
    # The 960 hours of training speech.
    "librispeech": Recipe(281_241, 192, 40.0, "adamw", falls=True),
    # SQuAD 1.1 as BERT's own script cuts it: 384 tokens, stride 128.
    "squad": Recipe(88_524, 32, 84.0, "adamw"),
    # Nine tenths of 1.6 million tweets.
    "sentiment140": Recipe(1_440_000, 128, 0.84, "adamw"),
    "imagenet": Recipe(1_281_167, 256, 0.65, "adadelta"),
    "cifar100": Recipe(50_000, 1024, 0.60, "adadelta"),
    # 1,000,209 ratings without each of 6,040 users' last one, with four negatives each.
    "movielens-1m": Recipe(5 * (1_000_209 - 6_040), 1024, 0.41, "adam"),
}

# What profiling adds to the time and the energy of a whole run, by the paper's section 6.5.
PAPER = {"librispeech": (0.0003, 0.0001), "cifar100": (0.006, None)}


@dataclass(frozen=True)
class Use:
    """Time and energy of some work."""

    seconds: float
    joules: float

    def cost(self, max_power: float) -> float:
        """The paper's equation 2, in joules."""
        return ETA * self.joules + (1 - ETA) * max_power * self.seconds

    def scaled(self, factor: float) -> Use:
        """Of so many times the work."""
        return Use(self.seconds * factor, self.joules * factor)


@dataclass(frozen=True)
class Job:
    """A recorded workload on a GPU.

    Attributes:
        gpu: Short name.
        dataset: What it trains on.
        batch_size: Of one step.
        epochs: To its target, typically.
        trace: One epoch as it was recorded, by power limit.
    """

    gpu: str
    dataset: str
    batch_size: int
    epochs: int
    trace: dict[float, Use]

    @property
    def name(self) -> str:
        """For the report."""
        return f"{self.gpu.upper()}, {self.dataset}, {self.batch_size}"

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return math.ceil(RECIPES[self.dataset].samples / self.batch_size)

    @property
    def max_power(self) -> float:
        """The highest power limit, W."""
        return max(self.trace)

    def traced(self, limit: float) -> Use:
        """An epoch as it was recorded; in proportion between two limits that were."""
        below = max((known for known in self.trace if known <= limit), default=min(self.trace))
        above = min((known for known in self.trace if known >= limit), default=max(self.trace))
        share = 0.0 if above == below else (limit - below) / (above - below)
        low, high = self.trace[below], self.trace[above]
        return Use(
            low.seconds + share * (high.seconds - low.seconds),
            low.joules + share * (high.joules - low.joules),
        )


# --- what was recorded --------------------------------------------------------------------------


def traces() -> Path:
    """Where the recorded data are."""
    return Path(os.environ.get("ZEUS_TRACES", ROOT.parent / "shared" / "traces")) / "nsdi23"


def recorded(folder: Path) -> list[Job]:
    """All workloads of all GPUs, at their default batch sizes."""
    epochs = {dataset: typical_epochs(folder, dataset) for dataset in RECIPES}
    jobs = []
    for gpu in GPUS:
        sweeps: dict[tuple[str, int], dict[float, Use]] = {}
        for entry in _rows(folder / f"summary_power_{gpu}.csv"):
            if entry["optimizer"] != RECIPES[entry["dataset"]].optimizer:
                continue
            seconds, watts = float(entry["time_per_epoch"]), float(entry["average_power"])
            sweep = sweeps.setdefault((entry["dataset"], int(entry["batch_size"])), {})
            sweep[float(entry["power_limit"])] = Use(seconds, seconds * watts)
        for dataset, recipe in RECIPES.items():
            size = min(recipe.batch_size, max(b for name, b in sweeps if name == dataset))
            jobs.append(Job(gpu, dataset, size, epochs[dataset], sweeps[dataset, size]))
    return jobs


def typical_epochs(folder: Path, dataset: str) -> int:
    """Median over the recorded runs that reach the target at the default batch size."""
    recipe = RECIPES[dataset]
    reached: dict[str, float] = {}
    for entry in _rows(folder / "summary_train.csv"):
        if entry["dataset"] != dataset or entry["optimizer"] != recipe.optimizer:
            continue
        metric, epoch = float(entry["target_metric"]), float(entry["target_epoch"])
        good = metric <= recipe.target if recipe.falls else metric >= recipe.target
        if int(entry["batch_size"]) == recipe.batch_size and good and not math.isnan(epoch):
            earlier = reached.get(entry["run"], math.inf)
            reached[entry["run"]] = min(earlier, epoch)
    return round(statistics.median(reached.values()))


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="") as opened:
        yield from csv.DictReader(opened)


# --- one run ------------------------------------------------------------------------------------


class Recorded:
    """Steps that take and draw what was recorded at the power limit in force."""

    source = "trace"

    def __init__(self, node, job: Job) -> None:
        from zeus.testing._workload import simulated_driver

        (gpu,) = node.gpus
        self._job = job
        self._driver = simulated_driver(gpu)
        self._driver.model = recorded_model(job)
        self._driver.set_load(1.0)

    def at(self, limit: float) -> Use:
        """A step at a power limit."""
        return self._job.traced(limit).scaled(1 / self._job.steps)

    def known(self) -> Sequence[float]:
        """Limits to choose the best from."""
        return tuple(self._job.trace)

    def play(self, steps: float) -> None:
        """So many steps."""
        self._driver.clock.sleep(steps * self.at(self._driver.power_limit()).seconds)


def recorded_model(job: Job):
    """A GPU whose power under full load is the recorded one, instead of what physics says."""
    from zeus.device._simulated_models import MODELS, GpuModel

    class RecordedModel(GpuModel):
        def relative_clock(self, activity: float, power_limit: float, highest_clock: float):  # noqa: ARG002
            return power_limit / self.maximum_limit  # stands for the limit

        def busy_power(self, x: float, activity: float):  # noqa: ARG002
            use = job.traced(x * self.maximum_limit)
            return use.joules / use.seconds

    return RecordedModel(**asdict(MODELS[job.gpu]))


class Fitted:
    """Steps of the workload that was fitted to the recording, by the physics."""

    source = "fit"

    def __init__(self, node, job: Job) -> None:
        from zeus.testing import SimulatedNode, recorded_workload

        rule = RECIPES[job.dataset].optimizer
        epoch = recorded_workload(job.gpu, job.dataset, job.batch_size, rule)
        self._workload = epoch.scaled(1 / job.steps)
        self._job = job
        (self._gpu,) = node.gpus
        (self._other,) = SimulatedNode(job.gpu).gpus  # to ask what would be, at any limit

    def at(self, limit: float) -> Use:
        """A step at a power limit."""
        self._other.driver.set_power_limit(limit)
        seconds = self._workload.step_time(self._other)
        return Use(seconds, seconds * self._workload.average_power(self._other))

    def known(self) -> Sequence[float]:
        """Limits to choose the best from: those that the optimizer walks by default."""
        highest, lowest = self._job.max_power, min(self._job.trace)
        return [highest - GRID * number for number in range(int((highest - lowest) // GRID) + 1)]

    def play(self, steps: float) -> None:
        """So many steps; fewer than two are one of that length."""
        if steps < 2:
            self._workload.scaled(steps).run(self._gpu)
        else:
            self._workload.run(self._gpu, round(steps))


@dataclass(frozen=True)
class Run:
    """What came of a run.

    Attributes:
        chosen: The power limit, W.
        use: Of the whole run.
        work: In steps of average length.
        profiling_steps: Spent until the decision.
    """

    chosen: float
    use: Use
    work: float
    profiling_steps: int


def run(job: Job, kind: type[Recorded] | type[Fitted], seed: int) -> tuple[Run, Recorded | Fitted]:
    """Train to the target with the optimizer, in virtual time."""
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, ZeusCost
    from zeus.testing import SimulatedNode

    chance = random.Random(seed)
    done, deciding = 0.0, 0
    with SimulatedNode(job.gpu) as node, ZeusMonitor(gpu_indices=[0], cpu_indices=[]) as monitor:
        work = kind(node, job)
        singly = math.ceil(SINGLY / work.at(job.max_power).seconds)
        begun = node.clock.now(), node.exact_energy()
        with GlobalPowerLimitOptimizer(monitor, ZeusCost(ETA)) as optimizer:
            for _ in range(job.epochs):
                optimizer.on_epoch_begin()
                step = 0
                while step < job.steps and (step < singly or not optimizer.decided):
                    deciding += not optimizer.decided
                    length = max(0.5, chance.gauss(1.0, VARIATION))
                    optimizer.on_step_begin()
                    work.play(length)
                    optimizer.on_step_end()
                    step += 1
                    done += length
                if step < job.steps:
                    # Not told as steps, which are many; they are like the first ones.
                    work.play(job.steps - step)
                    done += job.steps - step
                optimizer.on_epoch_end()
            if not optimizer.decided:
                raise RuntimeError(optimizer.trouble or "no decision within the whole run")
            ended = node.clock.now(), node.exact_energy()
            assert optimizer.selection is not None
            chosen = float(optimizer.selection.point.knob)
    return Run(chosen, Use(ended[0] - begun[0], ended[1] - begun[1]), done, deciding), work


# --- the report ---------------------------------------------------------------------------------


def bench_whole_runs(bench: Bench) -> Iterator[Row]:
    """Whole runs of recorded jobs against the best power limit throughout (ours only)."""
    folder = traces()
    if not folder.is_dir():
        say(f"  left out: no recorded traces at {folder}; set ZEUS_TRACES to where they are")
        return
    with state_of_our_own():
        for job in recorded(folder)[: bench.effort.whole_runs]:
            say(f"  {job.name}")
            for kind in (Recorded, Fitted):
                outcomes = [run(job, kind, seed) for seed in range(bench.effort.whole_run_seeds)]
                yield from Verdict(job, outcomes[0][1], [found for found, _ in outcomes]).rows()


@contextmanager
def state_of_our_own() -> Iterator[None]:
    """Neither see nor leave anything of the user's."""
    variable = "ZEUS_STATE_DIR"
    before = os.environ.get(variable)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[variable] = folder
        try:
            yield
        finally:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before


class Verdict:
    """Runs of one job in one of its two forms, beside what they could have been."""

    def __init__(self, job: Job, work: Recorded | Fitted, runs: Sequence[Run]) -> None:
        self.job, self.work, self.runs = job, work, runs
        self.best = min(work.known(), key=lambda limit: self.price(work.at(limit)))

    def price(self, use: Use) -> float:
        """What is to be minimized."""
        return use.cost(self.job.max_power)

    def rows(self) -> Iterator[Row]:
        """The job's part of the report."""
        yield from self._choice()
        yield self._row("steps until the decision", lambda run: run.profiling_steps, unit="steps")
        seconds, joules = attrgetter("seconds"), attrgetter("joules")
        time_target, energy_target = PAPER.get(self.job.dataset, (None, None))
        for what, of, target in (
            ("time", seconds, time_target),
            ("energy", joules, energy_target),
        ):
            yield self._row(
                f"{what} of the whole run above that at the chosen limit",
                lambda run, of=of: of(run.use) / of(self._throughout(run.chosen, run)) - 1,
                target=target,
            )
        for what, part in (("time", seconds), ("energy", joules), ("cost", self.price)):
            yield self._row(
                f"{what} of the whole run above that at the best limit",
                lambda run, of=part: of(run.use) / of(self._throughout(self.best, run)) - 1,
            )

    def _choice(self) -> Iterator[Row]:
        at = self.work.at
        ideal, highest = at(self.best), at(self.job.max_power)
        yield self._row(
            "cost of the chosen limit above the least",
            lambda run: self.price(at(run.chosen)) / self.price(ideal) - 1,
            target=0.01,
            chosen=[run.chosen for run in self.runs],
            best=self.best,
            epochs=self.job.epochs,
            steps_per_epoch=self.job.steps,
            step_seconds=highest.seconds,
        )
        if isinstance(self.work, Fitted):
            least = min(self.price(use) for use in self.job.trace.values())
            yield self._row(
                "cost of the chosen limit above the least, priced by the trace",
                lambda run: self.price(self.job.traced(run.chosen)) / least - 1,
            )
        yield self._row(
            "energy saved at the chosen limit",
            lambda run: 1 - at(run.chosen).joules / highest.joules,
            at_the_best_limit=1 - ideal.joules / highest.joules,
        )
        yield self._row(
            "slowdown at the chosen limit",
            lambda run: at(run.chosen).seconds / highest.seconds - 1,
            at_the_best_limit=ideal.seconds / highest.seconds - 1,
        )

    def _throughout(self, limit: float, found: Run) -> Use:
        """The work of a run, at one limit from the beginning to the end."""
        return self.work.at(limit).scaled(found.work)

    def _row(self, measure, value, *, unit="1", target=None, **more) -> Row:
        turns = [value(found) for found in self.runs]
        case = f"{self.job.name}, by the {self.work.source}"
        values = {OURS: statistics.fmean(turns)}
        return row(TASK, measure, case, unit, values, target=target, turns=turns, **more)
