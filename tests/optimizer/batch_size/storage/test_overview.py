"""What is read of jobs for people: sums, beliefs, and the comparison with the default."""

from __future__ import annotations

import pytest
from tests.present import present
from tests.server.pages.world import A40, MAX_POWER, V100, Life, frontier, service, spec

from zeus.errors import UnknownJobError
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    EndTrial,
    ListJobs,
    ListTrials,
    ReportEpoch,
    ShowJob,
)
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.storage._account import course
from zeus.optimizer.batch_size.storage._overview import Overviews
from zeus.store import Store

ON_A40, ON_V100 = GpuModel(A40, 1), GpuModel(V100, 1)


@pytest.fixture
def jobs(storage):
    found, clock = service(storage)
    yield found, clock
    found.close()


@pytest.fixture
def overviews(storage):
    store = Store(storage)
    yield Overviews(store)
    store.close()


def test_one_job_in_full(jobs, overviews):
    life = Life(jobs[0], jobs[1], spec())
    life.recur(6)
    life.recur(2, V100)
    running, _ = life.run(A40, most=1)
    found = overviews.read("nightly-bert", stretches=4, most=3)
    trials = jobs[0].do(ListTrials(job="nightly-bert"))

    assert [trial.number for trial in found.trials] == [t.number for t in trials[:3]]
    assert [trial.trial for trial in found.running] == [running]
    assert list(found.gpus) == [ON_A40, ON_V100]  # the latest used first
    assert found.gpu == ON_A40
    spent = sum(trial.cost for trial in trials)
    for sums in (found.totals, found.spans):
        assert sum(each.trials for each in sums) == len(trials)
        assert sum(each.cost for each in sums) == pytest.approx(spent)
    assert found.width == 3  # nine recurrences in four stretches at most
    assert {span.first for span in found.spans} == {1, 4, 7}
    ended = sum(trial.cost for trial in trials if trial.state != "running")
    assert found.account.cost.spent == pytest.approx(ended) != spent
    assert sum(each.epochs for each in found.totals) == sum(t.epochs for t in trials)

    # What would be decided is told, and nothing was decided by that.
    assert found.next.batch_size in spec().batch_sizes
    assert jobs[0].do(ShowJob(job="nightly-bert")).trials == len(trials)
    again = Overviews(overviews._store).read("nightly-bert", stretches=4, most=3)
    assert again == found == overviews.read("nightly-bert", stretches=4, most=3)

    elsewhere = overviews.read("nightly-bert", gpu=ON_V100, before=5)
    assert elsewhere.gpu == ON_V100
    assert [trial.number for trial in elsewhere.trials] == [4, 3, 2, 1]
    converged = [t for t in trials if t.gpu == V100 and t.state == "converged"]
    assert sorted(elsewhere.costs) == sorted((t.batch_size, t.cost) for t in converged)
    assert overviews.read("nightly-bert", gpu=GpuModel("none", 3)).gpu == ON_A40


def test_the_default_is_what_runs_with_it_cost_at_full_power(jobs, overviews):
    life = Life(jobs[0], jobs[1], spec())
    life.recur(8)
    trials = jobs[0].do(ListTrials(job="nightly-bert"))
    found = overviews.read("nightly-bert")
    base = found.account.baselines[ON_A40]
    default = [t for t in trials if t.batch_size == 256 and t.state == "converged"]
    points = {point.knob: point for point in frontier(A40, 256)}
    limit = next(p.power_limit for p in found.profiles if p.batch_size == 256)
    full, chosen = points[300], points[limit]
    assert base.factor == pytest.approx(full.energy / chosen.energy)
    assert base.runs == len(default)
    energy = present(base.factor) * sum(present(t.energy) for t in default) / len(default)
    assert base.energy == pytest.approx(energy)
    times = full.time / chosen.time
    assert base.time == pytest.approx(times * sum(t.time for t in default) / len(default))
    costs = [spec().cost(p.energy, p.time, MAX_POWER[A40]) for p in (full, chosen)]
    mean = sum(t.cost for t in default) / len(default)
    assert base.cost == pytest.approx(mean * costs[0] / costs[1])
    account = found.account
    assert account.energy.default == pytest.approx(8 * energy)
    assert account.energy.spent == pytest.approx(sum(present(t.energy) for t in trials))
    assert account.cost.saved == pytest.approx(8 * base.cost - sum(t.cost for t in trials))
    points_ = course(found.spans, account)
    assert [point.first for point in points_] == list(range(1, 9))
    for currency in ("energy", "time", "cost"):
        last, whole = getattr(points_[-1], currency), getattr(account, currency)
        assert (last.spent, last.default) == pytest.approx((whole.spent, whole.default))
    # The list says the same, from what was kept as the trials ended.
    (info,) = jobs[0].do(ListJobs())
    assert info.saved_energy == pytest.approx(account.energy.saved)
    assert info.saved_time == pytest.approx(account.time.saved)
    assert info.saved_cost == pytest.approx(account.cost.saved)
    assert (info.basis, info.comparison) == ("measured", account.words)
    missed = [present(t.energy) for t in trials if t.state != "converged"]
    assert info.wasted == pytest.approx(sum(missed))


