"""Models of recorded pipelines predict schedules that they have not seen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.replay.pipelines import made_up

from zeus.errors import TraceError
from zeus.replay.pipelines import compare_plans, fit_model, read_recording, splits, validate
from zeus.replay.pipelines._engine import Engine, Executor

RECORDED = (
    "a100-gpt3-xl-pp4-mb128",
    "a100-t5-3b-pp4-mb32",
    "a40-bert-huge-pp8-mb32",
    "a40-gpt3-2.7b-pp8-mb256",
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return read_recording(made_up.record(tmp_path_factory.mktemp("recorded"), schedules=22))


def test_the_engine_executes_as_the_cluster_does(recording):
    loads = np.array([made_up.LOAD, 0, 0, made_up.LOAD])
    engine = Engine(np.array(made_up.LINKS), loads, made_up.TAIL)
    runs = list(recording.runs.values())
    times, passed = Executor(4, 16)(
        engine,
        *(np.stack([run.times[kind] for run in runs], axis=1) for kind in ("forward", "backward")),
    )
    assert times == pytest.approx(np.array([run.time for run in runs]))
    assert passed.shape == (len(runs), 3)
    # A longer link lengthens the iteration by as much for each exchange on the critical path.
    later = Engine(engine.links + np.array([0, 1e-6, 0]), loads, made_up.TAIL)
    longer, _ = Executor(4, 16)(
        later,
        *(np.stack([run.times[kind] for run in runs], axis=1) for kind in ("forward", "backward")),
    )
    assert (longer - times) / 1e-6 == pytest.approx(passed[:, 1], abs=0.01)


@pytest.mark.parametrize("which", [0, 1])
def test_a_made_up_cluster_is_predicted_from_half_of_its_schedules(recording, which):
    errors = validate(recording, splits(recording)[which])
    # Half of the schedules need not show every link, so a few of the others are worse.
    assert np.median(abs(errors.time)) < 1e-4
    assert np.median(abs(errors.energy)) < 1e-3
    assert abs(errors.time).max() < 0.01
    assert abs(errors.energy).max() < 0.01


def test_one_odd_run_does_not_decide_a_fit(recording):
    odd = recording.runs[9]
    waited = 0.1 * odd.time
    energies = odd.energies + made_up.BLOCKING * waited
    runs = {**recording.runs, 9: replace(odd, time=odd.time + waited, energies=energies)}
    errors = validate(replace(recording, runs=runs), splits(recording)[0])
    assert np.median(abs(errors.time)) < 2e-3
    assert np.median(abs(errors.energy)) < 1e-3


def test_schedules_whose_numbers_are_all_odd_are_split_by_position(recording):
    runs = {number: run for number, run in recording.runs.items() if number % 2}
    even, odd, _ = splits(replace(recording, runs=runs))
    assert (even.predicted, even.fitted) == (odd.fitted, odd.predicted)
    assert even.predicted == [3, 7, 11, 15, 19]
    assert even.fitted == [5, 9, 13, 17, 21]


def test_the_slow_link_and_the_powers_are_found(recording):
    model = fit_model(recording, [run.number for run in recording.planned])
    assert model.engine.links[1] == pytest.approx(made_up.LINKS[1], abs=0.003)
    clocks = np.array([1110.0, 1410.0])
    true = np.array([[made_up.watts(stage, clock) for clock in clocks] for stage in range(4)])
    assert model.powers(clocks) == pytest.approx(true, rel=0.02)


def test_too_few_schedules_are_refused(recording):
    with pytest.raises(TraceError, match="at least 3"):
        fit_model(recording, [2, 2, 3])
    with pytest.raises(TraceError, match="recorded are"):
        fit_model(recording, [2, 3, 99])


def test_ranks_beyond_the_stages_are_pipelines_of_their_own(tmp_path):
    """As with data and tensor parallelism, of which loads were not recorded."""
    folder = made_up.record(tmp_path, schedules=12)
    for path in folder.glob("*.json"):
        ranks = json.loads(path.read_text())
        twice = [{**rank, "rank": rank["rank"] + at} for at in (0, 4) for rank in ranks]
        for rank in twice:
            rank.get("time_breakdown", {}).pop("load", None)
        path.write_text(json.dumps(twice))
    wide = read_recording(folder)
    assert (wide.ranks, wide.stages) == (8, 4)
    errors = validate(wide, splits(wide)[0])
    assert abs(errors.time).max() < 0.02
    assert abs(errors.energy).max() < 0.02
    assert all(each.saved > 0 for each in compare_plans(wide, splits(wide)[0]))


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.thorough(keep=1)
def test_recorded_clusters_are_predicted(traces, name):
    path = traces / "pipelines" / f"{name}.tar.xz"
    if not path.exists():
        pytest.skip(f"there is no recording at {path}")
    recorded = read_recording(path)
    even, odd, faster = (validate(recorded, split) for split in splits(recorded))
    for errors in (even, odd):
        assert np.median(abs(errors.time)) <= 0.002
        assert abs(errors.time).max() <= 0.01
        assert np.median(abs(errors.energy)) <= 0.004
        assert abs(errors.energy).max() <= 0.0125
    assert np.median(abs(faster.time)) <= 0.01
    assert np.median(abs(faster.energy)) <= 0.02
