"""Measure Zeus beside its peers on one simulated driver, and print what was found as JSON.

Every measurement is a process of its own (`worker.py`) under the interpreter of the tool, and the
tools take turns, so that whatever else this machine does meets all of them alike. Numbers are
medians over the turns. See README.md in this folder for what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).with_name("worker.py")
PEER_FOLDER = ROOT / ".venv-peers"
PEERS = {"zeus": ("zeus", "0.16.0"), "codecarbon": ("codecarbon", "3.3.2")}
OURS = "ours"
NOT_THE_TOOL = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
TICK = 0.1  # seconds between two refreshes of the simulated energy counters
TIMEOUT = 300.0  # seconds for one measurement

Row = dict[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """A tool and the interpreter it is installed for; `error` says why it cannot be measured."""

    name: str
    distribution: str
    python: Path
    version: str = ""
    error: str = ""

    def described(self) -> dict[str, str]:
        """For the report."""
        if self.error:
            return {"distribution": self.distribution, "error": self.error}
        return {"distribution": self.distribution, "version": self.version}


@dataclass(frozen=True)
class Variant:
    """A tool in one of its configurations, with the name under which its numbers appear."""

    label: str
    tool: Tool
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    imports: int = 9
    cold_imports: int = 3
    turns: int = 3
    pairs: int = 20_000
    pair_budget: float = 5.0
    asked: int = 200
    accuracy_turns: int = 2
    short_windows: int = 50
    long_windows: int = 15
    settle: float = 2.0
    background: float = 8.0


QUICK = Effort(
    imports=3,
    cold_imports=1,
    turns=1,
    pairs=2_000,
    pair_budget=1.0,
    asked=20,
    accuracy_turns=1,
    short_windows=10,
    long_windows=4,
    settle=1.0,
    background=2.0,
)


class Bench:
    """The tools, the driver they run on, and how much to measure."""

    def __init__(self, tools: Sequence[Tool], effort: Effort, scratch: Path) -> None:
        self.tools = [tool for tool in tools if not tool.error]
        self.effort = effort
        self._scratch = scratch
        self._program, self._library = scratch / "program", scratch / "driver"
        self._copy_program()
        self._install_driver()
        self._count = 0

    def _copy_program(self) -> None:
        # A copy, so that a report is about one state of the driver however long it takes; under a
        # name of its own, because some packages bring a module `tests` along.
        shutil.copytree(ROOT / "tests" / "drivers", self._program / "bench_drivers")
        shutil.copy(WORKER, self._program)
        sys.path.insert(0, str(self._program))

    def _install_driver(self) -> None:
        from bench_drivers.build import build

        build("nvml", self._library)
        # A driver comes with this command, and a tool takes its absence as that of the GPUs.
        command = self._library / "nvidia-smi"
        command.write_text("#!/bin/sh\nexit 0\n")
        command.chmod(0o755)

    def variants(self, **options: dict[str, dict[str, Any]]) -> list[Variant]:
        """All tools as they are, and further configurations: tool={label: options}."""
        found = []
        for tool in self.tools:
            found.append(Variant(tool.name, tool))
            further = options.get(tool.name, {})
            found += [Variant(label, tool, given) for label, given in further.items()]
        return found

    def ask(
        self,
        task: str,
        variant: Variant,
        gpus: int = 1,
        *,
        sensor_period: float = 0.0,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> Answer:
        """Have a worker measure; its answer, or {"error": why there is none}."""
        from bench_drivers.nvml_state import GpuSpec, SimulatedNvml

        self._count += 1
        folder = self._scratch / f"run-{self._count}"
        folder.mkdir()
        spec = GpuSpec(tick_period=TICK, power_period=sensor_period)
        with SimulatedNvml.create(folder / "state", [spec] * gpus) as driver:
            # Nothing else from outside: settings for one of the tools, a launcher's ranks.
            surroundings = {
                **driver.environment(self._library),
                "PATH": f"{self._library}{os.pathsep}{os.environ.get('PATH', '')}",
                "HOME": str(folder),
                **(environment or {}),
            }
            worker = self._program / WORKER.name
            command = [str(variant.tool.python), str(worker), task, variant.tool.name]
            if options:
                command.append(json.dumps(options))
            try:
                return _answer(command, surroundings, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def taking_turns(
        self, turns: int, variants: Sequence[Variant], ask: Callable[[Variant, int], Answer]
    ) -> dict[str, list[Answer]]:
        """Ask every variant `turns` times, each in turn; answers by label."""
        answers: dict[str, list[Answer]] = {variant.label: [] for variant in variants}
        for turn, variant in product(range(turns), variants):
            answers[variant.label].append(ask(variant, turn))
        return answers


def _answer(command: list[str], environment: dict[str, str], folder: Path) -> Answer:
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"error": f"no answer within {TIMEOUT:g} s"}
    lines = out.splitlines()
    if process.returncode != 0 or not lines:
        return {"error": errors.strip()[-500:] or f"exit code {process.returncode}"}
    return json.loads(lines[-1])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- rows -----------------------------------------------------------------------------------------


def row(
    task: str,
    measure: str,
    case: str,
    unit: str,
    values: dict[str, float | None],
    *,
    target: float | None = None,
    **more: Any,
) -> Row:
    """One number of every tool; the target is an upper bound for ours."""
    ours = values.get(OURS)
    met = None if target is None else ours is not None and ours <= target
    ratios = {
        label: ours / value
        for label, value in values.items()
        if label != OURS and ours is not None and value
    }
    return {
        "task": task,
        "measure": measure,
        "case": case,
        "unit": unit,
        "values": values,
        "target": target,
        "met": met,
        "ratios": ratios,
        **more,
    }


def medians_row(
    task: str,
    measure: str,
    case: str,
    unit: str,
    answers: dict[str, list[Answer]],
    *,
    key: str,
    target: float | None = None,
) -> Row:
    """Medians of one number of the answers, with all of them beside."""
    turns = {
        label: [answer[key] for answer in given if key in answer]
        for label, given in answers.items()
    }
    values = {label: statistics.median(each) if each else None for label, each in turns.items()}
    errors = {
        label: answer["error"]
        for label, given in answers.items()
        for answer in given
        if "error" in answer
    }
    more: dict[str, Any] = {"turns": turns}
    if errors:
        more["errors"] = errors
    return row(task, measure, case, unit, values, target=target, **more)


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


# --- tasks ----------------------------------------------------------------------------------------


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
            values[tool.name], errors[tool.name] = None, _why(error)
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


TASKS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "import": bench_import,
    "overhead": bench_overhead,
    "accuracy": bench_accuracy,
    "background": bench_background,
    "size": bench_size,
}


# --- the tools' environments ----------------------------------------------------------------------


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)


def ours() -> Tool:
    return Tool(OURS, "zeus-energy", Path(sys.executable), _version(sys.executable, "zeus-energy"))


def peer(name: str) -> Tool:
    """A peer in its own environment, which is made if it is not there yet."""
    distribution, version = PEERS[name]
    python = PEER_FOLDER / name / "bin" / "python"
    try:
        if not python.exists() or _version(python, distribution) != version:
            say(f"installing {distribution} {version}")
            environment = python.parents[1]
            make = [sys.executable, "-m", "venv", "--clear", str(environment)]
            subprocess.run(make, check=True, capture_output=True, text=True)
            pip(python, "install", f"{distribution}=={version}")
    except (OSError, subprocess.SubprocessError) as error:
        return Tool(name, distribution, python, error=_why(error))
    return Tool(name, distribution, python, version)


def _version(python: str | Path, distribution: str) -> str:
    ask = f"from importlib.metadata import version; print(version({distribution!r}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    return (said or str(error)).strip()[-500:]


# --- the command ----------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME[,NAME]", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; less exact")
    parser.add_argument("--no-peers", action="store_true", help="measure only Zeus")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON here as well")
    chosen = parser.parse_args(arguments)
    chosen.tasks = chosen.only.split(",") if chosen.only else list(TASKS)
    wrong = [name for name in chosen.tasks if name not in TASKS]
    if wrong:
        parser.error(f"--only takes names of {', '.join(TASKS)}, but got {', '.join(wrong)}")
    return chosen


def measured(tools: Sequence[Tool], tasks: Sequence[str], effort: Effort) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="zeus-bench-") as scratch:
        bench = Bench(tools, effort, Path(scratch))
        for name in tasks:
            say(f"{name}: {TASKS[name].__doc__}")
            rows += TASKS[name](bench)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parsed(arguments)
    tools = [ours(), *(peer(name) for name in PEERS if not chosen.no_peers)]
    before, started = machine(), time.monotonic()
    rows = measured(tools, chosen.tasks, QUICK if chosen.quick else Effort())
    document = {
        "machine": {**before, "load_average_after": os.getloadavg()},
        "seconds": round(time.monotonic() - started),
        "quick": chosen.quick,
        "tools": {tool.name: tool.described() for tool in tools},
        "targets_met": all(found["met"] is not False for found in rows),
        "rows": rows,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if chosen.output is not None:
        chosen.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
