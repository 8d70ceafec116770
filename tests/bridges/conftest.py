"""For all tests of bridges."""

from __future__ import annotations

import pytest

from zeus._bridges import _modules
from zeus.testing import SimulatedNode


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch):
    """As in a new process: each name warns once in it."""
    monkeypatch.setattr(_modules, "_warned", set())


@pytest.fixture
def node():
    """Stands in for the machine, in virtual time."""
    with SimulatedNode("v100x2") as node:
        yield node
