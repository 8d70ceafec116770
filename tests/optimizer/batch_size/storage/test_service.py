"""Jobs on a store: what is decided, recorded and answered, also again, late and at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.batch_size.histories import spec

from zeus.errors import (
    FrontierError,
    JobConflictError,
    JobLogError,
    JobSpecError,
    RequestError,
    UnknownJobError,
)
from zeus.frontier import Frontier, Point
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    DeleteJob,
    EndTrial,
    ListJobs,
    ListSizes,
    ListTrials,
    PutProfile,
    PutSize,
    RenewTrial,
    ReportEpoch,
    ShowJob,
    ShowLog,
    ShowProfiles,
    ShowSharedProfiles,
)
from zeus.optimizer.batch_size.job._events import GpuModel, event_from
from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage import writing_jobs
from zeus.optimizer.batch_size.storage._cache import Cache
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store

GPU: dict[str, Any] = {"gpu": "NVIDIA A40", "max_power": 300.0}


class Time:
    """A clock that stands still until told otherwise."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def jobs(storage, clock):
    opened = Jobs(Store(storage), clock)
    opened.do(CreateJob(spec=spec()))
    yield opened
    opened.close()


def outcome(jobs: Jobs, number: int, job: str = "nightly") -> str:
    return next(trial for trial in jobs.do(ListTrials(job=job)) if trial.number == number).state


def whole_log(jobs: Jobs, job: str = "nightly") -> list:
    return jobs.do(ShowLog(job=job, most=100_000))


# --- shares of a batch ---------------------------------------------------------------------------


def test_a_request_by_replicas_gets_what_they_can_share(jobs):
    sizes: dict[str, Any] = {"batch_sizes": (6, 8, 12), "default_batch_size": 6}
    jobs.do(CreateJob(spec=spec("shared", **sizes)))
    found = jobs.do(Decide(job="shared", gpus=4, replicas=4, memory=2**30, **GPU))
    assert found.batch_size == 8
    assert found.reason == "in place of the default, which 4 replicas cannot share equally"
    (begun,) = whole_log(jobs, "shared")
    assert (begun["replicas"], begun["memory"]) == (4, 2**30)
    with pytest.raises(JobLogError, match=r"batch_sizes=\(6, 8, 12\), replicas=5"):
        jobs.do(Decide(job="shared", gpus=5, replicas=5, **GPU))
    assert len(whole_log(jobs, "shared")) == 1


# --- runs that are started again -----------------------------------------------------------------


def start_run(jobs, resume=True, **changes):
    return jobs.do(Decide(job="nightly", run="night 17", resume=resume, **{**GPU, **changes}))


def report_epoch(jobs, trial, epoch, metric=0.1):
    return jobs.do(ReportEpoch(trial=trial, epoch=epoch, time=9.0, energy=900.0, metric=metric))


def test_a_run_that_is_started_again_goes_on_with_its_trial(jobs, clock):
    first = start_run(jobs)
    assert (first.resumed, first.epochs) == (False, 0)
    report_epoch(jobs, first.trial, 1)
    report_epoch(jobs, first.trial, 2)
    clock.now += 500.0
    again = start_run(jobs)
    assert (again.trial, again.resumed, again.epochs) == (first.trial, True, 2)
    assert again.batch_size == first.batch_size
    # Its lease starts over.
    clock.now += 500.0
    assert jobs.sweep() == 0
    assert [event["kind"] for event in whole_log(jobs)] == ["decided", "epoch", "epoch"]
    assert report_epoch(jobs, first.trial, 3, 0.95).outcome == "converged"
    assert start_run(jobs).trial != first.trial  # the next recurrence


def test_a_run_whose_trial_has_expired_goes_on_all_the_same(jobs, clock):
    first = start_run(jobs)
    report_epoch(jobs, first.trial, 1)
    clock.now += 10_000.0
    assert jobs.sweep() == 1
    assert outcome(jobs, 1) == "expired"
    again = start_run(jobs)
    assert (again.trial, again.epochs) == (first.trial, 1)
    assert [event["kind"] for event in whole_log(jobs)][-1] == "resumed"
    assert outcome(jobs, 1) == "running"


