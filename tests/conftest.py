"""Fixtures for all tests: simulated driver libraries, recorded traces, a state directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from tests.browser import browser, open_page
from tests.postgresql import new_storage, postgresql, storage
from tests.prometheus import prometheus

from simulated_drivers.fixtures import amdsmi_library, nvml_library

__all__ = [
    "amdsmi_library",
    "browser",
    "new_storage",
    "nvml_library",
    "open_page",
    "postgresql",
    "prometheus",
    "storage",
]

pytest_plugins = ["tests.deadlines", "tests.reruns", "tests.signals", "tests.thorough"]

# Machines are shared and noisy: no property has a deadline. At a desk every run tries new examples;
# a build tries the same ones each time, so that it fails for what was changed and nothing else.
settings.register_profile("desk", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("build" if os.environ.get("CI") else "desk")

_VISIBILITY = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZEUS_SIMULATE",
    "ZEUS_SIMULATE_LOAD",
    "ZEUS_SIMULATE_SENSORS",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
)


@pytest.fixture(scope="session", autouse=True)
def state_of_shared_fixtures(tmp_path_factory):
    """What is set up for many tests, such as a server, does not see the user's state, either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEUS_STATE_DIR", str(tmp_path_factory.mktemp("zeus-state")))
        patch.delenv("ZEUS_TOKEN", raising=False)
        yield


@pytest.fixture(autouse=True)
def clean_environment(tmp_path, monkeypatch):
    """No test sees the user's GPUs, launcher or state, nor leaves any behind."""
    for name in _VISIBILITY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "zeus-state"))
    monkeypatch.setenv("ZEUS_AGENT", "0")


@pytest.fixture(scope="session")
def traces() -> Path:
    """The recorded data; the test is skipped where it is absent."""
    root = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
    if not root.is_dir():
        pytest.skip(f"recorded traces are not at {root}; set ZEUS_TRACES to where they are")
    return root
