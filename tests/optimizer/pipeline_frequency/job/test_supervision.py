"""What the server concludes from the steps that ranks report."""

from __future__ import annotations

import random

import pytest
from tests.optimizer.pipeline_frequency.job.reports import registration
from tests.present import present

from zeus.optimizer.pipeline_frequency.job._messages import StepReport, StepSums
from zeus.optimizer.pipeline_frequency.job._supervision import Supervision


def sums(times, joules=None, span=1.0) -> StepSums:
    """Steps of these times; their spans are a share of that."""
    found = StepSums()
    for time in times:
        found = found.plus(time, span * time)
        if joules is not None:
            found = found.plus_energy(joules)
    return found


def report(plan, reference=(), recent=None, version=1, joules=100.0, **other) -> StepReport:
    latest = list(plan)[-8:] if recent is None else recent
    return StepReport(
        version, sums(plan, joules, **other), sums(reference, 120.0), sums(latest, **other)
    )


def reported(*reports: StepReport, degrees=(1, 2, 1)) -> Supervision:
    found = Supervision()
    for rank, each in enumerate(reports):
        found.take(registration(rank, degrees).seat, each)
    return found


# --- what a plan saves ----------------------------------------------------------------------------


def test_saved_is_the_energy_of_steps_under_the_plan_against_that_of_references():
    steps = reported(
        report([1.0, 1.2], [1.0], joules=90.0), report([1.0, 1.2, 1.1], [1.0], joules=60.0)
    )
    saved = present(steps.saved(1))
    assert saved.plan == (pytest.approx(1.1), pytest.approx(150.0))
    assert saved.reference == (pytest.approx(1.0), pytest.approx(240.0))
    assert saved.energy == pytest.approx(1 - 150 / 240)
    assert saved.slowdown == pytest.approx(0.1)
    assert (saved.steps, saved.references) == (2, 1)


def test_nothing_is_saved_before_both_are_measured():
    assert reported().saved(1) is None
    assert reported(report([1.0] * 9)).saved(1) is None
    assert reported(report([], [1.0])).saved(1) is None
    assert reported(report([1.0], [1.0], joules=None)).saved(1) is None
    assert reported(report([1.0], [1.0], version=1)).saved(2) is None


def test_the_step_time_is_the_median_of_ranks_with_enough_steps():
    steps = reported(report([1.0] * 3), report([2.0] * 3), report([9.0] * 2), degrees=(1, 3, 1))
    assert steps.step_time(1) == pytest.approx(1.5)
    assert steps.step_time(2) is None
    assert reported(report([1.0] * 2)).step_time(1) is None


# --- a plan that is too slow ----------------------------------------------------------------------


def test_a_plan_that_is_slower_than_promised_is_found():
    steps = reported(report([1.05] * 8, [1.0]), report([1.05] * 8, [1.0]))
    assert steps.slower_than(1.0, 1) == pytest.approx(1.05)


def test_a_plan_that_is_slow_on_purpose_is_not():
    steps = reported(report([1.05] * 8, [1.0]), report([1.05] * 8, [1.0]))
    assert steps.slower_than(1.04, 1) is None


@pytest.mark.parametrize(
    "early",
    [
        report([1.5] * 4, [1.0]),
        report([1.5] * 8),
        report([1.5] * 8, [1.0], recent=[1.5] * 4),
        report([1.5] * 8, [1.0], version=2),
    ],
    ids=["few steps", "no reference", "few recent", "another plan"],
)
def test_little_is_no_evidence(early):
    assert reported(early).slower_than(1.0, 1) is None


def test_steps_that_vary_are_given_the_benefit_of_the_doubt():
    """2 % slower by chance, where steps vary by 5 %; the same is clear where they do not vary."""
    times = [1.02 + 0.05 * (-1) ** number for number in range(8)]
    assert reported(report(times, [1.0])).slower_than(1.0, 1) is None
    assert reported(report([1.02] * 8, [1.0])).slower_than(1.0, 1) == pytest.approx(1.02)


def test_false_alarms_are_rare_where_nothing_is_slower():
    """Steps that vary by 1.3 %, judged after each of the first forty, against one reference."""
    alarms = 0
    for seed in range(200):
        draws = random.Random(seed)
        plan = [draws.gauss(1.0, 0.013) for _ in range(40)]
        reference = [draws.gauss(1.0, 0.013)]
        steps = Supervision()
        for count in range(5, 41):
            steps.take(registration(0, (1, 2, 1)).seat, report(plan[:count], reference))
            if steps.slower_than(1.0, 1) is not None:
                alarms += 1
                break
    assert alarms <= 0.01 * 200


def test_steps_that_are_alike_by_chance_are_not_more_certain_than_expected():
    steps = reported(report([1.05] * 5, [1.0]))
    assert steps.slower_than(1.0, 1, deviation=0.02) is None
    assert steps.slower_than(1.0, 1, deviation=0.01) == pytest.approx(1.05)


def test_after_an_alarm_four_times_as_many_steps_must_pass():
    steps = reported(report([1.1] * 8, [1.0]))
    assert steps.slower_than(1.0, 1) is not None
    seat = registration(0, (1, 2, 1)).seat
    for count, found in ((8, False), (19, False), (20, True), (40, False), (79, False), (80, True)):
        steps.take(seat, report([1.1] * count, [1.0]))
        assert (steps.slower_than(1.0, 1) is not None) == found, count


