"""`zeus demo`: measure a training run, and let Zeus find the best power limit for it.

With `--json`, one object: `node` ("virtual", "simulated" or "real"), `gpus` (names), `what` (the
workload), `epochs` (measurements), `training` (measurement of all epochs) and, on the virtual node,
`exact_energy` (true joules of the training), `steps` and `exact_step_energies`. On
simulated GPUs also `power_limit`: the `default`, the chosen `limit` (watts; by model where GPUs
differ), an `epoch` (or some steps) at that limit, `time_change` and `energy_change` relative to the
default, `profiling` (`steps`, and their `time` and `energy` beyond those at the default) and the
`frontier` of a step.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zeus.cli._parser import add_json_option
from zeus.cli._terminal import MISSING, Console, plural, sections
from zeus.clock import Clock
from zeus.device import DeviceSet, Gpu, Node, current_node
from zeus.device._vendors import vendor_named
from zeus.drawing.frontier import knob_label
from zeus.frontier import Frontier, MaxSlowdownConstraint
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor._measurement import show_joules, show_seconds
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.optimizer.jit._report import Report

_EPOCHS = 3
_STEPS = 3
_EPOCH_TIME = 0.5  # seconds of an epoch that takes real time
_WARMUP_STEPS, _PROFILE_STEPS = 3, 20
_SLOWDOWN = 1.1
_SIMULATED = "v100x4"
_BATCH_SIZE = 256
_IMAGES = 1_281_167  # in ImageNet's training set
_JOULES_PER_KWH = 3.6e6


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Measure a training run, find the best power limit for it, and explain the result, in "
        "seconds. Without a GPU it runs on simulated ones, in virtual time. Settings of real GPUs "
        "are changed only with --optimize."
    )
    parser.epilog = """\
examples:
  zeus demo
  ZEUS_SIMULATE=v100x4 zeus demo    in real time, on simulated GPUs"""
    parser.add_argument(
        "--optimize",
        action="store_true",
        help="also try power limits on real GPUs; the previous limits are restored",
    )
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo, then print the result."""
    node = current_node()
    result = _in_real_time(node, arguments.optimize) if node.gpus else _in_virtual_time()
    Console(sys.stdout).print_result(result, as_json=arguments.json)
    return 0


