"""What tests of holds have in common: an odd limit, who reads it, and who comes next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.device.clients import SPEC, Clients, onlookers

from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._node import simulated_node

ODD = 187.5
"""Watts that nobody would put back by mistake: neither the maximum nor the default."""


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients(ZEUS_SIMULATE=SPEC)
    yield clients
    clients.stop()


@pytest.fixture
def limit() -> Any:
    """Reads the limit that is in force on the shared GPU 0, which begins at an odd value."""
    gpu = onlookers()[0]
    gpu.set_power_limit(ODD)
    return gpu.power_limit


@pytest.fixture
def gpu() -> Gpu:
    """A GPU in virtual time."""
    gpu = simulated_node("v100", VirtualClock()).gpus[0]
    gpu.driver.set_power_limit(ODD)
    return gpu


def recovered(clients: Clients) -> float:
    """The limit after Zeus has started again on the machine."""
    watts: float = clients.ask("say(get_gpus()[0].power_limit())")
    return watts
