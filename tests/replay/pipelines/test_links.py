"""Times of links that no iteration shows, from the slack of planned schedules."""

from __future__ import annotations

import numpy as np
import pytest
from tests.present import present
from tests.replay.pipelines import made_up

from zeus.optimizer.pipeline_frequency import solve
from zeus.replay.pipelines import fit_model, read_recording
from zeus.replay.pipelines._boards import board_named
from zeus.replay.pipelines._engine import Engine, Executor
from zeus.replay.pipelines._instructions import Kind, instructions
from zeus.replay.pipelines._model import Model
from zeus.replay.pipelines._planning import pipeline_of
from zeus.replay.pipelines._powers import Powers
from zeus.replay.pipelines._times import Curve

LINKS = (0.002, 0.05, 0.003)
SIZE = (1.0, 0.7, 0.7, 1.15)  # the last stage takes longest, even with the slow link of the others
LOADS = np.array([made_up.LOAD, 0, 0, made_up.LOAD])
CLOCKS = np.arange(1200.0, 1741.0, 15.0)
KINDS = {"forward": Kind.FORWARD, "backward": Kind.BACKWARD}


def planned(count: int) -> list[list[list[float]]]:
    """Schedules of a planner that knows the made-up cluster, links included."""
    curves = {}
    for stage in range(4):
        for name, kind in KINDS.items():
            level = made_up.seconds(kind, stage, 1740)
            curves[stage, name] = Curve(1740.0, level, 0.8 * level, CLOCKS, 0 * CLOCKS)
    powers = Powers(
        np.array([150.0, 5.0]), np.array(made_up.SCALE), np.inf, board_named("a40").blocking_power
    )
    engine = Engine(np.array(LINKS), LOADS, made_up.TAIL)
    model = Model(4, 4, curves, engine, powers, Executor(4, 16))
    plans = solve(pipeline_of(model, 16, CLOCKS), plans=40).plans
    found = []
    for plan in plans[:: max(len(plans) // count, 1)][:count]:
        chosen = {
            (operation.stage, operation.instruction, operation.microbatch): present(
                option.frequency
            )
            for operation, option in zip(plan.pipeline.operations, plan.options, strict=True)
            if operation.stage is not None
        }
        clocks = []
        for stage in range(4):
            own, at = [], 1740.0
            for each in instructions(stage, 4, 16):
                at = chosen.get((stage, each.kind.value, each.index), at)
                own.append(at)
            clocks.append(own)
        found.append(clocks)
    return found


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setattr(made_up, "LINKS", LINKS)
    monkeypatch.setattr(made_up, "SIZE", SIZE)
    folder = made_up.record(tmp_path, schedules=2)
    for number, clocks in enumerate(planned(12), start=2):
        made_up.write(folder, number, clocks)
    return read_recording(folder)


def test_plans_show_links_by_what_they_run_faster_for(recording):
    model = fit_model(recording, [run.number for run in recording.planned])
    assert model.engine.links[1] == pytest.approx(LINKS[1], abs=0.003)


def test_slack_is_what_a_computation_may_take_longer(recording):
    runs = recording.planned
    engine = Engine(np.array(LINKS), LOADS, made_up.TAIL)
    execute = Executor(4, 16)
    forward, backward = (
        np.stack([run.times[kind] for run in runs], axis=1) for kind in ("forward", "backward")
    )
    counts = {"forward": np.zeros_like(forward), "backward": np.zeros_like(backward)}
    counts["backward"][2, :, 7] = 1
    found = execute.slack(engine, forward, backward, counts)
    times, passed = execute(engine, forward, backward)
    assert found.times == pytest.approx(times)
    assert (found.passed == passed).all()
    assert (found.means[[0, 1, 3]] == 0).all()
    for more, longer in ((0.0, 0.0), (0.004, 0.004)):
        slower = backward.copy()
        slower[2, :, 7] += found.means[2] + more
        assert execute(engine, forward, slower)[0] == pytest.approx(times + longer)
    links = np.array(LINKS) + np.array([0, 1e-7, 0])
    later = execute.slack(Engine(links, LOADS, made_up.TAIL), forward, backward, counts)
    # Which path limits it may change within the step; the slope holds where it does not.
    alike = (later.slopes == found.slopes).all(axis=2)
    assert alike.mean() > 0.9
    rise = (later.means - found.means) / 1e-7
    assert rise[alike] == pytest.approx(found.slopes[alike, 1], abs=0.01)


def test_links_of_schedules_that_were_not_planned_are_those_of_the_times(tmp_path):
    """Their computations have slack whatever the links are, which must not count."""
    recording = read_recording(made_up.record(tmp_path, schedules=22))
    model = fit_model(recording, [run.number for run in recording.planned])
    assert model.engine.links[1] == pytest.approx(made_up.LINKS[1], abs=0.001)


def test_the_link_between_machines_is_found(traces):
    """Both halves of the recorded schedules agree that one link is far slower than the others."""
    path = traces / "pipelines" / "a40-bert-huge-pp8-mb32.tar.xz"
    if not path.exists():
        pytest.skip(f"there is no recording at {path}")
    recorded = read_recording(path)
    for parity in (0, 1):
        numbers = [run.number for run in recorded.planned if run.number % 2 == parity]
        links = fit_model(recorded, numbers).engine.links
        assert 0.04 <= links[3] <= 0.08
        assert max(np.delete(links, 3)) < 0.02
