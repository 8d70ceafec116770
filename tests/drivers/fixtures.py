"""Pytest fixtures around the simulated drivers, to be imported by a conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

from .build import build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a freshly compiled libnvidia-ml.so.1."""
    return build("nvml", tmp_path_factory.mktemp("nvml-library")).parent
