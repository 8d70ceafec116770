"""Energy of requests against the truth of a simulated server, on sensors as GPUs have them."""

from __future__ import annotations

import math
import statistics
import threading
import time
from typing import NamedTuple

import pytest

from request_world import ServingWorld
from zeus.errors import WindowError
from zeus.monitor import ZeusMonitor
from zeus.monitor._requests import RequestMonitor
from zeus.testing import SimulatedNode
from zeus.testing._traffic import Traffic


def poisson(rate, seconds=40.0, seed=3):
    return list(Traffic.poisson(rate, seconds, seed=seed, prompt=400))


def check_sums(world):
    """Sums against the exact energy, and against the counter."""
    divided, idle = world.monitor.requests.energy()
    requests = math.fsum(found.joules for found, _ in world.pairs())
    assert requests + idle == pytest.approx(divided, rel=1e-9)
    assert requests == pytest.approx(world.exact_requests, rel=0.005)
    total = world.monitor.requests.total()
    assert total.joules == pytest.approx(requests, rel=1e-9)
    assert total.idle_joules == pytest.approx(idle, rel=1e-9)
    # From one refresh of the counter to another, somewhat before and after the load.
    assert divided == pytest.approx(
        world.exact_requests + world.exact_idle, rel=0.02, abs=300 * len(world.drivers)
    )


@pytest.mark.parametrize("sensors", ["a100", "a40", "v100"])
@pytest.mark.parametrize("rate", [0.3, 1.5, 6.0])
def test_sums_errors_and_coverage(sensors, rate):
    world = ServingWorld(poisson(rate, 60 / max(rate, 1.5)), sensors, max_num_seqs=64)
    check_sums(world)
    assert world.coverage() >= 0.92
    assert statistics.median(world.errors()) < 0.01


@pytest.mark.parametrize(("rate", "chunk"), [(1.0, 512), (3.0, 256), (2.0, 128)])
def test_prompts_that_are_processed_in_pieces(rate, chunk):
    world = ServingWorld(poisson(rate), max_num_seqs=64, chunk=chunk)
    check_sums(world)
    assert world.coverage() >= 0.92
    assert statistics.median(world.errors()) < 0.02


def burst(dice):
    """One token of ten is late by up to a step."""
    return dice.uniform(0, 0.03) if dice.random() < 0.1 else 0.0005


@pytest.mark.parametrize(
    ("late", "chunk"),
    [
        (lambda dice: abs(dice.gauss(0, 0.003)), None),
        (lambda dice: abs(dice.gauss(0, 0.008)), None),  # a quarter of a step
        (lambda dice: abs(dice.gauss(0, 0.008)), 256),
        (lambda dice: dice.expovariate(1 / 0.006), None),
        (burst, None),
    ],
    ids=["3 ms", "8 ms", "8 ms in pieces", "exponential", "burst"],
)
def test_tokens_that_are_seen_late(late, chunk):
    world = ServingWorld(poisson(3.0, 25.0), max_num_seqs=64, lateness=late, chunk=chunk)
    divided, idle = world.monitor.requests.energy()
    found = [each.joules for each, _ in world.pairs()]
    assert math.fsum(found) + idle == pytest.approx(divided, rel=1e-9)
    assert math.fsum(found) == pytest.approx(world.exact_requests, rel=0.005)
    assert world.coverage() >= 0.92
    assert statistics.median(world.errors()) < 0.05


@pytest.mark.parametrize(("rate", "seed"), [(3.0, 12), (6.0, 3)])
@pytest.mark.parametrize("chunk", [None, 256, 512])
def test_tokens_that_are_held_back_for_several_steps(rate, seed, chunk):
    """Servers may send what they have generated every few steps only.

    What was generated before a prompt arrived is not due to it, not even as long as it is unknown
    how long a step takes.
    """
    world = ServingWorld(poisson(rate, 25.0, seed), max_num_seqs=64, single=False, chunk=chunk)
    check_sums(world)
    assert world.coverage() >= 0.92


def test_a_long_prompt_is_not_due_to_a_short_one_whose_token_was_seen_first():
    """The tokens of prompts that were processed together are late by different times."""
    now = [0.0]
    requests = RequestMonitor(lambda: now[0], [Counter(lambda: now[0])], virtual=True)
    found = []
    for _ in range(40):
        short, long = requests.begin(100), requests.begin(1900)
        now[0] += 0.4  # 0.2 ms for each prompt token
        short.token()
        now[0] += 0.03
        long.token()
        requests.process()
        short.end()
        long.end()
        now[0] += 0.3
        found.append((short, long))
    now[0] += 0.2
    requests.process()
    for short, long in found:
        total = (short.energy.joules or 0.0) + (long.energy.joules or 0.0)
        assert short.energy.joules == pytest.approx(0.05 * total, abs=0.03 * total)


