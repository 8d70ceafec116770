"""A service that only shows a page of metrics, as of vLLM: it is read, and energy is saved."""

from __future__ import annotations

import pytest

import serving_worlds
from zeus.replay.serving import Runs
from zeus.testing import ServingWorkload, Traffic


@pytest.fixture(scope="module")
def runs():
    return Runs(ServingWorkload.mistral_7b_v100(), Traffic.poisson(0.5, 1800, seed=77), 1)


@pytest.mark.parametrize(("factor", "least"), [(1.1, -0.001), (1.3, 0.03), (2.0, 0.2)])
def test_bounds_are_kept_and_energy_is_saved(runs, factor, least):
    found = serving_worlds.controlled(runs, runs.bounds(factor), phases=False, metrics_only=True)
    assert found["saved"] > least
    assert found["ttft of its bound"] <= 1
    assert found["tpot of its bound"] <= 1
