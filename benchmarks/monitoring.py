"""What the monitor costs."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from accuracy import PARTS
from harness import Bench, Variant, say
from rows import Answer, Row, medians_row, row
from tools import OURS, ROOT, Tool, pip, why

A100, V100 = PARTS["A100"], PARTS["V100"]
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
    targets = {"pair_us": (12.0, 20.0), "later_us": (30.0, 100.0), "at_once_us": (200.0, 500.0)}
    quick_driver: dict[int, float | None] = {}
    for gpus, latency in product((1, 8), (0.0, 0.001)):
        case = f"{gpus} GPU{'s' * (gpus > 1)}, driver calls take {latency * 1e3:g} ms"
        say(f"  {case}")

        def ask(variant: Variant, _: int, gpus: int = gpus, latency: float = latency) -> Answer:
            cheap = variant.label == OURS
            return bench.ask(
                "overhead",
                variant,
                gpus,
                part=A100,
                driver_latency=latency,
                warm_up_pairs=min(2_000, effort.pairs) if cheap else 50,
                pairs=effort.pairs,
                budget=math.inf if cheap else effort.pair_budget,
                asked=effort.asked,
            )

        answers = bench.taking_turns(effort.turns, bench.variants(), ask)
        goals = {key: each[gpus > 1] for key, each in targets.items()}
        found = medians_row(
            "overhead", "begin + end", case, "µs", answers, key="pair_us", target=goals["pair_us"]
        )
        found["pairs"] = {
            label: [answer.get("pairs") for answer in given] for label, given in answers.items()
        }
        if latency == 0.0:
            quick_driver[gpus] = found["values"][OURS]
        elif quick_driver[gpus] and found["values"][OURS]:
            found["growth_by_driver_calls"] = found["values"][OURS] / quick_driver[gpus]
        yield found
        for key, when in (("later_us", "later"), ("at_once_us", "at once")):
            measure = f"begin + end + energy, asked {when}"
            yield medians_row("overhead", measure, case, "µs", answers, key=key, target=goals[key])


def bench_background(bench: Bench) -> Iterator[Row]:
    """What a tool takes from the machine meanwhile."""
    effort = bench.effort
    window = {"mode": "window"}
    power = {"mode": "power", "period": None}
    slow = {"mode": "power", "period": 0.1}
    short = {"mode": "short"}
    monitors = [(tool.name, tool.name) for tool in bench.tools]
    # What is done, on which GPUs, targets for 1 and 8 of them, and by whom.
    cases: list[tuple[str, dict[str, Any], tuple[float, float], list[tuple[str, str, Any]]]] = [
        ("one window", A100, (1.0, 1.0), [(*each, window) for each in monitors]),
        (
            "power monitor",
            A100,
            (1.0, 1.0),
            [(OURS, OURS, power), ("zeus", "zeus", power), ("zeus, every 0.1 s", "zeus", slow)],
        ),
        ("50 ms windows, A100", A100, (1.0, 3.0), [(*each, short) for each in monitors]),
        ("50 ms windows, V100", V100, (2.0, 8.0), [(*each, short) for each in monitors]),
    ]
    by_name = {tool.name: tool for tool in bench.tools}
    for (name, part, targets, entries), gpus in product(cases, (1, 8)):
        case = f"{name}, {gpus} GPU{'s' * (gpus > 1)}"
        say(f"  {case}")
        variants = [
            Variant(label, by_name[tool], options)
            for label, tool, options in entries
            if tool in by_name
        ]

        def ask(variant: Variant, _: int, gpus: int = gpus, part: Any = part) -> Answer:
            return bench.ask(
                "background",
                variant,
                gpus,
                part=part,
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
            target=targets[gpus > 1],
        )
        for key in ("main_thread_percent", "helper_processes"):
            found[key] = {label: given[-1].get(key) for label, given in answers.items()}
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
    more: dict[str, Any] = {"errors": errors} if errors else {}
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