def test_a_request_that_pauses_does_not_pay_for_the_others():
    """Such as one that a server has put back because memory was short."""
    now = [0.0]
    requests = RequestMonitor(lambda: now[0], [Counter(lambda: now[0])], virtual=True)
    steady, paused = requests.begin(10), requests.begin(10)
    for step in range(400):
        now[0] += 0.05
        steady.token()
        if not 100 <= step < 300:
            paused.token()
        requests.process()
    now[0] += 0.2
    steady.end()
    paused.end()
    shares = [(each.energy.joules or 0.0) / (200 * 20.0) for each in (steady, paused)]
    assert shares[1] == pytest.approx(0.25, abs=0.02)
    assert sum(shares) == pytest.approx(1, abs=0.02)


def test_what_is_stated_at_the_end_covers_too_and_stays():
    world = ServingWorld(poisson(1.5))
    assert world.coverage(stated=True) >= 0.92
    assert {each.method for each in world.stated.values()} == {"estimated"}
    assert all(request.energy.final for request in world.requests.values())
    assert {request.energy.method for request in world.requests.values()} == {"counter"}
    assert world.requests[0].energy is world.requests[0].energy


def test_requests_whose_tokens_are_not_seen():
    world = ServingWorld(poisson(1.5), streams=False)
    divided, idle = world.monitor.requests.energy()
    found = [each.joules for each, _ in world.pairs()]
    assert math.fsum(found) + idle == pytest.approx(divided, rel=1e-9)
    assert math.fsum(found) == pytest.approx(world.exact_requests, rel=0.005)
    assert world.coverage() >= 0.8  # nothing is known of when they were generated


@pytest.mark.parametrize("sensors", ["a100", "v100"])
def test_a_lone_request_has_the_energy_of_its_window(sensors):
    world = ServingWorld([(0.0, 300, 80), (6.0, 300, 150)], sensors)
    for (found, true), request in zip(world.pairs(), world.requests.values(), strict=True):
        assert found.joules == pytest.approx(true, rel=0.01)
        assert request.e2e == pytest.approx(world.result.requests[0].e2e, rel=1)


def test_twins_in_one_batch_differ_little():
    others = [(0.0, 50, 400)] * 6
    world = ServingWorld([*others, (1.0, 200, 100), (1.0, 200, 100)])
    one, two = [each.joules for each, _ in world.pairs()][-2:]
    assert one == pytest.approx(two, rel=0.02)


def test_twice_the_tokens_in_one_batch_take_twice_the_energy():
    """Of generation, in a batch whose size hardly changes."""
    others = [(0.0, 20, 500)] * 62
    world = ServingWorld([*others, (1.0, 20, 101), (1.0, 20, 201)])
    short, long = [each for each, _ in world.pairs()][-2:]
    assert long.generated_joules / short.generated_joules == pytest.approx(2, rel=0.03)


def test_several_gpus_add_up():
    world = ServingWorld(poisson(1.0, 20.0), gpus=2)
    check_sums(world)
    assert world.coverage() >= 0.92


def test_joules_per_token_and_latencies():
    world = ServingWorld(poisson(1.0))
    total = world.monitor.requests.total()
    served = world.result.requests
    assert total.finished == len(served)
    assert total.generated_tokens == sum(each.generated for each in served)
    prompt, generated = total.joules_per_prompt_token, total.joules_per_generated_token
    assert prompt == pytest.approx(0.077, rel=0.1)
    assert generated is not None
    assert generated > 0.4
    for name in ("ttft", "tpot", "e2e"):
        for percent in (50, 99):
            found = total.latencies[name].percentile(percent)
            assert found == pytest.approx(world.result.percentile(name, percent), rel=0.02)
    view = world.monitor.requests.last(60.0).to_dict()
    assert 0 < view["finished"] <= len(served)
    assert set(view["latencies"]) == {"ttft", "tpot", "itl", "e2e"}


def test_requests_that_are_given_up_or_fail():
    with SimulatedNode("a100", load=0.0) as node:
        monitor = ZeusMonitor(cpu_indices=[], sync_execution_with=None)
        requests = monitor.requests
        node.sleep(1.0)
        node.drivers[0].set_load(0.8)
        canceled = requests.begin(100)
        node.sleep(0.7)
        canceled.end(canceled=True)
        failed = requests.begin(100)
        node.sleep(0.2)
        failed.token()
        node.sleep(0.5)
        failed.end(failed=True)
        node.drivers[0].set_load(0.0)
        node.sleep(1.0)
        total = requests.total()
        assert (total.canceled, total.failed, total.finished) == (1, 1, 0)
        watts = 83 + 0.8 * 317
        for request in (canceled, failed):
            assert request.energy.joules == pytest.approx(0.7 * watts, rel=0.02)
        assert canceled.end().final  # a second end changes nothing
        assert total.canceled == 1


def test_idle_energy_is_apart():
    with SimulatedNode("a100", load=0.0) as node:
        monitor = ZeusMonitor(cpu_indices=[], sync_execution_with=None)
        requests = monitor.requests
        node.sleep(20.0)
        divided, idle = requests.energy()
        assert divided == idle > 0
        assert requests.in_flight == 0
        assert requests.last().idle_joules > 0


