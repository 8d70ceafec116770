"""What was saved: energy, time and cost, against what, and since when."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.batch_size.histories import A40, V100, spec
from tests.present import present

from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.storage._account import (
    Account,
    account,
    break_even,
    course,
)
from zeus.optimizer.batch_size.storage._history import Span, Total
from zeus.optimizer.batch_size.storage._tally import Tally

POWER = 300.0


def total(size: int, state: str, trials: int, energy: float | None, time: float, **more: Any):
    """Trials with the energy and time of each."""
    values: dict[str, Any] = {"gpu": A40.name, "gpus": A40.number, **more}
    measured = 0 if energy is None else trials
    job = spec()
    return Total(
        batch_size=size,
        state=state,
        trials=trials,
        epochs=trials,
        time=time * trials,
        measured=measured,
        measured_time=time * measured,
        energy=(energy or 0.0) * measured,
        bound=0.0 if measured else POWER * time * trials,
        cost=trials * job.cost(POWER * time if energy is None else energy, time, POWER),
        latest=1,
        **values,
    )


def accounted(
    *totals: Total,
    profiles: dict[GpuModel, list[float]] | None = None,
    expected: dict[GpuModel, float] | None = None,
    **changes: Any,
) -> Account:
    tally = Tally()
    for each in totals:
        known = tally._of(GpuModel(each.gpu, each.gpus))
        known.max_power = POWER
        known.add(each, default=each.batch_size == 64)
    for gpu, ends in (profiles or {}).items():
        tally._of(gpu).profile = ends
    return account(spec(**changes), tally, (expected or {}).get)


def test_energy_time_and_cost_are_compared_with_measured_runs_of_the_default():
    found = accounted(
        total(64, "converged", 2, energy=1000.0, time=10.0),
        total(32, "converged", 8, energy=600.0, time=12.0),
        total(128, "stopped", 1, energy=300.0, time=2.0),
    )
    assert (found.energy.spent, found.energy.default) == (2000 + 4800 + 300, 10_000)
    assert found.energy.saved == 2900
    assert found.energy.share == pytest.approx(0.29)
    assert (found.time.spent, found.time.default) == (118.0, 100.0)
    assert found.time.share == pytest.approx(-0.18)  # it takes longer
    cost = spec().cost(1000.0, 10.0, POWER)
    assert found.cost.default == pytest.approx(10 * cost)
    assert found.basis == "measured"
    assert found.words == (
        "against the default batch size, 64: 2 runs at the power limits chosen there"
    )


def test_the_default_is_at_full_power():
    # The chosen limit takes 80 J and 1.1 s where full power takes 100 J and 1 s.
    profiles = {A40: [80.0, 1.1, 100.0, 1.0]}
    found = accounted(total(64, "converged", 4, energy=800.0, time=11.0), profiles=profiles)
    base = found.baselines[A40]
    assert (base.energy, base.time) == (pytest.approx(1000.0), pytest.approx(10.0))
    assert base.factor == pytest.approx(1.25)
    assert found.energy.share == pytest.approx(0.2)
    assert found.time.share == pytest.approx(-0.1)
    assert found.words == "against the default batch size, 64: 4 runs at full power"


def test_a_default_that_never_ran_is_predicted_and_says_so():
    runs = total(32, "converged", 5, energy=600.0, time=12.0)
    unknown = accounted(runs)
    assert (unknown.energy.saved, unknown.basis) == (None, "")
    assert unknown.words == (
        "no run with the default batch size, 64, has converged on NVIDIA A40, and the policy "
        "expects nothing of it"
    )
    # The cost that is expected of it is split by an average power: of its profile, of its runs that
    # missed the target, or of all runs on these GPUs.
    for watts, more in (
        (100.0, {"profiles": {A40: [100.0, 1.0, 100.0, 1.0]}}),
        (100.0, {}),
        (50.0, {}),
    ):
        missed = (total(64, "failed", 1, energy=500.0, time=5.0),) if not more else ()
        missed = () if watts == 50.0 else missed
        cost = spec().cost(10 * watts, 10.0, POWER)
        found = accounted(runs, *missed, expected={A40: cost}, **more)
        assert found.basis == "predicted"
        assert found.energy.default == pytest.approx(5 * 10 * watts)
        assert found.time.default == pytest.approx(5 * 10.0)
        assert found.cost.default == pytest.approx(5 * cost)
    assert found.words == (
        "against the default batch size, 64: predicted at the power limits chosen there"
    )


def test_nothing_to_compare_with_is_never_zero():
    assert accounted().words == "no run has reached the target yet"
    missed = accounted(total(64, "failed", 3, energy=10.0, time=1.0))
    assert (missed.energy.spent, missed.energy.saved, missed.energy.share) == (30.0, None, None)
    always = accounted(total(64, "converged", 3, energy=10.0, time=1.0), policy="default")
    assert (always.energy.saved, always.words) == (None, "the policy always runs the default")
    blind = accounted(total(64, "converged", 3, energy=None, time=1.0))
    assert blind.energy.default is None
    assert blind.time.saved == 0.0
    assert blind.words.endswith("; the energy of the default was not measured")


def test_runs_whose_energy_was_not_measured():
    found = accounted(
        total(64, "converged", 2, energy=1000.0, time=10.0),
        total(32, "converged", 3, energy=None, time=1.0),
        total(16, "failed", 2, energy=None, time=1.0),
    )
    # Those that converged are left out; those that missed count as much as they may have taken.
    assert found.energy.default == 2000.0
    assert found.energy.spent == 2000.0 + 2 * POWER
    assert found.left_out == 3
    assert found.time.default == 50.0
    assert found.words.endswith("; 3 runs without measured energy left out")


def test_several_gpus_have_a_default_each():
    there = {"gpu": V100.name, "gpus": V100.number}
    found = accounted(
        total(64, "converged", 2, energy=1000.0, time=10.0),
        total(64, "converged", 1, energy=4000.0, time=5.0, **there),
        total(32, "converged", 1, energy=3000.0, time=5.0, **there),
    )
    assert found.energy.default == 2 * 1000.0 + 2 * 4000.0
    assert found.words.endswith(
        "64: 2 runs at the power limits chosen there on NVIDIA A40; "
        "1 run at the power limits chosen there on 4 × Tesla V100"
    )
    partly = accounted(
        total(64, "converged", 2, energy=1000.0, time=10.0),
        total(32, "converged", 1, energy=3000.0, time=5.0, **there),
        expected={V100: 1.0},
    )
    assert partly.basis == "predicted"


def span(first: int, size: int, state: str, energy: float | None, time: float = 10.0) -> Span:
    one = total(size, state, 1, energy, time)
    return Span(
        first, size, state, one.gpu, one.gpus, 1, one.time, one.measured, one.energy, one.bound,
        one.cost, first,
    )  # fmt: skip


def test_break_even_is_when_less_was_taken_for_good():
    spans = [
        span(1, 64, "converged", 1000.0),
        span(2, 32, "converged", 900.0),  # ahead, for a moment
        span(3, 128, "stopped", 700.0),
        span(3, 64, "converged", 1000.0),
        *(span(night, 32, "converged", 800.0) for night in range(4, 8)),
        span(8, 32, "running", 5.0),
    ]
    found = accounted(*(_as_total(each) for each in spans if each.state != "running"))
    points = course(spans, found)
    assert [point.first for point in points] == list(range(1, 8))
    behind = [present(point.energy.saved) for point in points]
    assert behind == [0.0, 100.0, -600.0, -400.0, -200.0, 0.0, 200.0]
    assert break_even(points, "energy") == 7
    assert break_even(points[:6], "energy") is None
    assert points[-1].energy == found.energy
    assert points[-1].cost.default == pytest.approx(found.cost.default)
    assert break_even(course(spans, accounted()), "energy") is None


def _as_total(one: Span) -> Total:
    return Total(
        one.gpu, one.gpus, one.batch_size, one.state, 1, 1, one.time, one.measured,
        one.time * one.measured, one.energy, one.bound, one.cost, one.latest,
    )  # fmt: skip
