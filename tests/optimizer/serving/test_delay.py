"""How late a server is: the seconds that a lower setting has lost since its queue was empty."""

from __future__ import annotations

import pytest
from tests.optimizer.serving.worlds import V100, default_run, poisson, trial

from zeus.optimizer.serving import Decision, ServingInterval
from zeus.optimizer.serving._delay import Delay
from zeus.optimizer.serving._life import Life
from zeus.testing import Traffic, simulate_serving

# Twice as many prompts as can be processed, then hardly any.
OVERLOAD = Traffic(
    [(each.time, each.prompt, 20) for each in poisson(4.0, 60, 4, prompt=2000)]
    + [(200 + each.time, each.prompt, 20) for each in poisson(0.3, 60, 5, prompt=500)]
)


def interval(*, arrived=0, waiting=0, oldest_wait=0.0):
    return ServingInterval(
        begin=0, end=1, arrived=arrived, waiting=waiting, oldest_wait=oldest_wait
    )


def test_what_is_lost_adds_up_while_requests_wait_and_no_longer():
    delay = Delay()
    for _ in range(3):
        delay.add(interval(arrived=4, waiting=10), busy=1.0, lost=0.2, prompt=0.5)
    assert delay.seconds == pytest.approx(0.6)
    delay.add(interval(), busy=1.0, lost=0.2, prompt=0.5)
    assert delay.served == pytest.approx(0.8)
    assert delay.seconds == 0.0


def test_nobody_is_later_than_the_queue_is_long():
    delay = Delay()
    for _ in range(30):
        delay.add(interval(arrived=1, waiting=1), busy=1.0, lost=0.5, prompt=0.1)
    assert 0 < delay.seconds <= delay.backlog <= 1.0


@pytest.mark.parametrize("clock", [1200.0, 795.0])
def test_it_is_by_how_much_first_tokens_come_later(clock):
    """With the true slowdown of prompts and tokens, it is right to a tenth in an overload."""
    setting = V100.setting(clock)
    prompts = V100.prefill(setting.prefill, 4000)[0] / V100.prefill(1530, 4000)[0]
    tokens = V100.decode(setting.decode, 30)[0] / V100.decode(1530, 30)[0]
    delay, found = Delay(), []

    def follow(_):
        while True:
            seen = yield Decision(setting)
            busy = seen.busy["prefill"] + seen.busy["decode"]
            lost = seen.busy["prefill"] * (1 - 1 / prompts) + seen.busy["decode"] * (1 - 1 / tokens)
            delay.add(seen, busy, lost, 0.4)
            found.append((seen.end, delay.served))

    slow = simulate_serving(V100, OVERLOAD, setting=setting, controller=follow)
    default = default_run(V100, OVERLOAD)
    late = [
        (each.first, each.ttft - other.ttft)
        for each, other in zip(slow.requests, default.requests, strict=True)
        if 10 < each.first < 60  # requests still arrive
    ]
    assert max(seconds for _, seconds in late) > 5
    for time, seconds in late[::10]:
        served = next(served for end, served in found if end >= time)
        assert served == pytest.approx(seconds, rel=0.1, abs=0.5)
    assert found[-1][1] < 0.5  # the queue was empty since


def test_an_overloaded_server_saves_within_its_bounds():
    """First tokens take half a minute at any setting: the bound leaves room to be late."""
    traffic = Traffic.bursts(
        0.5, 4.0, 900, every=300, length=40, prompt=2000, generated=30, seed=13
    )
    result = trial(traffic, 1.5)
    assert default_run(V100, traffic).percentile("ttft", 99) > 10
    assert result.ratio("ttft") <= 1.0
    assert result.ratio("tpot") <= 1.0
    assert result.saved > 0.12


def test_a_life_is_no_slower_than_its_slowest_part():
    life = Life(brief=False)
    assert life.scale == 1.0
    for _ in range(100):
        life.add(ServingInterval(begin=0, end=1, running=8, finished=2), 1.5, 1.0)
    assert 1.4 < life.scale <= 1.5
    life.add(ServingInterval(begin=0, end=1), float("inf"), 0.0)  # nothing ran
    assert 1.4 < life.scale <= 1.5