def test_another_run_or_a_first_start_begins_a_trial_of_its_own(jobs):
    first = start_run(jobs)
    for other in (start_run(jobs, resume=False), jobs.do(Decide(job="nightly", **GPU))):
        assert other.trial != first.trial
        assert not other.resumed
    other = jobs.do(Decide(job="nightly", run="night 18", resume=True, **GPU))
    assert not other.resumed
    ended = start_run(jobs, resume=False)
    jobs.do(EndTrial(trial=ended.trial, outcome="cancelled"))
    assert start_run(jobs).trial != ended.trial  # which is over


@pytest.mark.parametrize("expired", [False, True])
def test_a_run_that_moves_to_other_gpus_is_another_trial_of_the_same_recurrence(
    jobs, clock, expired
):
    first = start_run(jobs)
    report_epoch(jobs, first.trial, 1)
    if expired:
        clock.now += 10_000.0
        jobs.sweep()
    moved = start_run(jobs, gpu="Tesla V100", gpus=4, max_power=1000.0)
    assert (moved.recurrence, moved.attempt, moved.resumed) == (first.recurrence, 1, False)
    before = jobs.do(ListTrials(job="nightly"))[-1]
    assert before.state == ("expired" if expired else "cancelled")
    assert expired or before.note == "its run was started again on 4 x Tesla V100"


# --- jobs ---------------------------------------------------------------------------------------


def test_the_same_job_is_created_once(jobs):
    again = jobs.do(CreateJob(spec=spec()))
    assert again == jobs.do(ShowJob(job="nightly"))
    assert [info.name for info in jobs.do(ListJobs())] == ["nightly"]


def test_another_job_of_the_same_name_is_a_conflict_that_names_the_fields(jobs):
    with pytest.raises(JobConflictError, match=r"eta_knob is 0.5, not 0.7; seed is 7, not 8"):
        jobs.do(CreateJob(spec=spec(eta_knob=0.7, seed=8)))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": "a/b"}, "no /"),
        ({"name": ".."}, "no /"),
        ({"name": "a\nb"}, "printable"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"window": 1001}, "window <= 1000"),
        ({"max_epochs": 10**7}, "max_epochs <= 1000000"),
        ({"batch_sizes": (64, 2**31)}, "batch_sizes <= 2147483647"),
    ],
)
def test_jobs_that_are_too_much_are_refused(jobs, changes, rule):
    with pytest.raises(JobSpecError, match=rule):
        jobs.do(CreateJob(spec=spec(**changes)))


def test_what_is_not_there_is_unknown(jobs):
    for ask in (
        lambda: jobs.do(ShowJob(job="nobody")),
        lambda: jobs.do(ShowJob(job="\x00")),
        lambda: jobs.do(Decide(job="nobody", **GPU)),
        lambda: jobs.do(Decide(job="no\x00body", **GPU)),
        lambda: jobs.do(ListTrials(job="nobody")),
        lambda: jobs.do(ShowLog(job="nobody")),
        lambda: jobs.do(ShowProfiles(job="nobody")),
        lambda: jobs.do(DeleteJob(job="nobody")),
        lambda: jobs.do(RenewTrial(trial="1-1")),
        lambda: jobs.do(EndTrial(trial="77-1", outcome="failed")),
        lambda: jobs.do(ReportEpoch(trial="nonsense", epoch=1, time=1.0)),
        lambda: jobs.do(ReportEpoch(trial="9" * 30 + "-1", epoch=1, time=1.0)),
        lambda: jobs.do(ReportEpoch(trial="01-1", epoch=1, time=1.0)),
    ):
        with pytest.raises(UnknownJobError):
            ask()


