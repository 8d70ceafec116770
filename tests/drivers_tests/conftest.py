"""Fixtures for the tests of simulated drivers."""

from __future__ import annotations

from tests.drivers_tests.nvml_clients import simulate

__all__ = ["simulate"]