@dataclass
class Optimized:
    """Measurements before and after Zeus has found the best power limit."""

    report: Report
    frontier: Frontier
    what: str
    normal: Measurement
    best: Measurement

    def __post_init__(self) -> None:
        report = self.report
        assert report.reference is not None
        assert report.chosen is not None
        assert report.profiling is not None
        #: Power limits in watts, by GPU model if there are several.
        self.default, self.limit = report.reference.knob, report.chosen.knob
        #: Overhead of profiling, compared with the same steps at the default.
        self.profiling = report.profiling
        #: Relative changes from the default to the chosen limit.
        self.time_change = self.best.time / self.normal.time - 1
        self.energy_change = self.best.total_energy / self.normal.total_energy - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the result in the form of JSON."""
        return {
            "default": _plain(self.default),
            "limit": _plain(self.limit),
            "epoch": self.best.to_dict(),
            "time_change": self.time_change,
            "energy_change": self.energy_change,
            "profiling": {
                "steps": self.report.profiling_steps,
                "time": self.profiling.time,
                "energy": self.profiling.energy,
            },
            "frontier": self.frontier.to_dict(),
        }

    def lines(self, console: Console) -> list[str]:
        """Return the result as text."""
        first = self.frontier.points[0]
        tried = [
            (
                knob_label(point.knob, "W"),
                f"{point.slowdown(first) - 1:+.1%}",
                f"{0.0 - point.savings(first):+.1%}",
                "chosen" if point.knob == self.limit else "",
            )
            for point in self.frontier
        ]
        compared = [
            (knob_label(self.default, "W"), *_cells(self.normal)),
            (knob_label(self.limit, "W"), *_cells(self.best)),
            ("change", f"{self.time_change:+.1%}", f"{self.energy_change:+.1%}", ""),
        ]
        steps, extra = self.report.profiling_steps, self.profiling
        return [
            console.style("Zeus finds the best power limit during training", "bold"),
            "",
            *_table(console, ("limit", "time of a step", "energy of a step", ""), tried),
            "",
            f"Objective: lowest energy, at most {_SLOWDOWN - 1:.0%} slower.",
            self.what,
            "",
            *_table(console, ("limit", "time", "energy", "average power"), compared),
            "",
            f"Finding it took {steps} steps of training, {_more(extra.time, show_seconds)} and",
            f"{_more(extra.energy, show_joules)} than the same steps at the default.",
            "The default limit is restored.",
        ]


@dataclass
class Result:
    """Measurements of the demo, and its texts."""

    node: str
    gpus: list[str]
    opening: str
    what: str
    epochs: list[Measurement] = field(default_factory=list)
    training: Measurement = field(default_factory=lambda: Measurement(0.0))
    exact_energy: float | None = None
    steps: list[Measurement] = field(default_factory=list)
    exact_step_energies: list[float] = field(default_factory=list)
    optimized: Optimized | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result in the form of JSON; see the module docstring."""
        return {
            "node": self.node,
            "gpus": self.gpus,
            "what": self.what,
            "epochs": [epoch.to_dict() for epoch in self.epochs],
            "training": self.training.to_dict(),
            "exact_energy": self.exact_energy,
            "steps": [step.to_dict() for step in self.steps],
            "exact_step_energies": self.exact_step_energies,
            "power_limit": None if self.optimized is None else self.optimized.to_dict(),
        }

    def lines(self, console: Console) -> list[str]:
        """Return the result as text."""
        return sections(
            [
                [self.opening],
                [console.style(self.what, "bold"), "", *self._epoch_table(console)],
                self._total_lines(console),
                self._accuracy_lines(console),
                self.optimized.lines(console) if self.optimized else [],
                [console.style("Next: your own training loop", "bold"), "", *_NEXT_STEPS],
            ]
        )

    def _epoch_table(self, console: Console) -> list[str]:
        rows = [(f"{number}", *_cells(epoch)) for number, epoch in enumerate(self.epochs, 1)]
        rows.append(("all", *_cells(self.training)))
        return _table(console, ("epoch", "time", "energy", "average power"), rows)

    def _total_lines(self, console: Console) -> list[str]:
        total = self.training.total_energy
        if not total:
            return [f"  {row[0]}: {row[3]}" for row in self.training.rows()]
        shares = self.training.gpu_energy
        rows = [
            (f"GPU {index}", name, show_joules(shares[index]), f"{shares[index] / total:.0%}")
            for index, name in enumerate(self.gpus)
            if index in shares
        ]
        return [
            f"Total: {_with_margin(self.training)}, which is {_kilowatt_hours(total)}:",
            "",
            *console.table(rows, right=(2, 3), indent="  ", gap="   "),
        ]

    def _accuracy_lines(self, console: Console) -> list[str]:
        """Compare the measurement with the true energy, which only a simulation knows."""
        if self.exact_energy is None:
            return []
        rows = [_check("training", self.training, self.exact_energy)]
        steps = zip(self.steps, self.exact_step_energies, strict=True)
        rows += [_check(f"step {n}", step, exact) for n, (step, exact) in enumerate(steps, 1)]
        return [
            "In a simulation the true energy is known, so the measurement can be",
            "checked, down to single steps:",
            "",
            *_table(console, ("", "measured", "true", "error"), rows, first_right=1),
        ]


_NEXT_STEPS = [
    "  from zeus.monitor import ZeusMonitor",
    "  from zeus.optimizer import GlobalPowerLimitOptimizer",
    "",
    "  optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())",
    "  # in your loop, call its on_epoch_begin, on_step_begin, on_step_end",
    "  # and on_epoch_end",
    "",
    "or measure any program unchanged: zeus measure -- python train.py",
]


def _table(
    console: Console, heading: Sequence[str], rows: Sequence[Sequence[str]], first_right: int = 0
) -> list[str]:
    return console.table([heading, *rows], range(first_right, 4), indent="  ", gap="   ")