def test_a_deleted_job_is_gone_and_its_trials_with_it(jobs):
    trial = jobs.do(Decide(job="nightly", **GPU)).trial
    jobs.do(DeleteJob(job="nightly"))
    with pytest.raises(UnknownJobError):
        jobs.do(ReportEpoch(trial=trial, epoch=1, time=1.0))
    jobs.do(CreateJob(spec=spec()))
    assert jobs.do(ShowJob(job="nightly")).trials == 0
    assert jobs.do(Decide(job="nightly", **GPU)).trial != trial


# --- trials -------------------------------------------------------------------------------------


def test_a_trial_from_decision_to_convergence(jobs):
    decision = jobs.do(Decide(job="nightly", **GPU))
    assert (decision.batch_size, decision.recurrence, decision.attempt) == (64, 1, 0)
    assert decision.optimize_power
    assert decision.learning_rate_scale == 1.0
    assert decision.reason
    verdict = jobs.do(
        ReportEpoch(trial=decision.trial, epoch=1, time=10.0, energy=2000.0, metric=0.5)
    )
    assert verdict.go_on
    verdict = jobs.do(
        ReportEpoch(trial=decision.trial, epoch=2, time=10.0, energy=2000.0, metric=0.91)
    )
    assert not verdict.go_on
    assert verdict.outcome == "converged"
    (trial,) = jobs.do(ListTrials(job="nightly"))
    assert (trial.state, trial.epochs, trial.time, trial.energy) == ("converged", 2, 20.0, 4000.0)
    assert trial.cost == 0.5 * 4000 + 0.5 * 300 * 20
    info = jobs.do(ShowJob(job="nightly"))
    assert (info.recurrences, info.trials, info.running) == (1, 1, 0)
    kinds = [event["kind"] for event in whole_log(jobs)]
    assert kinds == ["decided", "epoch", "epoch", "ended"]


def test_the_log_is_all_there_is_to_know(jobs):
    """Decisions follow from the log alone, whatever was cached or left as a snapshot."""
    for turn in range(6):
        decision = jobs.do(Decide(job="nightly", **GPU))
        replayed = JobState.of(spec(), [event_from(_event(e)) for e in whole_log(jobs)[:-1]])
        expected = replayed.decide(GpuModel(GPU["gpu"], 1), decision.attempt)
        assert (decision.batch_size, decision.threshold) == (
            expected.batch_size,
            expected.threshold,
        )
        for epoch in range(1, 30):
            metric = 0.95 if epoch == 5 + turn else 0.1
            verdict = jobs.do(
                ReportEpoch(
                    trial=decision.trial, epoch=epoch, time=5.0, energy=900.0, metric=metric
                )
            )
            if not verdict.go_on:
                break


def live(jobs: Jobs, job: str, turns: int) -> list:
    """Decisions of so many recurrences, in which things happen by the book."""
    decisions = []
    for turn in range(turns):
        decision = jobs.do(Decide(job=job, **GPU, request=f"{turn}"))
        decisions.append((decision.batch_size, decision.threshold, decision.role))
        for epoch in range(1, 30):
            report: dict[str, Any]
            report = {"time": 5.0, "energy": 900.0 + decision.batch_size, "metric": epoch / 7}
            if not jobs.do(ReportEpoch(trial=decision.trial, epoch=epoch, **report)).go_on:
                break
    return decisions


@pytest.mark.parametrize("policy", ["zeus", "paper"])
def test_decisions_are_the_same_whatever_is_in_memory(new_storage, policy):
    forgetful = Jobs(Store(new_storage()))
    forgetful._cache = Cache(most_bytes=1)
    for name in ("one", "two"):
        forgetful.do(CreateJob(spec=spec(name, policy=policy)))
    jobs = Jobs(Store(new_storage()))
    jobs.do(CreateJob(spec=spec("one", policy=policy)))
    expected = live(jobs, "one", 8)
    found = []
    for turns in (1, 4, 8):  # requests that were made before are answered as before
        found = live(forgetful, "one", turns)
        live(forgetful, "two", turns)
    assert found == expected
    jobs.close()
    forgetful.close()


