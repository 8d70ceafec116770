"""What the monitor costs, and how far off it is."""

from __future__ import annotations

import math
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from harness import TICK, Bench, Variant, say
from rows import Answer, Row, medians_row, percentile, row
from tools import OURS, ROOT, Tool, pip, why

NOT_THE_TOOL = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")


def bench_import(bench: Bench) -> Iterator[Row]:
    """What it costs to have the monitor."""
    variants = bench.variants()
    warm = bench.taking_turns(bench.effort.imports, variants, lambda v, _: bench.ask("import", v))

    def without_bytecode(variant: Variant, _: int) -> Answer:
        with tempfile.TemporaryDirectory() as empty:
            return bench.ask("import", variant, environment={"PYTHONPYCACHEPREFIX": empty})

    cold = bench.taking_turns(bench.effort.cold_imports, variants, without_bytecode)
    task = "import"
    yield medians_row(task, "import", "", "s", warm, key="import_seconds", target=0.10)
    yield medians_row(task, "import", "without bytecode", "s", cold, key="import_seconds")
    yield medians_row(task, "import to end of first window", "", "s", warm, key="ready_seconds")
    yield medians_row(task, "memory", "most", "MB", warm, key="max_mb", target=30.0)
    yield medians_row(task, "memory", "growth by import", "MB", warm, key="growth_mb")
    yield medians_row(task, "memory", "most, with a monitor", "MB", warm, key="ready_max_mb")


def bench_overhead(bench: Bench) -> Iterator[Row]:
    """What a window costs the program that it measures."""
    effort = bench.effort
    targets = {1: 12.0, 8: 20.0}
    at_once: dict[int, float | None] = {}
    for gpus, latency in product((1, 8), (0.0, 0.001)):
        case = f"{gpus} GPU{'s' * (gpus > 1)}, driver calls take {latency * 1e3:g} ms"
        say(f"  {case}")

        def ask(variant: Variant, _: int, gpus: int = gpus, latency: float = latency) -> Answer:
            cheap = variant.label == OURS
            return bench.ask(
                "overhead",
                variant,
                gpus,
                driver_latency=latency,
                warm_up_pairs=min(2_000, effort.pairs) if cheap else 50,
                pairs=effort.pairs,
                budget=math.inf if cheap else effort.pair_budget,
                asked=effort.asked if cheap else min(effort.asked, 50),
            )

        answers = bench.taking_turns(effort.turns, bench.variants(), ask)
        found = medians_row(
            "overhead", "begin + end", case, "µs", answers, key="pair_us", target=targets[gpus]
        )
        found["pairs"] = {
            label: [answer.get("pairs") for answer in given] for label, given in answers.items()
        }
        if latency == 0.0:
            at_once[gpus] = found["values"][OURS]
        elif at_once[gpus] and found["values"][OURS]:
            found["growth_by_driver_calls"] = found["values"][OURS] / at_once[gpus]
        yield found
        for key, when in (("ask_now_us", "at once"), ("ask_later_us", "later")):
            measure = f"total_energy, asked {when}"
            yield medians_row("overhead", measure, case, "µs", answers, key=key)


SCENARIOS = ("steady", "burst", "alternating")
ACCURACY_TARGETS = {
    (0.05, "steady"): 0.01,
    (0.05, "burst"): 0.02,
    (0.05, "alternating"): 0.02,
    (0.5, "steady"): 0.005,
    (0.5, "burst"): 0.005,
}


def bench_accuracy(bench: Bench) -> Iterator[Row]:
    """How far the energies of windows are from the truth."""
    everyone = bench.variants(zeus={"zeus, approximating": {"approximate": True}})
    only_ours = [variant for variant in everyone if variant.label == OURS]
    for wait, variants in (("sleep", everyone), ("spin", only_ours)):
        for length, scenario in product((0.05, 0.5), SCENARIOS):
            target = ACCURACY_TARGETS.get((length, scenario))
            case = f"{length * 1e3:g} ms, {scenario}, {wait}"
            answers = _windows(bench, variants, case, scenario=scenario, wait=wait, length=length)
            yield from _accuracy_rows(case, answers, target)
    # Power meters of real GPUs are not live either.
    for scenario in SCENARIOS:
        case = f"50 ms, {scenario}, sleep, power meter refreshed every 20 ms"
        how = {"scenario": scenario, "wait": "sleep", "length": 0.05, "sensor_period": 0.02}
        yield from _accuracy_rows(case, _windows(bench, everyone, case, **how), None)


