"""The public interface as it was published: the slides' programs run as they stand."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.device.clients import LONG_ENOUGH, Clients

from zeus.clock import MonotonicClock
from zeus.device import _simulated as simulated

SLIDES = sorted((Path(__file__).parents[3] / "shared" / "seeds").glob("002_*.txt"))
SPEC = "v100x4"

# The lines of the slides that use Zeus, for where the slides themselves are not at hand.
MEASURING = """
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(gpu_indices=[0,1,2,3])
monitor.begin_window("training")
for e in range(epochs):
    monitor.begin_window(f"epoch {e}")
    for x, y in train_data_loader:
        y_hat = model(x)
    mes = monitor.end_window(f"epoch {e}")
mes = monitor.end_window("training")
"""
OPTIMIZING = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalPowerLimitOptimizer
monitor = ZeusMonitor(gpu_indices=[0,1,2,3])
plo = GlobalPowerLimitOptimizer(monitor)
for e in range(epochs):
    plo.on_epoch_begin()
    for x, y in train_data_loader:
        plo.on_step_begin()
        y_hat = model(x)
        plo.on_step_end()
    plo.on_epoch_end()
"""
CHOOSING = """
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Time, Energy, MaxSlowdownConstraint
plo = GlobalPowerLimitOptimizer(monitor, MaxSlowdownConstraint(factor=1.1))
"""

AROUND = """
import torch
from zeus.device import get_gpus

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
criterion = torch.nn.MSELoss()
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
train_data_loader = torch.utils.data.DataLoader(data, batch_size=4)
epochs = 3
limits = lambda: [gpu.power_limit() for gpu in get_gpus()]
"""


def programs() -> list[str]:
    """The three programs."""
    if not SLIDES:
        return [MEASURING, OPTIMIZING, CHOOSING]
    blocks = re.findall(r"^```\n(.*?)^```$", SLIDES[0].read_text(encoding="utf-8"), re.M | re.S)
    return [without_numbers(block) for block in blocks]


def without_numbers(block: str) -> str:
    """A listing without its line numbers, which are followed by a space or fill two columns."""
    for pattern in (r"^\d+ ?", r"^[\d ]{2}"):
        text = "\n".join(re.sub(pattern, "", line) for line in block.splitlines())
        try:
            ast.parse(text)
        except SyntaxError:
            continue
        return text
    raise AssertionError(f"not a program: {block}")


def test_there_are_three():
    measuring, optimizing, choosing = programs()
    assert "ZeusMonitor(gpu_indices=[0,1,2,3])" in measuring
    assert "GlobalPowerLimitOptimizer(monitor)" in optimizing
    assert "MaxSlowdownConstraint(factor=1.1)" in choosing


@pytest.mark.real_time
def test_the_slides_programs_run():
    measuring, optimizing, choosing = programs()
    onlookers = simulated.build(SPEC, MonotonicClock(), None)
    for number, gpu in enumerate(onlookers):
        gpu.set_power_limit(150 + number)
    before = [150.0, 151.0, 152.0, 153.0]
    clients = Clients(ZEUS_SIMULATE=SPEC, ZEUS_HELPER="0")
    try:
        told = clients.ask(
            AROUND
            + measuring
            + "\nmeasured = [mes.time, sorted(mes.gpu_energy.values())]\n"
            + optimizing
            + "\nprofiling, amid = plo.profiling_steps, limits()\nfirst = plo\n"
            + choosing
            + """
say([measured, plo.objective, amid, first.report().steps, first.trouble, plo.trouble])
"""
        )
    finally:
        clients.stop()
    measured, objective, amid, steps, *troubles = told
    assert measured[0] > 0
    assert len(measured[1]) == 4
    assert min(measured[1]) > 0
    assert objective == "MaxSlowdownConstraint(factor=1.1)"
    assert amid == [150.0] * 4, "the first limit that is tried: the lowest that was found"
    assert steps == 3 * 16
    assert troubles == ["", ""]
    assert [gpu.power_limit() for gpu in onlookers] == before


@pytest.mark.parametrize(
    "line",
    [
        "from zeus.optimizer import GlobalPowerLimitOptimizer",
        "from zeus.optimizer import GlobalFrequencyOptimizer, Callback",
        "from zeus.optimizer.power_limit import Time, Energy, MaxSlowdownConstraint, ZeusCost",
        "from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, Objective, PowerCap",
        "from zeus.optimizer.power_limit import Deadline, EnergyBudget, LatencyBound",
    ],
)
def test_published_lines(line):
    exec(line, {})


def test_importing_takes_no_framework():
    script = (
        "import sys; from zeus.optimizer import GlobalPowerLimitOptimizer; "
        "heavy = {'torch', 'numpy', 'pandas', 'matplotlib', 'rich', 'scipy'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LONG_ENOUGH)
