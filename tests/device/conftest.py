"""Fixtures of the device room: clients of real and simulated drivers, and GPUs to hold."""

from __future__ import annotations

from tests.device.amd_clients import ask, node_root, run, simulate
from tests.device.holding import clients, gpu, limit
from tests.device.nvml_rig import rig

__all__ = ["ask", "clients", "gpu", "limit", "node_root", "rig", "run", "simulate"]
