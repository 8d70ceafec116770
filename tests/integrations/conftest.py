"""For all tests of integrations."""

from __future__ import annotations

import sys

import pytest
from tests.integrations.support import Recorder

from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer, JobSpec
from zeus.testing import SimulatedNode


@pytest.fixture(autouse=True)
def one_thread():
    """Models are tiny, and processors are shared: threads that wait for each other cost most."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def node():
    """Stands in for the machine, in virtual time."""
    with SimulatedNode("v100") as node:
        yield node


@pytest.fixture
def recorder():
    """Told by an integration, tells the story."""
    return Recorder()


@pytest.fixture
def shared_batch(node, tmp_path):
    """A recurring job's optimizer: batches of 4, in two local batches of 2 for each step."""
    spec = JobSpec("shared", (2, 4, 8), default_batch_size=4, target_metric=0.9)
    storage = f"sqlite:///{tmp_path}/jobs.db"
    monitor = ZeusMonitor(cpu_indices=[], node=node, sync_execution_with=None)
    with BatchSizeOptimizer(
        monitor, job=spec, storage=storage, max_local_batch_size=2
    ) as optimizer:
        assert (optimizer.local_batch_size, optimizer.accumulation_steps) == (2, 2)
        yield optimizer
