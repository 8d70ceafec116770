"""Training runs in virtual time, from the first step to the end: real clients, a real store."""

from __future__ import annotations

import dataclasses
import logging
import random
import re
from pathlib import Path

import pytest
from tests.optimizer.pipeline_frequency.job.reports import registering, registration
from tests.optimizer.pipeline_frequency.running.rig import Training, settle, under_plan
from tests.present import present

from zeus.errors import CapabilityError, PipelineError, Reason, ServerError, UnknownDeviceError
from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.optimizer.pipeline_frequency.api._commands import (
    DeletePipeline,
    ReportStraggler,
    ShowFrontier,
    ShowPipeline,
    ShowProfile,
)
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store
from zeus.testing import SimulatedNode, Workload

LOADS = (0.25, 0.25, 0.3)  # forwards of 25 to 30 ms, backwards of twice that
QUICK = {"clock_stride": 60}


@pytest.fixture
def api(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/jobs.db")
    yield Pipelines(store)
    store.close()


def plain(**shape):
    """An iteration without Zeus."""
    return Training(LOADS, **shape).iterate(2)[-1]


def locks(training: Training):
    return [gpu.locked_graphics_clock() for gpu in training.node.gpus]


# --- energy down, time unchanged ------------------------------------------------------------------


def test_the_plan_saves_energy_and_takes_no_more_time(api):
    training = Training(LOADS)
    training.connect(api, **QUICK)
    settle(training)
    before, after = plain(), under_plan(training)
    assert after.time == pytest.approx(before.time, rel=1e-6)
    assert after.energy < 0.91 * before.energy
    # Exactly what the server said it would take, up to what the meters could not see.
    standing = present(training.optimizers[0].standing)
    assert standing.time == pytest.approx(after.time, rel=1e-3)
    assert standing.energy == pytest.approx(after.energy, rel=5e-3)
    # Every instruction ran at the clock that was planned for it.
    for optimizer, clocks in zip(training.optimizers, after.clocks, strict=True):
        assert tuple(clocks[1:]) == present(optimizer.standing).clocks
    # What steps take beside what was planned is reported by the ranks.
    assert api.do(ShowFrontier(job="test"))["step_time"] == pytest.approx(after.time, rel=1e-6)
    # The waiting GPUs' power was measured, not configured.
    assert api.do(ShowFrontier(job="test"))["blocking_power"] == pytest.approx(83.0, rel=0.02)
    training.close()
    assert locks(training) == [None] * 3
    assert [rank["state"] for rank in api.do(ShowPipeline(job="test"))["ranks"]] == ["ended"] * 3


def test_the_first_plan_comes_early_and_iterations_are_hardly_slower_until_then(api):
    training = Training(LOADS)
    training.connect(api, clock_stride=45)  # 27 clocks
    before = plain()
    times = []
    while training.optimizers[0].state != "following":
        times.append(training.iterate()[0].time)
    assert len(times) <= 10
    assert sum(times) <= 1.1 * len(times) * before.time
    first = under_plan(training)
    assert first.time <= 1.002 * before.time
    assert first.energy < 0.93 * before.energy
    training.close()


@pytest.mark.thorough
def test_plans_stay_as_good_when_exploring_is_long_ago(api):
    training = Training(LOADS)
    training.connect(api, **QUICK)
    training.until("following")
    before = plain()
    for _ in range(5):
        training.iterate(40)
        after = under_plan(training)
        standing = present(training.optimizers[0].standing)
        assert after.time <= 1.002 * before.time
        assert after.energy < 0.91 * before.energy
        assert standing.time == pytest.approx(after.time, rel=2e-3)
        assert standing.energy == pytest.approx(after.energy, rel=1e-2)
    training.close()


@pytest.mark.thorough
def test_one_iteration_of_fifty_runs_at_the_highest_clocks_and_shows_what_is_saved(api):
    training = Training(LOADS)
    training.connect(api, **QUICK)
    settle(training)
    before, after = plain(), under_plan(training)
    iterations = training.iterate(100)
    fast = [each for each in iterations if {c for gpu in each.clocks for c in gpu[1:]} == {1410}]
    assert len(fast) == 2
    for each in fast:
        assert each.energy == pytest.approx(before.energy, rel=1e-3)
    saved = present(api.saved("test"))
    assert saved.references >= 4, "those before the current plan as well"
    assert saved.slowdown == pytest.approx(0.0, abs=1e-4)
    assert saved.energy == pytest.approx(1 - after.energy / before.energy, abs=5e-3)
    training.close()


def test_interleaved_stages(api):
    training = Training((0.25, 0.25, 0.275, 0.325), chunks=2, microbatches=4, tell_microbatch=True)
    before = training.iterate(2)[-1]
    training.connect(api, clock_stride=120)
    settle(training)
    after = under_plan(training)
    assert after.time <= 1.002 * before.time
    assert after.energy < before.energy
    training.close()


class Noisy(Training):
    """Whose GPU draws more in some steps than in others."""

    draws = random.Random(0)

    def _iterate(self):
        self.activity = 0.9 * (1 + self.draws.gauss(0, 0.03))
        return super()._iterate()

    def workload(self, step, pipeline):
        return dataclasses.replace(super().workload(step, pipeline), activity=self.activity)


def test_clocks_are_measured_down_to_the_best_one_although_steps_differ(api):
    def measured(training):
        training.connect(api, clock_stride=45)
        training.until("following")
        options = api.do(ShowProfile(job="test"))
        training.close()
        api.do(DeletePipeline(job="test"))
        return [option for option in options if option["instruction"] == "forward"]

    exact = {option["frequency"]: option["energy"] for option in measured(Training((0.25,)))}
    for seed in range(3):
        training = Noisy((0.25,))
        training.draws = random.Random(seed)
        lowest = measured(training)[-1]["frequency"]
        reached = min(joules for clock, joules in exact.items() if clock >= lowest)
        assert reached <= 1.02 * min(exact.values()), "steps differ by 3 %"


def test_messages_between_stages_are_learned_and_leave_no_iteration_slower(api):
    training = Training(LOADS, message=0.005)
    before = training.iterate(2)[-1]
    training.connect(api, **QUICK)
    settle(training)
    after = under_plan(training)
    assert after.time <= 1.002 * before.time
    assert after.energy < 0.95 * before.energy
    assert present(training.optimizers[0].standing).time == pytest.approx(after.time, rel=2e-3)
    planned = [event for event in api.events("test") if event.kind == "plan"]
    assert all(event.message.endswith("messages take up to 5 ms") for event in planned)
    rows = api.do(ShowProfile(job="test"))
    assert {row["instruction"] for row in rows} == {"forward", "backward", "communication"}
    sent = [row for row in rows if row["instruction"] == "communication"]
    assert {row["stage"]: row["time"] for row in sent} == pytest.approx({0: 0.005, 1: 0.005})
    assert {row["frequency"] for row in sent} == {None}
    training.close()


def test_a_straggler_changes_the_very_next_iteration_and_so_does_its_recovery(api):
    training = Training(LOADS, pipelines=2)
    training.connect(api, **QUICK)
    settle(training)
    usual = under_plan(training)
    training.slow[1] = 1.15
    (wasteful,) = training.iterate()
    training.optimizers[4].report_straggler(slowdown=1.15)
    (frugal,) = training.iterate()
    assert frugal.time <= 1.002 * wasteful.time, "the straggler itself hurries as before"
    assert frugal.energy < 0.99 * wasteful.energy
    training.slow[1] = 1.0
    api.do(ReportStraggler(job="test", straggler=Straggler(1, healthy=True)))
    (healthy,) = training.iterate()
    assert healthy.time <= 1.002 * usual.time
    assert healthy.energy == pytest.approx(usual.energy, rel=1e-2)
    training.close()


def test_a_previous_lock_is_the_highest_clock_and_comes_back(api):
    training = Training(LOADS)
    with training.node.gpus[0].hold(graphics_clock=(210, 1200)):
        training.connect(api, **QUICK)
        training.until("following")
        measured = api._read("test").ranks[0].measured
        clocks = [option.frequency for options in measured.options.values() for option in options]
        assert max(clocks) == 1200
        training.close()
        assert locks(training)[0].maximum == 1200
    assert locks(training) == [None] * 3


# --- steps that are not as planned ----------------------------------------------------------------


def test_a_last_batch_with_fewer_microbatches_runs_at_the_highest_clocks(api):
    training = Training(LOADS)
    training.connect(api, **QUICK)
    settle(training)
    planned = under_plan(training)
    whole = training.order
    training.order = [[step for step in steps if step.microbatch < 2] for steps in whole]
    (short,) = training.iterate()
    assert short.clocks[0][-1] == 1410
    training.order = whole
    assert training.iterate(2)[-1].clocks == planned.clocks
    assert all(optimizer.trouble == "" for optimizer in training.optimizers)
    training.close()


def test_orders_that_do_not_fit_together_leave_training_as_it_was(api, monkeypatch):
    training = Training(LOADS[:2])
    forwards, backwards = training.order[0][:6], training.order[0][6:]
    training.order[0] = [*forwards, *backwards]
    training.connect(api, **QUICK)
    # As a rank whose hooks miss one forward would tell it.
    original = training.optimizers[1].on_instruction_begin
    skipped: list[str] = []

    def forgetful(name, **details):
        if name == "forward" and not skipped:
            skipped.append(name)
            name = "warm-up"
        original(name, **details)

    ended = training.optimizers[1].on_instruction_end
    monkeypatch.setattr(training.optimizers[1], "on_instruction_begin", forgetful)
    monkeypatch.setattr(
        training.optimizers[1],
        "on_instruction_end",
        lambda name: ended(present(training.optimizers[1]._open).name),
    )
    for _ in range(40):
        skipped.clear()
        training.iterate()
    standing = present(training.optimizers[0].standing)
    assert standing.state == "cannot plan"
    assert "stage 1 has 5 and stage 0 has 6" in standing.message
    assert locks(training) == [None, None]
    training.close()


def client(api=None, node=None, **options):
    node = node or SimulatedNode("a100", sensors="live-power")
    arguments = {"job": "test", "node": node, "api": api, "sync_execution_with": None, **options}
    return PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, "http://127.0.0.1:1", **arguments)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([("end", "forward")], "'forward' ends, but none began"),
        ([("begin", "forward"), ("begin", "backward")], "'forward' must end before 'backward'"),
        ([("begin", "forward"), ("end", "backward")], "'backward' ends, but 'forward' began"),
        ([("begin", "forward")], "'forward' must end before its step does"),
    ],
)
def test_hooks_in_the_wrong_order_end_in_one_warning(api, caplog, calls, said):
    optimizer = client(api)
    with caplog.at_level(logging.WARNING, "zeus"):
        for _ in range(3):
            optimizer.on_step_begin()
            for what, name in calls:
                getattr(optimizer, f"on_instruction_{what}")(name)
            optimizer.on_step_end()
    assert [record for record in caplog.messages if said in record] == caplog.messages
    assert len(caplog.messages) == 1
    assert (optimizer.state, said in optimizer.trouble) == ("off", True)
    optimizer.close()


