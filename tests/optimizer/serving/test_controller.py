"""The controller in virtual time: saves under bounds, on kind worlds and hostile ones."""

from __future__ import annotations

import json
import math

import pytest
from tests.optimizer.serving.worlds import V100, Trial, blind, default_run, ladder, poisson, trial

from zeus._latencies import Latencies
from zeus.errors import FrontierError
from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving import ServingInterval, ServingSetting, control
from zeus.optimizer.serving._controller import Controller
from zeus.optimizer.serving._knowledge import Knowledge
from zeus.testing import ServingWorkload, Traffic, simulate_serving
from zeus.testing._serving_meter import CounterMeter

CALM = poisson(0.4, 900)
BOUNDS = All(LatencyBound("ttft p99", 1.5), LatencyBound("tpot p99", 0.06))
LADDER = ladder()


def kept(result: Trial) -> bool:
    return result.ratio("ttft") <= 1.0 and result.ratio("tpot") <= 1.0


# --- worlds as they are meant -------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "least"), [(1.3, 0.2), (2.0, 0.28)])
def test_it_saves_and_keeps_the_bounds(factor, least):
    result = trial(CALM, factor)
    assert kept(result)
    assert result.saved > least


@pytest.mark.parametrize("seen", [lambda each: each, blind], ids=["phases known", "metrics only"])
def test_one_setting_for_both_phases(seen):
    result = trial(poisson(0.4, 2400, 35), 2.0, phases=False, seen=seen)
    assert kept(result)
    assert result.saved > 0.2
    assert all(held.setting.prefill == held.setting.decode for held in result.controlled.held)


def test_another_gpu_with_chunked_prefill_and_few_slots():
    workload = ServingWorkload.on("a100")
    result = trial(
        poisson(1.5, 600, 7), 2.0, workload=workload, phases=False, chunk=512, max_num_seqs=16
    )
    assert kept(result)
    assert result.saved > 0.1


def test_power_limits():
    limits = [300 - 15 * i for i in range(14)]
    default = default_run(V100, CALM)
    first, each = (2 * (default.percentile(name, 99) or 1) for name in ("ttft", "tpot"))
    objective = All(LatencyBound("ttft p99", first), LatencyBound("tpot p99", each))
    result = simulate_serving(
        V100, CALM, controller=lambda _: control(limits, objective), knob="power-limit"
    )
    assert (result.percentile("ttft", 99) or 0) <= first
    assert (result.percentile("tpot", 99) or 0) <= each
    assert result.energy < 0.9 * default.energy


# --- hostile worlds -----------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.02, 0.15, 2.5])
def test_it_never_takes_more_energy_than_the_default(rate):
    for limits in (
        {"ttft": 1e-3, "tpot": 1e-4},
        {"ttft": 1.0, "tpot": 0.04},
        {"ttft": 60, "tpot": 9},
    ):
        result = trial(poisson(rate, 400, 3), limits=limits)
        assert result.saved > -0.01


def test_a_bound_that_no_setting_keeps_leaves_the_highest():
    result = trial(CALM, limits={"ttft": 1e-3, "tpot": 1e-4})
    settings = {(held.setting.prefill, held.setting.decode) for held in result.controlled.held}
    assert {prefill for prefill, _ in settings} == {LADDER[0]}
    assert result.controlled.percentile("tpot", 99) <= 1.03 * result.default.percentile("tpot", 99)


def test_a_burst_is_over_as_soon_as_at_the_default():
    calm = [(arrival.time, arrival.prompt, arrival.generated) for arrival in poisson(0.5, 700, 5)]
    burst = [
        (500 + arrival.time, arrival.prompt, arrival.generated) for arrival in poisson(2.5, 25, 6)
    ]
    result = trial(Traffic(calm + burst), 1.3)
    _, _, bound = result.bounds[0]

    def last_broken(run):
        broken = [r.first for r in run.requests if r.ttft > bound and r.arrival >= 500]
        return max(broken, default=500.0)

    assert last_broken(result.controlled) <= last_broken(result.default) + 2.0


def test_a_load_that_changes_at_once():
    low = [(a.time, a.prompt, a.generated) for a in poisson(0.1, 400, 8)]
    high = [(400 + a.time, a.prompt, a.generated) for a in poisson(1.0, 400, 9)]
    result = trial(Traffic(low + high), 1.5)
    assert kept(result)
    assert result.saved > 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"meter": CounterMeter(period=0.1, lag=0.1, noise=0.05, seed=1)},
        {
            "meter": CounterMeter(period=2.0, lag=0.5, noise=0.0, seed=2)
        },  # latched for two intervals
        {"lag": 0.2},
        {"interval": 5.0},
        {"interval": 0.3},
    ],
    ids=["noisy meter", "latched meter", "slow clock", "long intervals", "short intervals"],
)
def test_meters_clocks_and_intervals_that_are_worse(options):
    result = trial(CALM, 2.0, **options)
    assert kept(result)
    assert result.saved > 0.2


def busy(begin, *, energy=150.0, ttft=0.2, tpot=0.03, requests=3, setting=None):
    """An interval of a second whose latencies and energy do not depend on any setting."""
    return ServingInterval(
        begin=begin,
        end=begin + 1,
        energy=energy,
        arrived=requests,
        finished=requests,
        prompt_tokens=500 * requests,
        generated_tokens=30 * 8,
        running=8.0,
        oldest_wait=0.0,
        latencies={
            "ttft": Latencies.of([ttft] * requests),
            "tpot": Latencies.of([tpot] * requests),
        },
        busy={"prefill": 0.3, "decode": 0.7},
        setting=setting,
    )