def _windows(
    bench: Bench, variants: Sequence[Variant], case: str, **how: Any
) -> dict[str, list[Answer]]:
    say(f"  {case}")
    number = bench.effort.short_windows if how["length"] < TICK else bench.effort.long_windows

    def ask(variant: Variant, turn: int) -> Answer:
        options = variant.options
        return bench.ask(
            "accuracy", variant, tool_options=options, windows=number, seed=turn, **how
        )

    return bench.taking_turns(bench.effort.accuracy_turns, variants, ask)


def _accuracy_rows(
    case: str, answers: dict[str, list[Answer]], target: float | None
) -> Iterator[Row]:
    windows = {
        label: [window for answer in given for window in answer.get("windows", ())]
        for label, given in answers.items()
    }
    errors = {
        label: answer["error"]
        for label, given in answers.items()
        for answer in given
        if "error" in answer
    }
    more: dict[str, Any] = {"windows": {label: len(each) for label, each in windows.items()}}
    if errors:
        more["errors"] = errors
    for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
        values = {
            label: percentile((window[0] for window in each), share) if each else None
            for label, each in windows.items()
        }
        yield row("accuracy", f"error, {name}", case, "1", values, target=target, **more)
    zeros = {label: sum(window[1] for window in each) for label, each in windows.items() if each}
    yield row("accuracy", "windows read as 0 J", case, "windows", zeros, target=0, **more)
    outside = {
        label: statistics.fmean(window[2] for window in each)
        for label, each in windows.items()
        if each and each[0][2] is not None
    }
    yield row("accuracy", "share outside the stated uncertainty", case, "1", outside, **more)


def bench_background(bench: Bench) -> Iterator[Row]:
    """What a tool's threads and processes take from the machine meanwhile."""
    effort = bench.effort
    window = {"mode": "window"}
    power = {"mode": "power", "period": None}
    slow = {"mode": "power", "period": 0.1}
    short = {"mode": "short", "ask": False}
    cases: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
        "one window": [(tool.name, tool.name, window) for tool in bench.tools],
        "power monitor": [
            (OURS, OURS, power),
            ("zeus", "zeus", power),
            ("zeus, every 0.1 s", "zeus", slow),
        ],
        "50 ms windows": [(OURS, OURS, short)],
        "50 ms windows, asked for energy": [(OURS, OURS, {**short, "ask": True})],
    }
    by_name = {tool.name: tool for tool in bench.tools}
    for (name, entries), gpus in product(cases.items(), (1, 8)):
        case = f"{name}, {gpus} GPU{'s' * (gpus > 1)}"
        say(f"  {case}")
        variants = [
            Variant(label, by_name[tool], options)
            for label, tool, options in entries
            if tool in by_name
        ]

        def ask(variant: Variant, _: int, gpus: int = gpus) -> Answer:
            return bench.ask(
                "background",
                variant,
                gpus,
                settle=effort.settle,
                seconds=effort.background,
                **variant.options,
            )

        answers = bench.taking_turns(effort.turns, variants, ask)
        found = medians_row(
            "background",
            "core in use",
            case,
            "% of a core",
            answers,
            key="core_percent",
            target=1.0,
        )
        found["helper_processes"] = {
            label: given[-1].get("helper_processes") for label, given in answers.items()
        }
        yield found


def bench_size(bench: Bench) -> Iterator[Row]:
    """What an installation of the core takes on disk."""
    values: dict[str, float | None] = {}
    errors: dict[str, str] = {}
    for tool in bench.tools:
        try:
            values[tool.name] = _core_size(tool) if tool.name == OURS else _environment_size(tool)
        except (OSError, subprocess.SubprocessError) as error:
            values[tool.name], errors[tool.name] = None, why(error)
    more = {"errors": errors} if errors else {}
    yield row("size", "installed", "with what it needs", "MB", values, target=10.0, **more)


def _core_size(tool: Tool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        pip(tool.python, "install", "--target", folder, "--no-build-isolation", str(ROOT))
        return megabytes(Path(folder))


def _environment_size(tool: Tool) -> float:
    (packages,) = tool.python.parents[1].glob("lib/python*/site-packages")
    return megabytes(packages)


def megabytes(folder: Path) -> float:
    """Size of all files below, without the tools that only install others."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(NOT_THE_TOOL)]
    files = [file for entry in entries for file in (entry, *entry.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6
