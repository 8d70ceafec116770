"""Folding logs: the same decisions again, anywhere, and the same rules as in replay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.batch_size.histories import A40, V100, decided, random_history, spec
from tests.present import present

from zeus.errors import JobLogError, RunError
from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    GpuModel,
    Profiled,
    SizeMeasured,
)
from zeus.optimizer.batch_size.job._job_batch import OPTIMIZED, Role
from zeus.optimizer.batch_size.policies._fingerprint import fingerprint
from zeus.optimizer.batch_size.policies._job_state import JobState, Setup
from zeus.replay._jobs import Job, replay
from zeus.replay._table import JobTable
from zeus.replay._world import World

POLICIES = ["zeus", "paper", "paper-repaired", "grid", "default"]
policies = st.sampled_from(POLICIES)


def beliefs(brain: JobState) -> list:
    """Everything that a brain would say next."""
    choices = [brain.decide(gpu, attempt) for gpu in (A40, V100) for attempt in (0, 1)]
    return [*choices, *(brain.must_stop(number) for number in brain.log.open)]


@settings(max_examples=25)
@given(st.integers(0, 10_000), policies, st.integers(0, 80), st.sampled_from([0, 3]))
def test_folding_again_gives_the_same_decisions(seed, policy, cut, window):
    job = spec(policy=policy, window=window)
    events = random_history(job, seed, 80)
    again = JobState.of(job, events)
    brain = JobState.restored(job, JobState.of(job, events[:cut]).snapshot())
    for event in events[cut:]:
        brain.apply(event)
    assert beliefs(brain) == beliefs(again)
    assert brain.snapshot() == again.snapshot()


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_are_met_as_they_come(policy):
    job = spec(policy=policy)
    brain = JobState(job)
    two = GpuModel(A40.name, 2)
    for gpu in (V100, A40, two):
        brain.apply(decided(brain, 1.0, gpu))
    assert brain.gpus == [V100, A40, two]
    restored = JobState.restored(job, brain.snapshot())
    assert restored.gpus == brain.gpus
    assert beliefs(restored) == beliefs(brain)


@settings(max_examples=25)
@given(st.integers(0, 10_000), policies, st.sampled_from([2, 3, 4]))
def test_only_what_replicas_can_share_equally_is_chosen(seed, policy, replicas):
    job = spec(policy=policy, batch_sizes=(6, 8, 12, 16, 20, 24), default_batch_size=8)
    brain = JobState(job)
    alone, several = GpuModel("A40", 1), GpuModel("A40", replicas)
    seen = set()
    for number in range(1, 41):  # moves from one GPU to several, and back
        gpu, shares = ((alone, None), (several, replicas))[(number + seed) // 3 % 2]
        begun = decided(brain, 1.0, gpu, replicas=shares)
        brain.apply(begun)
        if shares is not None:
            assert begun.batch_size % shares == 0
            seen.add(begun.batch_size)
        brain.apply(EpochReported(trial=number, at=2.0, epoch=1, time=1.0, energy=9.0, metric=1.0))
        brain.apply(Ended(trial=number, at=3.0, outcome="converged"))
        if number == 20:
            brain = JobState.restored(job, brain.snapshot())
    if policy == "grid":
        assert seen == {size for size in job.batch_sizes if size % replicas == 0}


def test_a_default_that_cannot_be_shared_has_a_stand_in():
    job = spec(batch_sizes=(6, 8, 12, 16), default_batch_size=6, policy="default")
    two = GpuModel("A40", 4)
    assert JobState(job).decide(two, setup=Setup(4)).batch_size == 8
    assert (
        JobState(spec(batch_sizes=(6, 8), default_batch_size=6))
        .decide(two, default=True, setup=Setup(4))
        .batch_size
        == 8
    )
    with pytest.raises(RunError, match="replicas=5"):
        JobState(job).decide(two, setup=Setup(5))


@pytest.mark.parametrize("policy", POLICIES)
def test_replicas_that_can_share_everything_change_no_decision(policy):
    job = spec(policy=policy)
    events = random_history(job, 3, 60)
    brain = JobState.of(job, events)
    assert brain.decide(V100, setup=Setup(4)) == brain.decide(V100)


def test_what_a_policy_may_carry_over_to_another_gpu_it_does():
    job = spec(policy="zeus")
    brain = JobState(job)
    for _ in range(12):
        number = run(brain, 3, cost=100.0, metric=0.95)
        brain.apply(Ended(trial=number, at=3.0, outcome="converged"))
    # Nothing is known of the other GPU but how many epochs it takes, and that is a bound already.
    assert brain.decide(V100).expected_epochs == pytest.approx(3, rel=0.2)
    assert JobState(job).decide(V100).expected_epochs != pytest.approx(3, rel=0.2)


def test_a_snapshot_of_something_else_is_refused():
    brain = JobState(spec())
    for broken in (b"", b"nonsense", b"[]\n", brain.snapshot()[:-8], brain.snapshot() + b"x"):
        with pytest.raises(JobLogError):
            JobState.restored(spec(), broken)
    assert len(present(fingerprint("zeus"))) == 32
    assert fingerprint("zeus") == fingerprint("grid")
    assert fingerprint("of-another-package") is None


# --- when to stop -------------------------------------------------------------------------------


def run(brain: JobState, epochs: int, cost: float = 100.0, metric: float | None = 0.0) -> int:
    """Begin a trial and report epochs that each cost so many joules; its number."""
    brain.apply(decided(brain, 1.0))
    number = brain.log.trials
    for epoch in range(1, epochs + 1):
        brain.apply(
            EpochReported(trial=number, at=2.0, epoch=epoch, time=0.01, energy=cost, metric=metric)
        )
    return number


def test_a_trial_that_reached_the_target_has_converged():
    brain = JobState(spec())
    stop = brain.must_stop(run(brain, 3, metric=0.9))
    assert stop is not None
    assert stop.outcome == "converged"
    lower = JobState(spec(higher_is_better=False))
    assert present(lower.must_stop(run(lower, 3, metric=0.89))).outcome == "converged"


@pytest.mark.parametrize(
    ("metrics", "after"),
    [([0.95, 0.95], 2), ([0.95, 0.1, 0.95, None, 0.95], 5), ([0.95, 0.1, 0.95, 0.1], None)],
)
def test_a_target_must_hold_in_as_many_evaluations_as_the_job_says(metrics, after):
    job = spec(patience=2)
    brain = JobState(job)
    brain.apply(decided(brain, 1.0))
    for epoch, metric in enumerate(metrics, 1):
        assert brain.must_stop(1) is None
        brain.apply(
            EpochReported(trial=1, at=2.0, epoch=epoch, time=1.0, energy=9.0, metric=metric)
        )
        brain = JobState.restored(job, brain.snapshot())
    stop = brain.must_stop(1)
    if after is None:
        assert stop is None
    else:
        assert present(stop).outcome == "converged"
        assert f"in epoch {after}" in present(stop).reason


def test_a_trial_without_validation_goes_on():
    brain = JobState(spec())
    number = run(brain, 1, metric=None)
    assert brain.must_stop(number) is None


def test_a_trial_out_of_epochs_has_failed():
    brain = JobState(spec(max_epochs=3))
    number = run(brain, 2)
    assert brain.must_stop(number) is None
    brain.apply(EpochReported(trial=number, at=2.0, epoch=3, time=0.01, energy=100.0, metric=0))
    assert present(brain.must_stop(number)).outcome == "failed"


def bounded(**bounds) -> Decided:
    return Decided(
        trial=1,
        at=1.0,
        request="r",
        recurrence=1,
        gpu=A40.name,
        gpus=A40.number,
        max_power=300.0,
        batch_size=64,
        role=Role.EXPLORE,
        **bounds,
    )


def report(brain: JobState, *costs: float) -> None:
    for cost in costs:
        epoch = brain.log.open[1].epochs + 1
        brain.apply(EpochReported(trial=1, at=2.0, epoch=epoch, time=1e-9, energy=cost, metric=0))


def test_a_trial_is_stopped_before_the_epoch_that_would_cost_too_much():
    brain = JobState(spec(eta_knob=1.0))
    brain.apply(bounded(threshold=300.0))
    assert brain.must_stop(1) is None  # what the first epoch costs is not known
    report(brain, 100.0)
    assert brain.must_stop(1) is None
    report(brain, 100.0)
    assert brain.must_stop(1) is None  # the third takes it to exactly the threshold
    report(brain, 100.0)
    stop = present(brain.must_stop(1))
    assert stop.outcome == "stopped"
    assert stop.reason == "epoch 4 would take the cost to 400 J, above 300 J"


def test_a_trial_whose_first_epoch_is_known_to_cost_too_much_need_not_begin():
    brain = JobState(spec(eta_knob=1.0))
    brain.apply(
        Profiled(trial=0, at=0.0, gpu=A40.name, gpus=1, batch_size=64, epoch_cost=301.0, load=0.5)
    )
    brain.apply(bounded(threshold=300.0))
    assert present(brain.must_stop(1)).outcome == "stopped"


def test_the_first_epoch_of_a_run_tells_those_that_begin_before_it_ends():
    job = spec(policy="zeus")
    idle, silent = JobState(job), JobState(job)
    for brain in (idle, silent):
        brain.apply(decided(brain, 1.0))
    default = job.default_batch_size
    epoch = EpochReported(
        trial=1, at=2.0, epoch=1, time=100.0, energy=2000.0, metric=0.1, power_limit=250.0
    )
    idle.apply(epoch)
    assert idle.decide(A40).batch_size > default  # a GPU with room for larger batches
    assert silent.decide(A40).batch_size < default
    assert beliefs(JobState.restored(job, idle.snapshot())) == beliefs(idle)


def test_a_trial_that_can_no_longer_win_is_stopped_after_its_first_epoch():
    brain = JobState(spec(eta_knob=1.0))
    brain.apply(bounded(expected_epochs=6.0, restart_cost=450.0))
    report(brain, 100.0)
    assert present(brain.must_stop(1)).outcome == "stopped"
    kinder = JobState(spec(eta_knob=1.0))
    kinder.apply(bounded(expected_epochs=6.0, restart_cost=500.0))
    report(kinder, 100.0)
    assert kinder.must_stop(1) is None


def test_a_run_that_was_killed_tells_nothing_about_its_batch_size():
    killed, clean = JobState(spec(policy="paper")), JobState(spec(policy="paper"))
    number = run(killed, 2)
    for outcome in ("expired", "cancelled"):
        killed.apply(Ended(trial=number, at=3.0, outcome=outcome))
        assert killed.decide(A40).batch_size == clean.decide(A40).batch_size
        number = run(killed, 2)


# --- the same as in replay ----------------------------------------------------------------------


def table(generator: np.random.Generator) -> JobTable:
    """A workload of our own: every batch size always needs the same number of epochs."""
    sizes, limits = (8, 16, 32, 64, 128, 256), (100.0, 150.0, 200.0, 250.0)
    epochs = np.array([30.0, 18, 12, 11, 16, np.inf]) + generator.integers(0, 4, 6)
    time = 20 * np.array(sizes, dtype=float)[:, None] ** -0.3 * np.array([1.5, 1.2, 1.05, 1.0])
    power = 0.9 * np.array(limits) * generator.uniform(0.8, 1.0, (6, 1))
    return JobTable(
        gpu="A40",
        workload="made up",
        batch_sizes=sizes,
        power_limits=limits,
        default=int(generator.integers(0, 6)),
        target_metric=0.9,
        higher_is_better=True,
        max_epochs=40,
        max_power=250.0,
        epochs=epochs[:, None].astype(np.float64),
        time=time * generator.uniform(0.9, 1.1, (6, 1)),
        power=power,
    )


def lived(
    world: JobTable, policy: str, recurrences: int, *, measure: bool = False
) -> list[tuple[int, int, float, bool]]:
    """The same job as a client would run it: batch size, trials and cost of each recurrence."""
    job = world.spec(policy)
    gpu = GpuModel("A40", 1)
    brain = JobState(job)
    limit = world.power_limits[-1]
    for arm, size in enumerate(world.batch_sizes if measure else ()):
        cost, load = world.epoch_cost[arm, -1], world.power[arm, -1] / limit
        brain.apply(SizeMeasured(at=1.0, gpu="A40", batch_size=size, epoch_cost=cost, load=load))
    found = []
    for _ in range(recurrences):
        cost, trials, before = 0.0, 0, None
        while True:
            brain.apply(decided(brain, 1.0, gpu, before, world.max_power))
            trial = brain.log.open[brain.log.trials]
            run_trial(brain, world, trial)
            cost, trials = cost + trial.cost, trials + 1
            before = trial.decided.trial
            if present(trial.ended).outcome == "converged" or trials == 20:
                break
        arm = world.batch_sizes.index(trial.decided.batch_size)
        found.append((arm, trials, cost, present(trial.ended).outcome == "converged"))
    return found


def run_trial(brain: JobState, world: JobTable, trial) -> None:
    decision, number = trial.decided, trial.decided.trial
    arm = world.batch_sizes.index(decision.batch_size)
    best = {-1: world.best_power[arm], -2: len(world.power_limits) - 1}
    power = int(best.get(decision.power, decision.power))
    profiles = decision.power == OPTIMIZED and not trial.known
    while (stop := brain.must_stop(number)) is None:
        epoch = trial.epochs + 1
        first = profiles and epoch == 1
        time = world.time[arm].mean() if first else world.time[arm, power]
        energy = world.energy[arm].mean() if first else world.energy[arm, power]
        limit = world.power_limits[power]
        if first:
            brain.apply(
                Profiled(
                    trial=number,
                    at=1.0,
                    gpu="A40",
                    batch_size=decision.batch_size,
                    epoch_cost=world.epoch_cost[arm, power],
                    load=world.power[arm, power] / limit,
                    power_limit=limit,
                    frontier={
                        "max_power": world.max_power,
                        "points": [
                            {"knob": knob, "time": time, "energy": energy}
                            for knob, time, energy in zip(
                                world.power_limits, world.time[arm], world.energy[arm], strict=True
                            )
                        ],
                    },
                )
            )
        brain.apply(
            EpochReported(
                trial=number,
                at=1.0,
                epoch=epoch,
                time=time,
                energy=energy,
                metric=0.9 if epoch >= world.epochs[arm, 0] else 0.1,
                power_limit=None if first else limit,
            )
        )
    brain.apply(Ended(trial=number, at=1.0, outcome=stop.outcome))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_job_lives_as_it_does_in_replay(policy, seed, measure):
    world = table(np.random.default_rng(seed))
    # The draw among recorded runs needs none where there is one, so outcomes are the same.
    jobs = [Job(world.spec(policy), [world], [0] * 40, seed=0)]
    result = replay(jobs, history=True, measure_sizes=measure).history
    if measure and policy == "zeus":
        # Measuring is paid for before the first trial.
        result["cost"][0, 0] -= World.of([world]).measuring[0, 2]
    found = lived(world, policy, 40, measure=measure)
    for recurrence, (arm, trials, cost, reached) in enumerate(found):
        at = 0, recurrence
        assert (arm, trials, reached) == (
            result["arm"][at],
            result["trials"][at],
            result["reached"][at],
        )
        assert cost == pytest.approx(result["cost"][at], rel=1e-9)


def test_what_other_batch_sizes_cost_is_used_before_they_have_run():
    known, alone = JobState(spec()), JobState(spec())
    sizes = known.spec.batch_sizes
    for size in sizes:
        # An epoch of the largest costs a tenth of what one of the smallest costs.
        cost = 1000.0 * 0.1 ** (sizes.index(size) / (len(sizes) - 1))
        known.apply(Profiled(trial=0, at=1.0, gpu="A40", batch_size=size, epoch_cost=cost))
    gpu = GpuModel("A40", 1)
    for brain in (known, alone):
        choice = brain.decide(gpu)
        brain.apply(
            Decided(
                trial=1, at=1.0, request="1", recurrence=1, gpu="A40", max_power=300.0,
                **vars(choice),
            )
        )  # fmt: skip
        brain.apply(EpochReported(trial=1, at=1.0, epoch=1, time=1.0, energy=100.0, metric=0.99))
        brain.apply(Ended(trial=1, at=1.0, outcome="converged"))
    default = known.spec.default_batch_size
    assert known.decide(gpu).batch_size > default
    assert known.decide(gpu).batch_size >= alone.decide(gpu).batch_size