@pytest.mark.parametrize(
    "damage", ["state = 'nonsense'", "fingerprint = 'of other code'", "sequence = 1000000"]
)
def test_a_snapshot_only_saves_time(new_storage, damage):
    where, other = new_storage(), new_storage()
    for storage in (where, other):
        jobs = Jobs(Store(storage))
        jobs.do(CreateJob(spec=spec()))
        live(jobs, "nightly", 5)
        jobs.close()
    store = Store(where)
    with writing_jobs(store) as transaction:
        value = damage.replace("'nonsense'", "CAST('nonsense' AS {})")
        value = value.format("BYTEA" if "postgres" in where else "BLOB")
        changed = transaction._connection.exec_driver_sql(f"UPDATE zeus_snapshots SET {value}")
        assert changed.rowcount == 1
    damaged, whole = Jobs(store), Jobs(Store(other))
    assert live(damaged, "nightly", 9) == live(whole, "nightly", 9)
    damaged.close()
    whole.close()


def _event(record: dict) -> dict:
    return {name: value for name, value in record.items() if name != "sequence"}


def test_a_retry_stays_in_its_recurrence(jobs):
    first = jobs.do(Decide(job="nightly", **GPU))
    with pytest.raises(JobLogError, match="still runs"):
        jobs.do(Decide(job="nightly", **GPU, retry_of=first.trial))
    jobs.do(EndTrial(trial=first.trial, outcome="failed", note="out of memory"))
    second = jobs.do(Decide(job="nightly", **GPU, retry_of=first.trial))
    assert (second.recurrence, second.attempt) == (1, 1)
    with pytest.raises(JobLogError, match="was retried"):
        jobs.do(Decide(job="nightly", **GPU, retry_of=first.trial))
    with pytest.raises(UnknownJobError, match="has no trial"):
        jobs.do(Decide(job="nightly", **GPU, retry_of="999-1"))
    assert jobs.do(Decide(job="nightly", **GPU)).recurrence == 2


def test_grid_search_says_its_power_limit(jobs):
    jobs.do(CreateJob(spec=spec("grid", policy="grid", learning_rate_rule="linear")))
    decision = jobs.do(Decide(job="grid", **GPU))
    assert decision.power_limit == 300.0
    assert not decision.optimize_power


def test_a_trial_that_cannot_afford_its_first_epoch_is_passed_over(jobs):
    job = spec("costly", policy="paper", eta_knob=1.0, pruning_rounds=1)
    jobs.do(CreateJob(spec=job))
    first = jobs.do(Decide(job="costly", **GPU))
    jobs.do(ReportEpoch(trial=first.trial, epoch=1, time=1.0, energy=100.0, metric=0.95))
    # The next one down costs more in one epoch than the threshold of 200 J.
    jobs.do(PutProfile(job="costly", gpu=GPU["gpu"], batch_size=32, epoch_cost=500.0))
    decision = jobs.do(Decide(job="costly", **GPU, request="again"))
    assert decision.batch_size == 128
    assert (decision.recurrence, decision.attempt) == (2, 1)
    states = {trial.batch_size: trial.state for trial in jobs.do(ListTrials(job="costly"))}
    assert states == {64: "converged", 32: "stopped", 128: "running"}
    assert jobs.do(Decide(job="costly", **GPU, request="again")) == decision


def test_what_ends_a_trial_is_not_for_the_client_to_say(jobs):
    trial = jobs.do(Decide(job="nightly", **GPU)).trial
    for wrong in ("converged", "stopped", "expired", "", "won"):
        with pytest.raises(JobLogError, match="is ended as failed or cancelled"):
            jobs.do(EndTrial(trial=trial, outcome=wrong))
    assert outcome(jobs, 1) == "running"