def test_a_clock_without_effect_ends_at_no_worse_a_setting():
    controller = Controller(LADDER, BOUNDS, phases=True)
    decision = controller.first()
    for second in range(300):
        decision = controller.decide(busy(second))
    assert decision.setting.prefill in LADDER
    factors = [
        controller.knowledge.decode.factor(r, 8.0)
        for r in range(controller.knowledge.decode.lowest)
    ]
    assert all(factor == pytest.approx(1.0, abs=0.03) for factor in factors)


def test_without_energies_nothing_is_changed():
    controller = Controller(LADDER, BOUNDS)
    for second in range(60):
        decision = controller.decide(busy(second, energy=None))
    assert decision.setting == ServingSetting(LADDER[0], LADDER[0])
    assert decision.reason == "highest: energies are not known"


def test_what_another_holder_set_is_not_learned_as_its_own():
    controller = Controller(LADDER, BOUNDS)
    highest = ServingSetting(LADDER[0], LADDER[0])
    for second in range(60):
        controller.decide(busy(second, setting=highest))
    assert controller.knowledge.decode.lowest == 0


def test_requests_that_exceed_a_bound_raise_the_setting_at_once():
    controller = Controller(LADDER, BOUNDS)
    for second in range(120):
        decision = controller.decide(busy(second))
    assert decision.setting.decode < LADDER[0]
    decision = controller.decide(busy(121, tpot=0.5))
    assert decision.setting.decode == LADDER[0]
    assert "100%" in decision.reason or "exceeded" in decision.reason


def test_a_request_that_waits_raises_the_setting_at_once():
    controller = Controller(LADDER, BOUNDS)
    for second in range(120):
        controller.decide(busy(second))
    waiting = ServingInterval(begin=120, end=121, energy=150.0, waiting=1, oldest_wait=0.9)
    decision = controller.decide(waiting)
    assert decision.setting.prefill == LADDER[0]
    assert decision.reason == "highest: a request waits for 0.9 s"


def test_tokens_are_generated_as_before_as_soon_as_a_threat_is_over():
    controller = Controller(LADDER, BOUNDS, phases=True)
    for second in range(120):
        before = controller.decide(busy(second)).setting
    assert before.decode < 0.8 * LADDER[0]
    waiting = ServingInterval(begin=120, end=121, energy=150.0, waiting=9, oldest_wait=1.4)
    assert controller.decide(waiting).setting == ServingSetting(LADDER[0], LADDER[0])
    after = [controller.decide(busy(second)).setting.decode for second in (121, 122, 123)]
    assert after[-1] == before.decode


def test_answers_that_stand_still_raise_the_setting():
    """No token comes while many prompts are processed, and nobody knows for how long."""
    controller = Controller(LADDER, BOUNDS, phases=True)
    for second in range(120):
        controller.decide(busy(second))
    for second in range(120, 130):
        stalled = ServingInterval(
            begin=second, end=second + 1, energy=200.0, running=8.0, busy={"prefill": 1.0}
        )
        decision = controller.decide(stalled)
    assert decision.setting.prefill == LADDER[0]
    assert "tokens come" in decision.reason


def test_odd_intervals_are_survived():
    controller = Controller(LADDER, BOUNDS, phases=True)
    wrong = Latencies.from_buckets([0.1, math.inf], [0.0, 5.0])  # nothing but the last bucket
    odd = [
        ServingInterval(begin=1, end=1),
        ServingInterval(begin=2, end=1, energy=5.0),
        ServingInterval(begin=1, end=2),
        ServingInterval(begin=2, end=3, energy=0.0, generated_tokens=1e9, running=1e-9),
        ServingInterval(begin=3, end=4, energy=-3.0, running=2, waiting=10**6),
        ServingInterval(begin=4, end=5, energy=1e12, busy={"prefill": 50.0, "decode": 50.0}),
        ServingInterval(begin=5, end=6, latencies={"ttft": wrong, "tpot": Latencies()}, running=1),
        ServingInterval(begin=6, end=1e6, arrived=5, busy={"else": 1.0}),
    ]
    for interval in [*odd, *map(busy, range(50)), *odd]:
        decision = controller.decide(interval)
        assert decision.setting.prefill in LADDER
        assert decision.setting.decode in LADDER


# --- what is kept -------------------------------------------------------------------------------


def test_what_was_learned_survives_in_json_and_saves_the_learning():
    learned = Knowledge(LADDER, ["ttft", "tpot"])
    trial(CALM, 2.0, knowledge=learned)
    again = Knowledge(LADDER, ["ttft", "tpot"])
    again.load(json.loads(json.dumps(learned.state())))
    assert again.state() == learned.state()
    short = poisson(0.4, 20, 55)
    assert trial(short, 2.0, knowledge=again).saved > trial(short, 2.0).saved + 0.05


@pytest.mark.parametrize(
    "change",
    [{"version": 99}, {"ladder": [1, 2]}, {"power": {}}, {"levels": None}, {"decode": [["x"]]}],
)
def test_a_state_that_does_not_fit_is_refused(change):
    knowledge = Knowledge(LADDER, ["ttft"])
    with pytest.raises(FrontierError, match="a state"):
        Knowledge(LADDER, ["ttft"]).load({**knowledge.state(), **change})


@pytest.mark.parametrize(
    ("settings", "bounds", "error"),
    [
        ([], BOUNDS, "a ladder must be decreasing settings"),
        ([100, 200], BOUNDS, "a ladder must be decreasing settings"),
        (LADDER, LatencyBound("p99", 1), "must name one of ttft, tpot, itl, e2e"),
        (LADDER, LatencyBound("ttft p100", 1), "must name one of"),
        (LADDER, [], "at least one LatencyBound"),
    ],
)
def test_wrong_arguments(settings, bounds, error):
    with pytest.raises(FrontierError, match=error):
        next(control(settings, bounds))
