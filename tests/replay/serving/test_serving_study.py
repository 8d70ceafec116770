"""The default, static clocks, a controller and the oracle on the same traffic."""

from __future__ import annotations

import pytest

from zeus.optimizer.serving._interval import Decision, ServingSetting
from zeus.replay.serving import Runs, find_oracle, study, suitable_replicas
from zeus.testing import ServingWorkload, Traffic

V100 = ServingWorkload.mistral_7b_v100()
TRAFFIC = Traffic.poisson(1.0, 150, prompt=900, generated=100, seed=7)


@pytest.fixture(scope="module")
def runs():
    return Runs(V100, TRAFFIC, 2)


@pytest.mark.parametrize("factor", [1.1, 2.0])
def test_no_setting_that_keeps_the_bounds_is_better_than_the_oracle(runs, factor):
    bounds = runs.bounds(factor)
    oracle = find_oracle(runs, bounds)
    best = runs.static(oracle.best)
    assert bounds.kept_by(best)
    assert best.energy <= runs.static(oracle.static).energy
    assert oracle.static.prefill == oracle.static.decode
    clocks = runs.clocks()[::3]
    for prefill in clocks:
        for decode in clocks:
            other = runs.static(ServingSetting(prefill, decode))
            # Not every pair is tried, so allow for a hair.
            assert not bounds.kept_by(other) or other.energy >= 0.99 * best.energy


def test_near_the_default_only_phases_save(runs):
    oracle = find_oracle(runs, runs.bounds(1.1))
    assert runs.static(oracle.best).energy < 0.8 * runs.default.energy
    assert oracle.best.prefill > oracle.best.decode
    assert runs.static(oracle.static).energy > 0.85 * runs.default.energy


def test_servers_are_as_many_as_are_busy_enough():
    traffic = Traffic.poisson(2.0, 200, prompt=900, generated=120, seed=7)
    number = suitable_replicas(V100, traffic)
    assert 0.5 <= Runs(V100, traffic, number).default.busy_share <= 0.7
    assert suitable_replicas(V100, Traffic([(0, 10, 2), (60, 10, 2)])) == 1


def test_every_approach_is_compared_with_the_default():
    def maker(clocks, bounds):
        def run(_):
            while True:
                yield Decision(ServingSetting(clocks[0], clocks[len(clocks) // 2]))

        return run

    found = study(
        TRAFFIC,
        V100,
        replicas=2,
        factors=[1.3],
        approaches=("default", "static", "controller", "oracle"),
        controllers={"half": maker},
    )
    by_name = {each.approach: each for each in found.outcomes}
    best = {"best static", "best per phase", "oracle", "oracle, minutes kept"}
    assert set(by_name) == {"default", "static", *best, "half"}
    assert by_name["default"].saved == 0
    assert by_name["oracle"].of_oracle == pytest.approx(1)
    assert 0 <= by_name["oracle, minutes kept"].saved <= by_name["oracle"].saved
    assert by_name["oracle, minutes kept"].kept >= by_name["default"].kept - 0.01
    statics = [each for each in found.outcomes if each.approach == "static"]
    assert len(statics) == len(Runs(V100, TRAFFIC, 2).clocks())
    assert by_name["half"].setting is None
    assert by_name["half"].changes == 1
    assert 0 < (by_name["half"].of_oracle or 0.0) <= 1.05
    assert found.missing == {}


@pytest.mark.parametrize(
    ("traffic", "options", "message"),
    [
        (Traffic([]), {}, "has none"),
        (TRAFFIC, {"factors": [0.9]}, "factor"),
        (TRAFFIC, {"approaches": ["magic"]}, "magic"),
    ],
)
def test_impossible_studies_are_refused(traffic, options, message):
    with pytest.raises(ValueError, match=message):
        study(traffic, V100, replicas=1, **options)