def test_references_of_before_a_drift_do_not_count():
    """All steps become slower, not those under the plan only: that is no fault of the plan."""
    steps = reported(report([1.0] * 8, [1.0] * 3), report([1.0] * 8, [1.0] * 3))
    steps.drift()
    assert steps.saved(1) is None
    for rank in range(2):
        steps.take(registration(rank, (1, 2, 1)).seat, report([1.2] * 8, [1.0] * 3))
    assert steps.slower_than(1.0, 1) is None
    for rank in range(2):
        steps.take(registration(rank, (1, 2, 1)).seat, report([1.2] * 8, [1.0] * 3 + [1.2]))
    assert steps.slower_than(1.0, 1) is None
    saved = present(steps.saved(1))
    assert saved.references == 1
    assert saved.reference == (pytest.approx(1.2), pytest.approx(240.0))
    # Slower than the reference since then is slower.
    for rank in range(2):
        steps.take(registration(rank, (1, 2, 1)).seat, report([1.3] * 8, [1.0] * 3 + [1.2]))
    assert steps.slower_than(1.0, 1) == pytest.approx(1.3 / 1.2)


def test_a_rank_that_starts_again_counts_its_references_from_the_start():
    steps = reported(report([1.0] * 8, [1.0] * 3))
    steps.drift()
    steps.forget(0)
    assert steps.step_time(1) is None
    steps.take(registration(0, (1, 2, 1)).seat, report([1.0] * 8, [1.0]))
    assert present(steps.saved(1)).references == 1


# --- stragglers -----------------------------------------------------------------------------------


def spans(*pipelines: float, version: int = 1, steps: int = 3) -> Supervision:
    """Two ranks each; the second waits for the first before it begins."""
    reports = [
        report([max(pipelines)] * steps, span=share * time / max(pipelines), version=version)
        for time in pipelines
        for share in (1.0, 0.8)
    ]
    return reported(*reports, degrees=(len(pipelines), 2, 1))


def test_a_pipeline_that_takes_longer_than_its_peers_is_found_although_all_steps_are_as_long():
    found = spans(1.0, 1.2, 1.0).slowdowns(lambda _: 1.0, 1)
    assert found == {0: pytest.approx(1.0), 1: pytest.approx(1.2), 2: pytest.approx(1.0)}


def test_a_pipeline_that_is_slow_by_its_own_plan_is_not_a_straggler():
    found = spans(1.0, 1.2).slowdowns(lambda pipeline: (1.0, 1.2)[pipeline], 1)
    assert found == {0: pytest.approx(1.0), 1: pytest.approx(1.0)}


def test_a_pipeline_alone_is_never_slow():
    assert spans(1.7).slowdowns(lambda _: 1.0, 1) == {}


def test_nothing_follows_before_all_ranks_have_reported_steps_of_the_plan():
    assert reported().slowdowns(lambda _: 1.0, 1) == {}
    assert spans(1.0, 1.2, steps=2).slowdowns(lambda _: 1.0, 1) == {}
    assert spans(1.0, 1.2).slowdowns(lambda _: 1.0, 2) == {}
    # The ranks of one pipeline began with the plan a step later than those of the other.
    steps = spans(1.0, 1.2)
    for rank in (0, 1):
        steps.take(registration(rank, (2, 2, 1)).seat, report([1.2] * 2))
    assert steps.slowdowns(lambda _: 1.0, 1) == {}


def steps_of(plans: list[tuple[int, float]], slow: list[float]) -> list[float]:
    """Return what is found of the second of two pipelines after each step.

    Each step has the version and seconds of its plan, and how slow the second pipeline was.
    """
    steps, found = Supervision(), []
    done: dict[int, list[list[float]]] = {}
    for (version, planned), by in zip(plans, slow, strict=True):
        times = done.setdefault(version, [[], []])
        for pipeline, factor in enumerate((1.0, by)):
            times[pipeline].append(factor * planned)
            seat = registration(pipeline, (2, 1, 1)).seat
            steps.take(seat, report(times[pipeline], version=version))
        slowdowns = steps.slowdowns({0: planned, 1: planned}.__getitem__, version)
        found.append(slowdowns.get(1, 0.0))
    return found


def test_a_straggler_is_found_while_its_drift_causes_one_plan_after_the_other():
    """As its ranks notice it at different steps; the second slow step is enough."""
    plans = [(1, 1.0)] * 6 + [(2, 1.005), (3, 1.0), (4, 1.002), (5, 1.0)]
    found = steps_of(plans, [1.0] * 6 + [1.2] * 4)
    assert found[:6] == pytest.approx([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert found[6] < 1.04
    assert found[7:] == pytest.approx([1.2] * 3, rel=1e-3)


def test_one_step_that_is_held_up_is_no_straggler():
    assert max(steps_of([(1, 1.0)] * 10, [1.0] * 7 + [1.3] + [1.0] * 2)) < 1.04


def test_steps_under_a_plan_of_another_pace_do_not_count():
    found = steps_of([(1, 1.0)] * 5 + [(2, 1.2)] * 4, [1.2] * 5 + [1.0] * 4)
    assert found == pytest.approx([0.0, 0.0, 1.2, 1.2, 1.2, 0.0, 0.0, 1.0, 1.0])