# --- the same again -----------------------------------------------------------------------------


def test_the_same_request_gets_the_same_trial(jobs, storage):
    first = jobs.do(Decide(job="nightly", **GPU, request="run 17"))
    assert jobs.do(Decide(job="nightly", **GPU, request="run 17")) == first
    assert jobs.do(Decide(job="nightly", **GPU, request="run 18")).trial != first.trial
    jobs.do(EndTrial(trial=first.trial, outcome="cancelled"))
    other = Jobs(Store(storage))
    assert other.do(Decide(job="nightly", **GPU, request="run 17")) == first
    with pytest.raises(JobConflictError, match="was made before with gpu='NVIDIA A40'"):
        other.do(Decide(job="nightly", gpu="Tesla V100", max_power=300.0, request="run 17"))
    other.close()
    assert jobs.do(ShowJob(job="nightly")).trials == 2


def test_the_same_epoch_counts_once(jobs):
    trial = jobs.do(Decide(job="nightly", **GPU)).trial
    report: dict[str, Any]
    report = {"time": 10.0, "energy": 2000.0, "metric": 0.5, "power_limit": 200.0}
    assert jobs.do(ReportEpoch(trial=trial, epoch=1, **report)).go_on
    assert jobs.do(ReportEpoch(trial=trial, epoch=1, **report)).go_on
    with pytest.raises(JobConflictError, match=r"epoch 1 of trial .* was reported as"):
        jobs.do(ReportEpoch(trial=trial, epoch=1, **{**report, "energy": 2001.0}))
    with pytest.raises(JobLogError, match="epoch 2 of trial 1 comes next, but got epoch=3"):
        jobs.do(ReportEpoch(trial=trial, epoch=3, **report))
    assert jobs.do(ListTrials(job="nightly"))[0].epochs == 1
    last = {**report, "metric": 0.99}
    ended = jobs.do(ReportEpoch(trial=trial, epoch=2, **last))
    assert ended.outcome == "converged"
    assert jobs.do(ReportEpoch(trial=trial, epoch=2, **last)) == ended
    assert jobs.do(ReportEpoch(trial=trial, epoch=1, **report)) == ended
    with pytest.raises(JobConflictError, match="is over: converged"):
        jobs.do(ReportEpoch(trial=trial, epoch=3, **report))
    assert len(whole_log(jobs)) == 4


def test_a_trial_ends_once(jobs):
    trial = jobs.do(Decide(job="nightly", **GPU)).trial
    ended = jobs.do(
        EndTrial(trial=trial, outcome="failed", time=3.0, energy=500.0, note="out of memory")
    )
    assert ended.outcome == "failed"
    assert (
        jobs.do(
            EndTrial(trial=trial, outcome="failed", time=3.0, energy=500.0, note="out of memory")
        )
        == ended
    )
    assert jobs.do(EndTrial(trial=trial, outcome="cancelled")) == ended
    assert jobs.do(RenewTrial(trial=trial)) == ended
    with pytest.raises(JobConflictError, match=r"is over: failed \(out of memory\)"):
        jobs.do(ReportEpoch(trial=trial, epoch=1, time=1.0))
    (info,) = jobs.do(ListTrials(job="nightly"))
    assert (info.time, info.energy, info.note) == (3.0, 500.0, "out of memory")


# --- leases -------------------------------------------------------------------------------------


def test_a_trial_of_which_nothing_is_heard_expires_and_exploration_goes_on(jobs, clock):
    job = spec("paper", policy="paper-repaired")
    jobs.do(CreateJob(spec=job))
    jobs.do(Decide(job="paper", **GPU, lease=60.0))
    clock.now += 59.0
    # While the first explores, others use what is known.
    assert jobs.do(Decide(job="paper", **GPU, lease=1000.0)).role == "exploit"
    clock.now += 2.0
    assert jobs.do(Decide(job="paper", **GPU)).role == "explore"
    assert outcome(jobs, 1, "paper") == "expired"
    assert outcome(jobs, 2, "paper") == "running"


