"""Starts measurements: a worker under a tool's interpreter, on a simulated driver of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from rows import Answer
from tools import ROOT, Tool

FOLDER = Path(__file__).parent
WORKER = "worker.py"
TIMEOUT = 300.0  # seconds for one measurement
DRIVERS = ("nvml", "amdsmi")
MAX_GPUS = 16
SALTS = 32  # between two GPUs, more than their sensors take


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
    asked: int = 60
    changes: int = 2_000
    accuracy_turns: int = 2
    accuracy_seconds: float = 30.0
    accuracy_peer_seconds: float = 6.0
    accuracy_windows: int = 6  # at least, however long they are
    settle: float = 2.0
    background: float = 8.0
    power_limit_turns: int = 1
    power_limit_scenarios: int = 5
    power_limit_after: float = 3.0
    power_limit_lengths: dict[str, int] = field(default_factory=dict)  # the tools' own
    noisy_runs: int = 50  # with fewer than one for each step time, no recorded ones either
    whole_runs: int | None = None  # all
    whole_run_seeds: int = 3


QUICK = Effort(
    imports=3,
    cold_imports=1,
    turns=1,
    pairs=2_000,
    pair_budget=1.0,
    asked=20,
    changes=200,
    accuracy_turns=1,
    accuracy_seconds=8.0,
    accuracy_peer_seconds=3.0,
    accuracy_windows=2,
    settle=1.0,
    background=2.0,
    power_limit_scenarios=1,
    power_limit_after=0.5,
    power_limit_lengths={"warmup_steps": 2, "profile_steps": 10},
    noisy_runs=3,
    whole_runs=1,
    whole_run_seeds=1,
)


class Bench:
    """The tools, the driver they run on, and how much to measure."""

    def __init__(self, tools: Sequence[Tool], effort: Effort, scratch: Path) -> None:
        self.tools = [tool for tool in tools if not tool.error]
        self.effort = effort
        self._scratch = scratch
        self._program, self._library = scratch / "drivers" / "python", scratch / "libraries"
        self._copy_program()
        self._install_driver()
        self._count = 0

    def _copy_program(self) -> None:
        # A copy, so that a report is about one state of the driver however long it takes.
        shutil.copytree(ROOT / "drivers", self._program.parent)
        for worker in FOLDER.glob("*worker.py"):
            shutil.copy(worker, self._program)
        sys.path.insert(0, str(self._program))

    def _install_driver(self) -> None:
        from simulated_drivers import build

        for name in DRIVERS:
            build(name, self._library / name)
        # A driver comes with this command, and a tool takes its absence as that of the GPUs.
        command = self._library / "nvml" / "nvidia-smi"
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
        worker: str = WORKER,
        part: dict[str, Any] | None = None,
        seed: int = 0,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> Answer:
        """Have a worker measure; its answer, or {"error": why there is none}.

        Args:
            task: What the worker is to measure.
            variant: Who is measured.
            gpus: How many the driver has.
            worker: The program that measures.
            part: What the GPUs are, as `simulated_drivers.parts.spec` takes it; AMD's have a driver
                of their own. Unless a load runs on them, they draw what the worker says. By
                default an A100.
            seed: For the phases at which sensors are refreshed; others on each GPU.
            environment: Further variables.
            options: For the worker.
        """
        self._count += 1
        folder = self._scratch / f"run-{self._count}"
        folder.mkdir()
        name, controller, spec = _driver(part)
        salts = (SALTS * (MAX_GPUS * seed + gpu) for gpu in range(gpus))
        specs = [replace(spec, sensors=spec.sensors.placed(salt)) for salt in salts]
        library = self._library / name
        with controller.create(folder / "state", specs) as driver:
            # Nothing else from outside: settings for one of the tools, a launcher's ranks.
            surroundings = {
                **driver.environment(library),
                "PATH": f"{library}{os.pathsep}{os.environ.get('PATH', '')}",
                "HOME": str(folder),
                **(environment or {}),
            }
            program = str(self._program / worker)
            command = [str(variant.tool.python), program, task, variant.tool.name]
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


def _driver(part: dict[str, Any] | None) -> tuple[str, Any, Any]:
    """The library, its controller and the description of a GPU for a part."""
    from simulated_drivers import AmdGpuSpec, GpuSpec, SimulatedAmdSmi, SimulatedNvml, parts
    from zeus.device._simulated_models import MODELS

    if part is None:
        return "nvml", SimulatedNvml, GpuSpec()
    model = MODELS[part["key"]]
    if model.vendor == "NVIDIA":
        return "nvml", SimulatedNvml, parts.spec(**part)
    spec = AmdGpuSpec(name=model.name, sensors=part["key"])
    return "amdsmi", SimulatedAmdSmi, spec


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
