"""For all tests of integrations."""

from __future__ import annotations

import sys

import pytest
from tests.integrations.support import Recorder

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