def test_instructions_outside_of_steps_are_evaluation(api):
    optimizer = client(api)
    with optimizer.instruction("forward"):
        pass
    optimizer.on_instruction_end("never begun")
    assert optimizer.trouble == ""
    optimizer.close()


# --- trouble elsewhere ----------------------------------------------------------------------------


def test_clocks_that_cannot_be_set_are_one_warning_and_told_to_the_server(api, caplog, monkeypatch):
    training = Training(LOADS)
    refusal = CapabilityError(Reason.NO_PERMISSION, "setting clocks", "run as root")

    def refuse(_):
        raise refusal

    monkeypatch.setattr(training.node.gpus[1].driver, "lock_graphics_clock", refuse)
    training.connect(api, **QUICK)
    with caplog.at_level(logging.WARNING, "zeus"):
        training.iterate(30)
    assert len(caplog.messages) == 1
    assert "rank 1 keeps its previous clocks: no permission" in caplog.messages[0]
    assert "rank 1 cannot take part: no permission" in api.do(ShowPipeline(job="test"))["status"]
    assert training.optimizers[0].state == "waiting"
    assert locks(training) == [None] * 3
    training.close()


def test_a_server_that_has_forgotten_everything_is_told_everything(api, caplog):
    training = Training(LOADS)
    training.connect(api, **QUICK)
    settle(training)
    clocks = under_plan(training).clocks
    api.do(DeletePipeline(job="test"))
    training.iterate(3)
    training.until("following")
    assert training.iterate(2)[-1].clocks == clocks
    assert api.do(ShowPipeline(job="test"))["status"] == "planned"
    assert caplog.messages == []
    training.close()


