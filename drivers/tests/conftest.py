"""Fixtures for the tests of the simulated drivers."""

from __future__ import annotations

from drivers.tests.nvml_clients import simulate

from simulated_drivers.fixtures import amdsmi_library, nvml_library

__all__ = ["amdsmi_library", "nvml_library", "simulate"]