def test_reports_and_renewals_keep_a_trial_alive(jobs, clock):
    trial = jobs.do(Decide(job="nightly", **GPU, lease=60.0)).trial
    for epoch in range(1, 4):
        clock.now += 50.0
        assert jobs.do(RenewTrial(trial=trial)).go_on
        clock.now += 50.0
        assert jobs.do(ReportEpoch(trial=trial, epoch=epoch, time=100.0, metric=0.1)).go_on
    assert jobs.sweep() == 0
    assert outcome(jobs, 1) == "running"


def test_a_sweep_expires_trials_of_jobs_that_nobody_asks_for(jobs, clock):
    jobs.do(CreateJob(spec=spec("other")))
    jobs.do(Decide(job="nightly", **GPU, lease=60.0))
    jobs.do(Decide(job="other", **GPU, lease=60.0))
    clock.now += 61.0
    assert jobs.sweep() == 2
    assert outcome(jobs, 1) == outcome(jobs, 1, "other") == "expired"
    assert jobs.sweep() == 0
    assert jobs.do(ShowJob(job="other")).running == 0


@pytest.mark.parametrize("swept", [True, False])
def test_a_trial_that_reports_late_goes_on(jobs, clock, swept):
    trial = jobs.do(Decide(job="nightly", **GPU, lease=60.0)).trial
    assert jobs.do(ReportEpoch(trial=trial, epoch=1, time=10.0, metric=0.1)).go_on
    clock.now += 3600.0
    if swept:
        jobs.sweep()
        assert outcome(jobs, 1) == "expired"
        # A report that had already arrived is answered as it was.
        assert jobs.do(ReportEpoch(trial=trial, epoch=1, time=10.0, metric=0.1)).go_on
    assert jobs.do(ReportEpoch(trial=trial, epoch=2, time=10.0, metric=0.1)).go_on
    assert outcome(jobs, 1) == "running"
    assert jobs.do(ReportEpoch(trial=trial, epoch=3, time=10.0, metric=0.99)).outcome == "converged"
    kinds = [event["kind"] for event in whole_log(jobs)]
    assert ("resumed" in kinds) == swept
    assert jobs.do(ShowJob(job="nightly")).running == 0


def test_a_lease_has_bounds(jobs):
    for lease in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(JobLogError, match="lease"):
            jobs.do(Decide(job="nightly", **GPU, lease=lease))
    assert jobs.do(ShowJob(job="nightly")).trials == 0


# --- profiles -----------------------------------------------------------------------------------

FRONTIER = Frontier(
    [Point(100.0, 2.0, 150.0), Point(200.0, 1.5, 200.0)], "a step", max_power=300.0
).to_dict()


def test_profiles_are_shared_by_jobs_with_the_same_key(jobs, clock):
    keys = {"a": "search", "b": "search", "c": "search", "d": "other", "e": None}
    for name, key in keys.items():
        jobs.do(CreateJob(spec=spec(name, profile_key=key)))

    def put(name, load, gpus=1):
        clock.now += 1
        jobs.do(PutProfile(job=name, gpu="NVIDIA A40", gpus=gpus, batch_size=64, load=load))

    def shared(name):
        return [(each.gpus, each.load) for each in jobs.do(ShowSharedProfiles(job=name))]

    put("a", 0.1)
    put("b", 0.2, gpus=4)
    put("d", 0.4)
    put("e", 0.5)
    assert shared("a") == [(4, 0.2)]
    assert shared("c") == [(4, 0.2), (1, 0.1)]
    put("b", 0.3)  # newer than that of a
    assert sorted(shared("c")) == [(1, 0.3), (4, 0.2)]
    assert shared("d") == shared("e") == shared("nightly") == []
    assert jobs.do(ShowProfiles(job="c")) == []
    jobs.do(DeleteJob(job="b"))
    assert shared("c") == [(1, 0.1)]
    with pytest.raises(UnknownJobError, match="b"):
        shared("b")
    only = ShowSharedProfiles(job="c", scope="c")  # as with a token for this job
    assert jobs.do(only) == []