def test_a_rank_whose_place_is_taken_is_told_and_keeps_its_clocks(api, caplog):
    training = Training(LOADS)
    training.connect(api, **QUICK)
    training.until("following")
    taker = PipelineFrequencyOptimizer(
        0, 0, 0, 0, 0, 1, 3, 1, 3, "http://127.0.0.1:1", job="test", node=training.node, api=api
    )
    with caplog.at_level(logging.WARNING, "zeus"):
        taker.on_step_begin()
        training.iterate(2)
    assert training.optimizers[0].state == "off"
    assert "was registered again by another process" in training.optimizers[0].trouble
    assert locks(training)[0] is None
    assert training.optimizers[1].state == "waiting", "the plan is withdrawn until all is measured"
    assert len(caplog.messages) == 1
    training.close()
    taker.close()


def test_a_rank_that_the_server_does_not_take_keeps_its_clocks(api, caplog):
    api.do(registering("test", registration(1, (4, 2, 1))))
    with caplog.at_level(logging.WARNING, "zeus"):
        optimizer = client(api)  # the only rank of another shape
        for _ in range(3):
            optimizer.on_step_begin()
            optimizer.on_step_end()
    assert "give another job another name" in optimizer.trouble
    assert len(caplog.messages) == 1
    optimizer.close()


