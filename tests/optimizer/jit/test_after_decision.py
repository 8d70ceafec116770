"""What a step costs once the choice is made: counted, not timed."""

from __future__ import annotations

import sys

import pytest
from tests.optimizer.support import Loop, monitor, work

from zeus.device._base import GpuDriver
from zeus.errors import CapabilityError, Reason
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.testing import SimulatedNode

JOB = work(0.05, activity=1.0, compute_bound=0.4)
QUESTIONS = [name for name, member in vars(GpuDriver).items() if callable(member)]


class Counted:
    """Counts what an optimizer asks of its node and its monitor."""

    def __init__(self, node, watching):
        self.calls = []
        for gpu in node.gpus:
            for name in QUESTIONS:
                if not name.startswith("_"):
                    self._count(gpu.driver, name)
        for name in ("open_scope", "close_scope", "begin_window", "end_window", "_sync"):
            self._count(watching, name)

    def _count(self, thing, name):
        original = getattr(thing, name)

        def counted(*arguments, **options):
            self.calls.append(name)
            return original(*arguments, **options)

        setattr(thing, name, counted)


def refuse(node):
    def setter(*_):
        raise CapabilityError(Reason.NO_PERMISSION, "power limit control")

    node.gpus[0].driver.set_power_limit = setter


@pytest.mark.parametrize("outcome", ["decided", "observing", "refused", "given up", "closed"])
def test_a_step_asks_nobody_and_keeps_nothing(outcome, caplog):
    node = SimulatedNode("v100x2")
    watching = monitor(node)
    if outcome == "refused":
        refuse(node)
    optimizer = GlobalPowerLimitOptimizer(
        watching,
        {"given up": lambda frontier: None}.get(outcome),
        observe=outcome == "observing",
        warmup_steps=1,
        profile_steps=10,
        pl_step=50,
    )
    loop = Loop(node, optimizer, JOB)
    loop.epochs(3)
    optimizer.on_epoch_begin()
    for _ in range(100):  # a look at some of the epoch's steps, whether they are as profiled
        loop.step()
    if outcome == "closed":
        optimizer.close()
    assert optimizer.decided == (outcome not in ("refused", "given up"))
    counted = Counted(node, watching)
    for _ in range(100):  # so that numbers are as large as they get
        optimizer.on_step_begin()
        optimizer.on_step_end()
    blocks = sys.getallocatedblocks()
    for _ in range(20_000):
        optimizer.on_step_begin()
        optimizer.on_step_end()
    grown = sys.getallocatedblocks() - blocks
    assert counted.calls == []
    assert grown < 100
    optimizer.close()


def test_while_profiling_a_step_amid_a_stretch_asks_nobody():
    node = SimulatedNode("v100")
    watching = monitor(node)
    optimizer = GlobalPowerLimitOptimizer(watching, warmup_steps=0, profile_steps=1000)
    loop = Loop(node, optimizer, JOB)
    for _ in range(5):
        loop.step()
    counted = Counted(node, watching)
    for _ in range(400):
        optimizer.on_step_begin()
        optimizer.on_step_end()
    assert counted.calls == []


def test_a_long_run_keeps_no_record_of_every_epoch():
    node = SimulatedNode("v100")
    optimizer = GlobalPowerLimitOptimizer(
        monitor(node), warmup_steps=1, profile_steps=10, pl_step=50
    )
    loop = Loop(node, optimizer, work(1.0), epoch=4)
    loop.epochs(40)
    blocks = sys.getallocatedblocks()
    loop.epochs(50)
    assert sys.getallocatedblocks() - blocks < 1000
    optimizer.close()