def test_what_is_not_known_is_unknown(jobs, overviews):
    empty = Life(jobs[0], jobs[1], spec("empty"))
    found = overviews.read("empty")
    assert (found.gpu, found.next, list(found.beliefs)) == (None, None, [])
    energy = found.account.energy
    assert (energy.default, energy.saved, energy.share) == (None,) * 3

    empty.run(most=1)  # nothing has converged
    found = overviews.read("empty")
    assert found.account.energy.default is None
    assert {each.standing for each in found.beliefs} == {ArmStatus.UNKNOWN}
    assert course(found.spans, found.account) == []  # nothing has ended

    # The default did not converge, and this policy says nothing about it then.
    Life(jobs[0], jobs[1], spec("hopeless", policy="grid", power_limits=(200.0,)))
    first = jobs[0].do(Decide(job="hopeless", gpu=A40, max_power=300.0))
    jobs[0].do(EndTrial(trial=first.trial, outcome="failed"))
    decision = jobs[0].do(Decide(job="hopeless", gpu=A40, max_power=300.0))
    assert decision.batch_size != first.batch_size == 256
    jobs[0].do(ReportEpoch(trial=decision.trial, epoch=1, time=1.0, metric=1.0))
    found = overviews.read("hopeless")
    assert found.account.converged == {ON_A40: 1}
    assert found.account.cost.default is None
    assert "and the policy expects nothing of it" in found.account.words

    with pytest.raises(UnknownJobError, match="there is no job 'none'"):
        overviews.read("none")
    with pytest.raises(UnknownJobError):
        overviews.read("nul \0")


@pytest.mark.parametrize("policy", ["zeus", "paper", "grid", "default"])
def test_beliefs_are_about_what_runs_cost(tmp_path, policy):
    jobs, clock = service(f"sqlite:///{tmp_path}/jobs.db")
    limits = (150.0, 300.0) if policy == "grid" else ()
    Life(jobs, clock, spec(policy=policy, power_limits=limits)).recur(16)
    found = Overviews(Store(f"sqlite:///{tmp_path}/jobs.db")).read("nightly-bert")
    jobs.close()
    known = {each.batch_size: each for each in found.beliefs}
    assert tuple(known) == spec().batch_sizes
    if policy == "default":
        assert all(each.cost is None for each in found.beliefs)
        return
    for total in found.totals:
        each = known[total.batch_size]
        if total.state == "converged" and total.trials > 3:
            mean = total.cost / total.trials
            assert each.standing == ArmStatus.PROVEN
            if policy == "grid":  # which goes by the best run, and asks no further
                costs = [cost for size, cost in found.costs if size == each.batch_size]
                assert (each.cost, each.low, each.high) == (pytest.approx(min(costs)), None, None)
                continue
            assert each.cost == pytest.approx(mean, rel=0.15)
            low, high = present(each.low), present(each.high)
            assert low < mean < high
            assert high - low < 0.6 * mean
    if policy == "paper":
        assert known[512].standing == ArmStatus.PRUNED  # it never converges
        assert known[512].cost is None
    if policy == "zeus":
        # Nothing is ever ruled out; what others tell about it is less sure.
        guess, best = known[8], known[present(found.next).batch_size]
        assert guess.standing in (ArmStatus.EXPECTED, ArmStatus.MISSED)
        ratios = [present(each.high) / present(each.low) for each in (guess, best)]
        assert ratios[0] > ratios[1]


def test_a_page_of_the_list(jobs, overviews):
    service_, clock = jobs
    names = [f"job {number:02}" for number in range(7)]
    for name in names:
        service_.do(CreateJob(spec=spec(name), tags=("red",) if name == "job 01" else ()))
    Life(service_, clock, spec("job 03")).run(most=1)

    def seen(**asked):
        page = overviews.jobs(ListJobs(most=3, **asked))
        return [info.name for info in page.jobs], page.later

    assert seen() == (names[:3], True)
    assert seen(skip=3) == (names[3:6], True)
    assert seen(skip=6) == (names[6:], False)
    assert seen(text="none") == ([], False)
    page = overviews.jobs(ListJobs(most=2, text="job 0"))
    assert (page.number, page.totals.jobs, page.totals.running) == (7, 7, 1)
    assert (page.gpus, page.tags) == ([A40], ["red"])
    alone = overviews.jobs(ListJobs(scope="job 04"))
    assert [info.name for info in alone.jobs] == ["job 04"]
    assert (alone.number, alone.totals.jobs, alone.gpus, alone.tags) == (1, 1, [], [])
    assert overviews.jobs(ListJobs(scope="gone")).number == 0
