"""Pytest fixtures around the simulated AMD SMI library, to be imported by a conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

from .build import build


@pytest.fixture(scope="session")
def amdsmi_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a freshly compiled libamd_smi.so."""
    return build("amdsmi", tmp_path_factory.mktemp("amdsmi-library")).parent