def _cells(measurement: Measurement) -> tuple[str, str, str]:
    time = show_seconds(measurement.time)
    if not measurement.gpu_energy:
        return time, MISSING, MISSING
    power = sum(measurement.average_gpu_power.values())
    return time, show_joules(measurement.total_energy), f"{power:.0f} W"


def _plain(knob: Any) -> Any:
    return dict(knob) if isinstance(knob, Mapping) else float(knob)


def _more(value: float, show: Callable[[float], str]) -> str:
    return f"{show(abs(value))} {'more' if value > 0 else 'less'}"


def _kilowatt_hours(joules: float) -> str:
    kwh = joules / _JOULES_PER_KWH
    return f"{kwh:.2f} kWh" if kwh >= 0.1 else f"{kwh * 1e3:.2g} Wh"


def _with_margin(measurement: Measurement) -> str:
    text = show_joules(measurement.total_energy)
    margin = measurement.uncertainty
    return text if margin is None else f"{text} ± {margin:.2g} J"


def _check(name: str, measurement: Measurement, exact: float) -> tuple[str, str, str, str]:
    share = abs(measurement.total_energy / exact - 1)
    off = f"{share:.2%}" if share >= 0.0001 else "less than 0.01%"
    return name, _with_margin(measurement), show_joules(exact), off


# --- on simulated GPUs, in virtual time ---------------------------------------------------------


def _in_virtual_time() -> Result:
    from zeus.testing import SimulatedNode, recorded_workload  # noqa: PLC0415

    built = SimulatedNode(_SIMULATED)
    # A private node: variables that hide the user's GPUs do not apply to it.
    gpus = [Gpu(index, driver) for index, driver in enumerate(built.drivers)]
    node = Node(built.clock, built.drivers, DeviceSet(gpus), simulated=_SIMULATED)
    job = recorded_workload("v100", "imagenet", _BATCH_SIZE)
    epoch = job.scaled(1 / len(gpus))  # the GPUs share the epoch
    step = job.scaled(_BATCH_SIZE / _IMAGES)
    result = Result(
        "virtual",
        [gpu.name for gpu in gpus],
        "No GPU can be measured here, so this runs on four simulated V100s in virtual time:",
        f"ResNet-50 on ImageNet, {_EPOCHS} epochs on {len(gpus)} GPUs, as recorded on real ones",
    )
    with ZeusMonitor([gpu.index for gpu in gpus], sync_execution_with=None, node=node) as monitor:
        before = _exact_energy(gpus)
        result.epochs, result.training = _train(monitor, lambda: epoch.run(gpus))
        result.exact_energy = _exact_energy(gpus) - before
        for number in range(_STEPS):
            before = _exact_energy(gpus)
            result.steps.append(_measured(monitor, f"step {number + 1}", lambda: step.run(gpus)))
            result.exact_step_energies.append(_exact_energy(gpus) - before)
        result.optimized = _optimized(
            monitor,
            lambda: step.run(gpus),
            lambda: epoch.run(gpus),
            what=f"The {_ordinal(_EPOCHS + 1)} epoch at the chosen limit:",
            normal=result.epochs[-1],
        )
    return result


def _optimized(
    monitor: ZeusMonitor,
    step: Callable[[], object],
    work: Callable[[], object],
    *,
    what: str,
    normal: Measurement,
    lengths: tuple[int | None, int | None] = (None, None),
) -> Optimized | None:
    """Let the optimizer find a limit during steps, then repeat the work at that limit."""
    warmup, profile = lengths
    with GlobalPowerLimitOptimizer(
        monitor, MaxSlowdownConstraint(_SLOWDOWN), warmup_steps=warmup, profile_steps=profile
    ) as optimizer:
        while not optimizer.decided and not optimizer.trouble:
            optimizer.on_step_begin()
            step()
            optimizer.on_step_end()
        optimizer.pause()
        report, frontier = optimizer.report(), optimizer.frontier
        if frontier is None:
            return None  # the optimizer has logged why
        return Optimized(report, frontier, what, normal, _measured(monitor, "optimized", work))


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}.get(number, f"{number}th")


def _exact_energy(gpus: Sequence[Gpu]) -> float:
    from zeus.testing._workload import simulated_driver  # noqa: PLC0415

    return sum(simulated_driver(gpu).exact_energy() for gpu in gpus)


