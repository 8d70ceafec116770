"""Pytest fixtures that compile the libraries, to be imported by a conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulated_drivers._build import build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a freshly compiled libnvidia-ml.so.1."""
    return build("nvml", tmp_path_factory.mktemp("nvml-library")).parent


@pytest.fixture(scope="session")
def amdsmi_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a freshly compiled libamd_smi.so."""
    return build("amdsmi", tmp_path_factory.mktemp("amdsmi-library")).parent
