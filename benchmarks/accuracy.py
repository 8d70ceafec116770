"""How far the energies of windows are from the truth, on the sensors that GPUs really have."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness import Bench, Variant, say
from rows import Answer, Row, errors_of, percentile, row
from tools import OURS
from zeus.device._sensors import Sensor, Sensors

TASK, WORKER = "accuracy", "accuracy_worker.py"
COVERED, COVERAGE = "coverage of the stated uncertainty", 0.92  # at least; 0.95 is stated
AMD = "MI300X"
UNKNOWN = {"key": "a100", "name": "NVIDIA Graphics Device"}

PARTS: dict[str, dict[str, Any]] = {
    "A100": {"key": "a100"},
    "V100": {"key": "v100"},
    "1 s mean": UNKNOWN | {"sensors": Sensors(Sensor(period=0.1), Sensor(period=0.1, window=1.0))},
    "live power": UNKNOWN | {"sensors": Sensors(Sensor(period=0.1), Sensor())},
    AMD: {"key": "mi300x"},
}
"""Sensors by name, as `Bench.ask` takes them."""


@dataclass(frozen=True)
class Case:
    """Windows of about one length in one scenario of the worker, and what is aimed at.

    Attributes:
        sensors: A name of `PARTS`.
        scenario: What is drawn, and in which windows.
        length: Seconds, ±20 %.
        p50: Half of the windows are to be off by at most this share of their energy.
        p95: Likewise, 19 of 20.
        mean: Likewise, the mean energy of a name at the end of a run.
        gpus: Each with a load and phases of its own.
        spin: Whether the program computes in Python meanwhile, instead of sleeping.
        seconds: A run lasts at most this long.
    """

    sensors: str
    scenario: str
    length: float
    p50: float | None = None
    p95: float | None = None
    mean: float | None = None
    gpus: int = 1
    spin: bool = False
    seconds: float | None = None

    def __str__(self) -> str:
        length = f"{self.length:g} s" if self.length >= 1 else f"{self.length * 1e3:g} ms"
        return f"{self.sensors}, {length}, {self.scenario}{', spin' * self.spin}"


CASES = (
    Case("A100", "inside", 0.05, 0.005, 0.04),
    Case("A100", "alternating", 0.05, 0.01, 0.06),
    Case("A100", "steps", 0.05, 0.03, 0.15),
    Case("A100", "nested", 0.05, 0.015, 0.08),
    Case("A100", "inside", 0.5, 0.001, 0.005),
    Case("A100", "periodic", 1.0, 0.003, 0.025, gpus=4),
    Case("A100", "periodic", 5.0, 0.001, 0.006, gpus=4),
    Case("A100", "periodic", 14.0, 0.0005, 0.0025, gpus=4),
    Case("V100", "inside", 0.05, 0.005, 0.015),
    Case("V100", "steps", 0.05, 0.015, 0.04),
    Case("1 s mean", "steps", 0.05, 0.03, 0.15),
    Case("live power", "inside", 0.05, 0.0004, 0.004),
    Case("live power", "alternating", 0.05, 0.0004, 0.004),
    Case("live power", "inside", 0.05, spin=True),
    Case(AMD, "inside", 0.05),
    Case(AMD, "steps", 0.05),
    *(
        Case("A100", "inside", length, mean=0.02, seconds=20.0)
        for length in (0.005, 0.01, 0.02, 0.04)
    ),
)


def bench_accuracy(bench: Bench, cases: Sequence[Case] = CASES) -> Iterator[Row]:
    """How far the energies of windows are from the truth."""
    everyone = bench.variants(zeus={"zeus, approximating": {"approximate": True}})
    covered: dict[str, list[float]] = {variant.label: [] for variant in everyone}
    for case in cases:
        say(f"  {case}")
        answers = _asked(bench, case, [each for each in everyone if _able(each, case)])
        readings = {
            label: [reading for answer in given for reading in answer.get("windows", ())]
            for label, given in answers.items()
        }
        more: dict[str, Any] = {"windows": {label: len(each) for label, each in readings.items()}}
        more |= errors_of(answers)
        yield from _rows(case, readings, more)
        if case.mean is not None:
            yield _mean_row(case, answers, more)
        for label, each in readings.items():
            share = _share_covered(each)
            covered[label] += [] if share is None else [share]
    # Each case counts once: there are a hundred times as many windows of 5 ms as of 5 s.
    over_all = {label: statistics.fmean(each) if each else None for label, each in covered.items()}
    yield row(TASK, COVERED, "mean over all rows", "1", over_all, target=COVERAGE, at_least=True)


def _able(variant: Variant, case: Case) -> bool:
    """Peers are not installed for AMD GPUs, and CodeCarbon has one task at a time."""
    if variant.tool.name == OURS:
        return True
    alone = variant.tool.name == "codecarbon"
    return case.sensors != AMD and not (alone and case.scenario == "nested")


def _asked(bench: Bench, case: Case, variants: Sequence[Variant]) -> dict[str, list[Answer]]:
    effort = bench.effort

    def ask(variant: Variant, turn: int) -> Answer:
        learns = variant.tool.name == OURS
        if turn and not learns:
            return {}
        # Who does not learn needs fewer windows; CodeCarbon does not tell GPUs apart.
        seconds = effort.accuracy_seconds if learns else effort.accuracy_peer_seconds
        windows = effort.accuracy_windows if learns else effort.accuracy_windows // 2
        return bench.ask(
            TASK,
            variant,
            1 if variant.tool.name == "codecarbon" else case.gpus,
            worker=WORKER,
            part=PARTS[case.sensors],
            seed=turn,
            chance=turn,
            tool_options=variant.options,
            scenario=case.scenario,
            length=case.length,
            spin=case.spin,
            seconds=max(min(seconds, case.seconds or seconds), windows * case.length),
        )

    return bench.taking_turns(effort.accuracy_turns, variants, ask)


def _rows(case: Case, readings: dict[str, list[Any]], more: dict[str, Any]) -> Iterator[Row]:
    def found(
        measure: str,
        number: Callable[[list[Any]], float | None],
        target: float | None = None,
        at_least: bool = False,
    ) -> Row:
        values = {label: number(each) if each else None for label, each in readings.items()}
        unit = "windows" if number is _zeros else "1"
        return row(TASK, measure, str(case), unit, values, target=target, at_least=at_least, **more)

    yield found("error, p50", lambda each: percentile((e for e, *_ in each), 0.5), case.p50)
    yield found("error, p95", lambda each: percentile((e for e, *_ in each), 0.95), case.p95)
    yield found(COVERED, _share_covered, COVERAGE, at_least=True)
    yield found("stated uncertainty, median", _stated)
    yield found("windows read as 0 J", _zeros, 0)


def _share_covered(readings: list[Any]) -> float | None:
    """`None` of a tool that states no uncertainty."""
    if all(stated is None for _, stated, _, _ in readings):
        return None
    return statistics.fmean(covered for _, _, covered, _ in readings)


def _stated(readings: list[Any]) -> float | None:
    stated = [share for _, share, _, _ in readings if share is not None]
    return statistics.median(stated) if stated else None


def _zeros(readings: list[Any]) -> float:
    return sum(zero for *_, zero in readings)


def _mean_row(case: Case, answers: dict[str, list[Answer]], more: dict[str, Any]) -> Row:
    means = {
        label: [answer["mean"] for answer in given if answer.get("mean")]
        for label, given in answers.items()
    }
    values = {
        label: max(abs(mean / truth - 1) for mean, truth, _ in each) if each else None
        for label, each in means.items()
    }
    measure = "error of the mean energy of a name, worst run"
    return row(TASK, measure, str(case), "1", values, target=case.mean, means=means, **more)
