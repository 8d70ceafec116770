"""What is read of jobs for people: sums, beliefs, and the comparison with the default."""

from __future__ import annotations

import pytest
from tests.present import present
from tests.server.pages.world import A40, MAX_POWER, V100, Life, frontier, service, spec

from zeus.errors import UnknownJobError
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
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
    assert found.account.spent == pytest.approx(spent)
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
    default = [t.cost for t in trials if t.batch_size == 256 and t.state == "converged"]
    points = {point.knob: point for point in frontier(A40, 256)}
    limit = next(p.power_limit for p in found.profiles if p.batch_size == 256)
    costs = [spec().cost(p.energy, p.time, MAX_POWER[A40]) for p in (points[300], points[limit])]
    assert costs[0] > costs[1]
    assert base.factor == pytest.approx(costs[0] / costs[1])
    assert base.runs == len(default)
    assert base.cost == pytest.approx(base.factor * sum(default) / len(default))
    account = found.account
    assert account.expected == pytest.approx(8 * base.cost)
    assert account.saved == pytest.approx(8 * base.cost - sum(t.cost for t in trials))
    assert account.share == pytest.approx(account.saved / account.expected)
    *_, last = course(found.spans, account)
    assert last == (8, pytest.approx(account.spent), pytest.approx(account.expected))
    assert [first for first, _, _ in course(found.spans, account)] == list(range(1, 9))


def test_what_is_not_known_is_unknown(jobs, overviews):
    empty = Life(jobs[0], jobs[1], spec("empty"))
    found = overviews.read("empty")
    assert (found.gpu, found.next, list(found.beliefs)) == (None, None, [])
    assert (found.account.expected, found.account.saved, found.account.share) == (None,) * 3

    empty.run(most=1)  # nothing has converged
    found = overviews.read("empty")
    assert found.account.spent > 0
    assert found.account.expected is None
    assert {each.standing for each in found.beliefs} == {ArmStatus.UNKNOWN}
    assert course(found.spans, found.account) == [(1, pytest.approx(found.account.spent), None)]

    # The default never converges, and this policy says nothing about it then.
    life = Life(
        jobs[0], jobs[1], spec("hopeless", default_batch_size=512, policy="paper", max_epochs=3)
    )
    life.run()
    jobs[0].do(
        ReportEpoch(
            trial=jobs[0].do(Decide(job="hopeless", gpu=A40, max_power=300.0)).trial,
            epoch=1,
            time=1.0,
            metric=1.0,
        )
    )
    found = overviews.read("hopeless")
    assert found.account.converged == {ON_A40: 1}
    assert found.account.expected is None

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


def test_a_list_of_jobs_page_by_page(jobs, overviews):
    service_, clock = jobs
    names = [f"job {number:02}" for number in range(7)]
    for name in [*names, "100% sure", "under_score", "Grün"]:
        service_.do(CreateJob(spec=spec(name)))
    Life(service_, clock, spec("job 03")).run(most=1)

    def seen(**asked):
        page = overviews.jobs(asked.pop("text", "job"), most=3, **asked)
        return [entry.info.name for entry in page.entries], page.earlier, page.later

    assert seen() == (names[:3], False, True)
    assert seen(after=names[2]) == (names[3:6], True, True)
    assert seen(after=names[5]) == (names[6:], True, False)
    assert seen(before=names[6]) == (names[3:6], True, True)
    assert seen(before=names[2]) == (names[:2], False, True)
    assert seen(text="JOB 05") == (["job 05"], False, False)
    assert seen(text="%") == (["100% sure"], False, False)  # not a wildcard
    assert seen(text="_") == (["under_score"], False, False)
    assert seen(text="", running=True) == (["job 03"], False, False)
    assert seen(text="none") == ([], False, False)
    assert seen(text="", only="job 04") == (["job 04"], False, False)
    assert seen(text="", only="gone") == ([], False, False)
    page = overviews.jobs(most=100)
    assert (page.number, page.running) == (10, 1)
    states = {entry.info.name: (entry.batch_size, entry.state) for entry in page.entries}
    assert states["job 03"] == (256, "running")
    assert states["job 04"] == (None, None)