def test_profiles_are_kept_by_gpu_and_batch_size(jobs):
    put: dict[str, Any]
    put = {"frontier": FRONTIER, "epoch_cost": 1234.5, "load": 0.8, "power_limit": 200.0}
    kept = jobs.do(PutProfile(job="nightly", gpu="NVIDIA A40", gpus=4, batch_size=64, **put))
    jobs.do(PutProfile(job="nightly", gpu="NVIDIA A40", gpus=1, batch_size=64))
    jobs.do(PutProfile(job="nightly", gpu="NVIDIA A40", gpus=1, batch_size=64, load=0.5))
    assert [(p.gpus, p.load) for p in jobs.do(ShowProfiles(job="nightly"))] == [(1, 0.5), (4, 0.8)]
    assert jobs.do(ShowProfiles(job="nightly"))[1] == kept
    assert Frontier.from_dict(kept.frontier) == Frontier.from_dict(FRONTIER)
    with pytest.raises(JobLogError, match="`batch_size` must be one of"):
        jobs.do(PutProfile(job="nightly", gpu="NVIDIA A40", batch_size=65))
    with pytest.raises(FrontierError, match="`format` must be"):
        jobs.do(PutProfile(job="nightly", gpu="NVIDIA A40", batch_size=64, frontier={"points": []}))
    many = {**FRONTIER, "points": FRONTIER["points"] * 600}
    with pytest.raises(JobLogError, match="at most 1000 points, but got 1200"):
        jobs.do(PutProfile(job="nightly", gpu="NVIDIA A40", batch_size=64, frontier=many))


def test_what_was_measured_at_batch_sizes_is_kept_in_the_log(jobs):
    def states(**setup):
        found = jobs.do(ListSizes(job="nightly", **setup))
        return {each.batch_size: each.state for each in found if each.state != "unknown"}

    assert states() == {}
    put = PutSize(job="nightly", gpu="NVIDIA A40", batch_size=64, epoch_cost=500.0, load=0.9)
    kept = jobs.do(put)
    assert (kept.batch_size, kept.state, kept.epoch_cost, kept.measure) == (
        *(64, "measured", 500.0),
        False,
    )
    full = PutSize(job="nightly", gpu="NVIDIA A40", batch_size=128, memory=2**34)
    assert jobs.do(full).state == "unfit"
    assert states(gpu="NVIDIA A40") == {64: "measured", 128: "unfit", 256: "unfit"}
    assert states() == states(gpu="NVIDIA A40")
    # Two replicas have half of it each, and other GPUs less memory.
    assert states(gpu="NVIDIA A40", gpus=2) == {256: "unfit"}
    assert states(gpu="other", memory=2**33) == {128: "unfit", 256: "unfit"}
    log = jobs.do(ShowLog(job="nightly"))
    assert [(event["kind"], event["batch_size"]) for event in log] == [
        ("measured", 64),
        ("measured", 128),
    ]
    # Measured again it is a fact again, and no power profile is claimed.
    assert jobs.do(put) == kept
    assert jobs.do(ShowProfiles(job="nightly")) == []
    with pytest.raises(JobLogError, match="`batch_size` must be one of"):
        jobs.do(PutSize(job="nightly", gpu="NVIDIA A40", batch_size=65))
    with pytest.raises(JobLogError, match="0 < epoch_cost"):
        jobs.do(PutSize(job="nightly", gpu="NVIDIA A40", batch_size=64, epoch_cost=0.0))
    with pytest.raises(RequestError, match="1 <= gpus"):
        jobs.do(ListSizes(job="nightly", gpu="NVIDIA A40", gpus=0))