def test_a_closed_monitor_measures_no_requests():
    with SimulatedNode("a100"):
        monitor = ZeusMonitor(cpu_indices=[], sync_execution_with=None)
        monitor.close()
        with pytest.raises(WindowError, match="closed"):
            monitor.requests  # noqa: B018


def test_without_gpus_latencies_are_still_known():
    now = [0.0]
    requests = RequestMonitor(lambda: now[0], [], virtual=True)
    request = requests.begin(3)
    now[0] = 0.5
    request.first_token()
    now[0] = 1.0
    request.token(4)
    energy = request.end()
    assert (energy.joules, energy.method) == (None, "unavailable")
    assert (request.ttft, request.tpot, request.e2e) == (0.5, 0.125, 1.0)
    with pytest.raises(ValueError, match="prompt_tokens must be at least 0, but got -1"):
        requests.begin(-1)


def test_sums_by_model_are_those_of_all():
    now = [0.0]
    requests = RequestMonitor(lambda: now[0], [Counter(lambda: now[0])], virtual=True)
    kept = [requests.begin(10, model=name) for name in ("one", "two", "two", "")]
    for now[0] in (0.5, 1.0, 1.5):
        for request in kept[:3]:
            request.token(2)
    kept[1].end()
    kept[3].end(failed=True)
    now[0] = 2.0
    found, total = requests.by_model(), requests.total()
    assert set(found) == {"one", "two", "other"}
    assert [(each.running, each.waiting) for each in found.values()] == [(0, 0), (1, 0), (1, 0)]
    for name in ("begun", "finished", "failed", "generated_tokens", "prompt_tokens", "joules"):
        parts = [getattr(each.total, name) for each in found.values()]
        assert math.fsum(parts) == pytest.approx(getattr(total, name))
    assert found["two"].total.joules == pytest.approx(2 * found["one"].total.joules, rel=0.01)
    assert found["two"].total.latencies["itl"].total == 8
    late = requests.begin(10)  # whose model is known later
    late.model = "three"
    late.token()
    now[0] = 3.0
    assert requests.by_model()["three"].running == 1
    late.end()
    late.token()  # too late to count
    assert requests.in_flight == 2
    assert requests.by_model()["three"].total.generated_tokens == 1


def test_so_many_models_have_sums_of_their_own():
    requests = RequestMonitor(lambda: 0.0, [], virtual=True)
    for number in range(1000):
        requests.begin(1, model=f"model {number}")
    for name in ("", "x" * 1000, "a\nb", "\ud83d", "other"):
        assert requests.begin(1, model=name).model == "other"
    found = requests.by_model()
    assert len(found) == 17
    assert found["model 15"].total.begun == 1
    assert found["other"].total.begun == 984 + 5


class Interval(NamedTuple):
    begin: float
    end: float
    joules: float
    variance: float


class Counter:
    """A counter that is refreshed every 0.1 s, at constant power."""

    def __init__(self, clock):
        self.clock = clock

    def __call__(self, since):
        first = max(math.floor(since * 10 + 1e-6), 0)
        last = math.floor(self.clock() * 10 + 1e-6)
        ticks = range(max(first, last - 150), last)
        return [Interval(t / 10, (t + 1) / 10, 20.0, 0.01) for t in ticks if (t + 1) / 10 > since]


def test_memory_does_not_grow():
    now = [0.0]
    requests = RequestMonitor(lambda: now[0], [Counter(lambda: now[0])], virtual=True)
    sizes = []
    for round_ in range(3000):
        request = requests.begin(10)
        for _ in range(3):
            now[0] += 0.03
            request.token()
        request.end()
        now[0] += 0.05
        requests.process()
        if round_ % 1000 == 999:
            sizes.append(
                (
                    len(requests._finder.steps),
                    len(requests._events),
                    len(requests._ended),
                    len(requests._counts.open),
                    len(requests._counts.idle._seconds),
                    len(requests._counts.of("")._seconds),
                )
            )
    assert max(max(each) for each in sizes) < 100
    divided, idle = requests.energy()
    assert divided == pytest.approx(requests.total().joules + idle)


def test_a_stuck_server_stops_nothing():
    """A request without a token for minutes has the energy of that time."""
    now = [0.0]
    requests = RequestMonitor(lambda: now[0], [Counter(lambda: now[0])], virtual=True)
    request = requests.begin(10)
    for _ in range(120):
        now[0] += 1.0
        requests.process()
    assert request.energy.joules == pytest.approx(200 * 120, rel=0.05)
    assert len(requests._finder.steps) < 10


def test_many_threads():
    requests = RequestMonitor(time.monotonic, [Counter(time.monotonic)])
    done = []

    def client():
        for _ in range(20):
            request = requests.begin(5)
            for _ in range(5):
                request.token()
                time.sleep(0.001)
            request.end()
            requests.process()
        done.append(True)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = requests.total()
    assert len(done) == 8
    assert (total.begun, total.finished) == (160, 160)
    assert total.generated_tokens == 800
    assert total.latencies["itl"].total == 640
