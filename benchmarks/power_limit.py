"""Power limit optimizers side by side: which limit they choose, and what finding it costs.

Both train on the same simulated driver, whose power and speed answer to the power limit by the
physics of the simulated node. So the true cost of every limit is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness import Bench, Variant, say
from rows import Answer, Row, medians_row, row
from tools import OURS

TASK = "power_limit"
WORKER = "power_limit_worker.py"
ETA = 0.5
GRID = 25.0  # watts between two power limits, from the highest down
BUDGET = 200.0  # seconds of training in which an optimizer has to decide


@dataclass(frozen=True)
class Scenario:
    """A job on a GPU.

    Attributes:
        part: The GPU, as `ZEUS_SIMULATE` calls it.
        step: Seconds of a step at the highest power limit.
        activity: Power of its kernels as a share of the GPU's full dynamic power.
        compute_bound: Share of its time that grows with 1 / clock.
    """

    part: str
    step: float
    activity: float
    compute_bound: float

    @property
    def name(self) -> str:
        """For the report."""
        return f"{self.part.upper()}, {self.step * 1e3:g} ms"

    @property
    def running(self) -> dict[str, float]:
        """What `parts.load` takes."""
        return {"activity": self.activity, "compute_bound": self.compute_bound}


SCENARIOS = (
    Scenario("a100", 0.005, 1.0, 0.5),
    Scenario("a100", 0.05, 1.0, 0.5),
    Scenario("v100", 0.02, 1.2, 0.8),
    Scenario("rtx6000", 0.01, 1.0, 0.5),
    Scenario("a100", 0.001, 1.0, 0.5),
)


class Truth:
    """What a step of a scenario really takes under each power limit."""

    def __init__(self, scenario: Scenario) -> None:
        from simulated_drivers import parts
        from zeus.device._simulated_models import MODELS

        self.model = MODELS[scenario.part]
        self._load = parts.load(self.model, **scenario.running)
        fastest = self._load(self.model.maximum_limit, self.model.highest_clock)
        self.seconds_at_speed_1 = scenario.step * fastest.speed

    def step(self, limit: float) -> tuple[float, float]:
        """Seconds and joules."""
        watts, speed = self._load(limit, self.model.highest_clock)
        seconds = self.seconds_at_speed_1 / speed
        return seconds, watts * seconds

    def cost(self, limit: float) -> float:
        """In joules, per step."""
        seconds, joules = self.step(limit)
        return ETA * joules + (1 - ETA) * self.model.maximum_limit * seconds

    def limits(self) -> list[float]:
        """The grid that both tools walk by default."""
        highest, lowest = self.model.maximum_limit, self.model.minimum_limit
        return [highest - GRID * n for n in range(int((highest - lowest) // GRID) + 1)]

    def optimum(self) -> float:
        """The limit of least cost."""
        return min(self.limits(), key=self.cost)


def bench_power_limit(bench: Bench) -> Iterator[Row]:
    """Which limit a power limit optimizer chooses, and what finding it costs."""
    variants = [v for v in bench.variants() if v.label in (OURS, "zeus")]
    reached: dict[str, list[bool]] = {variant.label: [] for variant in variants}
    for scenario in SCENARIOS[: bench.effort.power_limit_scenarios]:
        say(f"  {scenario.name}")
        truth = Truth(scenario)

        def ask(
            variant: Variant, _: int, scenario: Scenario = scenario, truth: Truth = truth
        ) -> Answer:
            answer = bench.ask(
                TASK,
                variant,
                worker=WORKER,
                part={"key": scenario.part, "running": scenario.running},
                step_seconds=truth.seconds_at_speed_1,
                budget=BUDGET,
                after=bench.effort.power_limit_after,
                lengths=bench.effort.power_limit_lengths,
            )
            return judged(answer, truth, scenario)

        answers = bench.taking_turns(bench.effort.power_limit_turns, variants, ask)
        for label, given in answers.items():
            reached[label] += [answer.get("excess_cost", 1.0) <= 0.002 for answer in given]
        yield from scenario_rows(scenario, truth, answers)
    yield row(
        TASK,
        "runs that chose a limit within 0.2 % of the least cost",
        f"of {max(map(len, reached.values()), default=0)}",
        "runs",
        {label: sum(each) for label, each in reached.items()},
    )


def judged(answer: Answer, truth: Truth, scenario: Scenario) -> Answer:
    """What a run says about its tool; every figure is absent if the run did not get that far."""
    if "error" in answer:
        return answer
    found: Answer = {
        "points": answer["points"],
        "latest_ms": answer["latest"] * 1e3,
        "undisturbed": answer["undisturbed"],
    }
    for problem in ("crashed", "undecided"):
        if problem in answer:
            found["error"] = f"{problem}: {answer[problem]}"
    errors = {
        limit: _energy_error(truth, limit, joules) for limit, _, joules, *_ in answer["points"]
    }
    if errors:
        found["energy_error"] = max(errors.values())
        found["energy_errors"] = {f"{limit:g}": error for limit, error in errors.items()}
        found["time_error"] = max(
            abs(seconds / truth.step(limit)[0] - 1) for limit, seconds, *_ in answer["points"]
        )
        found["pacing"] = _pacing(answer["history"], set(errors), truth)
    if "chosen" in answer:
        least = truth.cost(truth.optimum())
        found["chosen"] = answer["chosen"]
        found["excess_cost"] = truth.cost(answer["chosen"]) / least - 1
        found["steps"] = answer["steps"]
        found["seconds"] = answer["seconds"]
        found["stretch"] = answer["seconds"] / (answer["steps"] * scenario.step)
        found["profiling_us"] = answer["callbacks_profiling"]["mean"]
    if "callbacks_after" in answer:
        after, empty = answer["callbacks_after"], answer["callbacks_empty"]
        found["after_us"] = after["median"] - empty["median"]
        found["after_raw_us"] = after["median"]
        found["after_mean_us"] = after["mean"]
        found["limit_after"] = answer["limit_after"]
    return found


def _energy_error(truth: Truth, limit: float, joules: float) -> float:
    return abs(joules / truth.step(limit)[1] - 1)


def _pacing(history: list[list[float]], limits: set[float], truth: Truth) -> float:
    """By how much the simulated training itself was off: energy per step while a limit was on."""
    sums: dict[float, list[float]] = {}
    for limit, steps, _, joules in history:
        if limit in limits:
            total = sums.setdefault(limit, [0.0, 0.0])
            total[0] += steps
            total[1] += joules
    return max(
        (_energy_error(truth, limit, joules / steps) for limit, (steps, joules) in sums.items()),
        default=0.0,
    )


def scenario_rows(
    scenario: Scenario, truth: Truth, answers: dict[str, list[Answer]]
) -> Iterator[Row]:
    """One scenario's part of the report."""
    entries: tuple[tuple[str, str, str, float | None], ...] = (
        ("cost of the chosen limit above the least", "1", "excess_cost", 0.002),
        ("time of the steps until the decision / at the highest limit", "1", "stretch", 1.15),
        ("steps until the decision", "steps", "steps", None),
        ("seconds until the decision", "s", "seconds", None),
        ("error of the energy per step, worst profiled limit", "1", "energy_error", 0.02),
        ("error of the time per step, worst profiled limit", "1", "time_error", None),
        ("deviation of the training itself, worst profiled limit", "1", "pacing", None),
        ("latest end of a step after its time", "ms", "latest_ms", None),
        ("callbacks of a step until the decision, mean", "µs", "profiling_us", None),
        ("callbacks of a step after the decision, above empty ones", "µs", "after_us", 2.0),
        ("callbacks of a step after the decision, median", "µs", "after_raw_us", None),
        ("callbacks of a step after the decision, mean", "µs", "after_mean_us", None),
    )
    for number, (measure, unit, key, target) in enumerate(entries):
        found = medians_row(TASK, measure, scenario.name, unit, answers, key=key, target=target)
        if number == 0:
            found["optimum"] = truth.optimum()
            found |= _details(answers)
        yield found


def _details(answers: dict[str, list[Answer]]) -> dict[str, Any]:
    return {
        key: {label: [answer.get(key) for answer in given] for label, given in answers.items()}
        for key in ("chosen", "limit_after", "energy_errors", "points", "undisturbed")
    }