def test_gpus_that_compute_together_follow_the_same_clocks(api):
    node = SimulatedNode("a100x2", load=0.0, sensors="live-power")
    pair = [
        PipelineFrequencyOptimizer(
            rank, 0, 0, rank, rank, 1, 1, 2, 2, "http://127.0.0.1:1", job="test", node=node,
            api=api, clock_stride=120, sync_execution_with=None,
        )
        for rank in range(2)
    ]  # fmt: skip
    work = Workload("forward", 0.1, activity=0.9, compute_bound=0.8)
    clocks = []
    for _ in range(60):
        for each in pair:
            each.on_step_begin()
            each.on_instruction_begin("forward")
        if any(each.state == "measuring" for each in pair):
            clocks.append([gpu.locked_graphics_clock() for gpu in node.gpus])
        work.run(node.gpus)  # the slower one sets the pace
        for each in pair:
            each.on_instruction_end("forward")
            each.on_step_end()
    assert len(clocks) > 9
    assert all(first == second for first, second in clocks), "they walk together"
    assert [each.state for each in pair] == ["following"] * 2
    (rank, other) = api._read("test").ranks.values()
    for kind, options in rank.measured.options.items():
        assert len(options) > 3
        for ours, theirs in zip(options, other.measured.options[kind], strict=True):
            assert ours.time == pytest.approx(theirs.time)
    for each in pair:
        each.close()


def test_the_document_names_what_there_is():
    text = (Path(__file__).parents[4] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    named = set(re.findall(r"optimizer\.(\w+)\(", text))
    assert {"instruction", "report_straggler", "close"} <= named
    assert all(hasattr(PipelineFrequencyOptimizer, name) for name in named)


# --- what is refused at once ----------------------------------------------------------------------


def test_mistakes_are_told_when_it_is_made():
    node = SimulatedNode("a100", sensors="live-power")
    with pytest.raises(PipelineError, match="`0 <= pp_rank < 1` must hold"):
        PipelineFrequencyOptimizer(0, 0, 1, 0, 0, 1, 1, 1, 1, "http://h:1", node=node)
    with pytest.raises(ServerError, match="must be given as http://HOST:PORT"):
        PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, "localhost:8420", node=node)
    with pytest.raises(UnknownDeviceError):
        PipelineFrequencyOptimizer(0, 0, 0, 0, 5, 1, 1, 1, 1, "http://h:1", node=node)
    with pytest.raises(PipelineError, match="`0 <= blocking_power"):
        client(blocking_power=-1.0)
    with pytest.raises(PipelineError, match="`2 <= warm_up_steps"):
        client(warm_up_steps=1)
    optimizer = client(Pipelines.__new__(Pipelines))
    with pytest.raises(PipelineError, match="exactly one of"):
        optimizer.report_straggler()
    with pytest.raises(PipelineError, match="`0 <= dp_rank < 1` must hold, but got dp_rank=4"):
        optimizer.report_straggler(slowdown=1.2, dp_rank=4)


def test_the_job_has_the_name_that_the_launcher_gave_it(api, monkeypatch):
    for variable in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    assert client(api, job=None, job_metadata="GPT-3  175B\n").job == "GPT-3 175B"
    assert client(api, job=None).job == "pipeline"
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert client(api, job=None, job_metadata="GPT-3").job == "4711"
    assert client(api, job="mine").job == "mine"