# --- on this machine's GPUs ---------------------------------------------------------------------


def _in_real_time(node: Node, optimize: bool) -> Result:
    if node.simulated:
        return _on_simulated_gpus(node)
    names = [gpu.name for gpu in node.gpus]
    step, why_not = _torch_step(node.gpus[0])
    result = Result(
        "real",
        names,
        f"Found {plural(len(names), 'GPU')}: {', '.join(names)}.",
        "A small training loop on GPU 0, with PyTorch" if step else f"Idle GPUs: {why_not}",
    )
    with ZeusMonitor(sync_execution_with="torch" if step else None) as monitor:
        work = step or (lambda: node.clock.sleep(0.05))
        result.epochs, result.training = _train(monitor, lambda: _repeat(work, node.clock))
    if optimize and step:
        with ZeusMonitor([0], sync_execution_with="torch") as monitor:
            result.optimized = _on_steps(monitor, step)
    return result


def _on_simulated_gpus(node: Node) -> Result:
    from zeus.testing import Workload  # noqa: PLC0415

    step = Workload("a step", gpu_time=0.03)
    result = Result(
        "simulated",
        [gpu.name for gpu in node.gpus],
        f"ZEUS_SIMULATE={node.simulated}: simulated GPUs that draw power in real time.",
        "A simulated training loop that keeps all GPUs busy",
    )
    with ZeusMonitor(sync_execution_with=None) as monitor:
        result.epochs, result.training = _train(
            monitor, lambda: _repeat(lambda: step.run(node.gpus), node.clock)
        )
        result.optimized = _on_steps(monitor, lambda: step.run(node.gpus))
    return result


def _on_steps(monitor: ZeusMonitor, step: Callable[[], object]) -> Optimized | None:
    """Optimize with few steps, because the user is waiting."""

    def work() -> None:
        for _ in range(_PROFILE_STEPS):
            step()

    return _optimized(
        monitor,
        step,
        work,
        what=f"{_PROFILE_STEPS} steps at the chosen limit:",
        normal=_measured(monitor, "steps at the default", work),
        lengths=(_WARMUP_STEPS, _PROFILE_STEPS),
    )


def _repeat(step: Callable[[], object], clock: Clock) -> None:
    end = clock.now() + _EPOCH_TIME
    while clock.now() < end:
        step()


def _torch_step(gpu: Gpu) -> tuple[Callable[[], None] | None, str]:
    """Return a training step on a GPU, or why there is none."""
    if importlib.util.find_spec("torch") is None:
        return None, "PyTorch is not installed, so nothing runs on them"
    try:
        return _make_torch_step(gpu), ""
    except Exception as error:  # a broken installation, out of memory: the demo goes on without
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return None, f"PyTorch cannot use them ({reason})"


def _make_torch_step(gpu: Gpu) -> Callable[[], None]:
    import torch  # noqa: PLC0415

    module = vendor_named(gpu.identity.vendor).framework_module
    if not module:
        raise RuntimeError(f"its module for GPUs of {gpu.identity.vendor} is unknown")
    backend = getattr(torch, module)
    if not backend.is_available():
        raise RuntimeError(f"torch.{module}.is_available() is false")
    device = f"{module}:{gpu.ordinal}"
    model = torch.nn.Linear(2048, 2048, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(2048, 2048, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        backend.synchronize(gpu.ordinal)  # else thousands of steps would be queued

    step()  # the first step loads kernels
    return step


# --- common -------------------------------------------------------------------------------------


def _train(
    monitor: ZeusMonitor, epoch: Callable[[], object]
) -> tuple[list[Measurement], Measurement]:
    """Measure each epoch in a window, inside a window around all epochs."""
    monitor.begin_window("training")
    epochs = [_measured(monitor, f"epoch {number + 1}", epoch) for number in range(_EPOCHS)]
    return epochs, monitor.end_window("training")


def _measured(monitor: ZeusMonitor, name: str, work: Callable[[], object]) -> Measurement:
    monitor.begin_window(name)
    work()
    return monitor.end_window(name)
