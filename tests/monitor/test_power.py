"""Power over time: right at any edges, honest about what is missing, bounded, and cleanly ended."""

from __future__ import annotations

import gc
import math
import re
import time
import weakref
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.present import present

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device import Gpu
from zeus.device._base import Cpu, CpuDriver, DeviceSet, GpuDriver, GpuIdentity, unsupported
from zeus.device._node import Node, simulated_node
from zeus.errors import CapabilityError, Reason
from zeus.monitor import ZeusMonitor
from zeus.monitor._power import CpuDomain, PowerDomain, PowerMonitor
from zeus.testing import SimulatedNode

INSTANT, AVERAGE, MEMORY = PowerDomain


class Meter(GpuDriver):
    """A GPU whose power is a function of time, and that may refuse to tell it."""

    may_hang = False
    shared = False

    def __init__(self, clock, power, average=None):
        self.identity = GpuIdentity("GPU-meter", "Meter", "NVIDIA")
        self.clock = clock
        self.power = power
        self.average = average
        self.error = None
        self.reads = []

    def instant_power(self):
        self.reads.append(self.clock.now())
        if self.error is not None:
            raise self.error
        if self.power is None:
            raise unsupported("instantaneous power")
        return self.power(self.clock.now())

    def average_power(self):
        if self.average is None:
            raise unsupported("average power")
        return self.average


def metered(power, **options):
    clock = VirtualClock()
    driver = Meter(clock, power, **options)
    return Node(clock, [driver], DeviceSet([Gpu(0, driver)])), driver


class Counter(CpuDriver):
    """A CPU package whose energy is a function of time."""

    def __init__(self, clock, joules, wrap_period=math.inf):
        self.clock = clock
        self.joules = joules
        self.wrap_period = wrap_period
        self.reads = []

    def energy(self):
        self.reads.append(self.clock.now())
        return self.joules(self.clock.now())


def counted(joules, **options):
    clock = VirtualClock()
    driver = Counter(clock, joules, **options)
    return Node(clock, cpus=DeviceSet([Cpu(0, "package-0", driver)])), driver


def instants(monitor, domain=INSTANT):
    return [instant for instant, _ in monitor.get_power_timeline(domain)[0]]


def gaps(numbers):
    return [later - earlier for earlier, later in pairwise(numbers)]


# --- energy and power -------------------------------------------------------------------------


@given(st.floats(-5, 40), st.floats(-5, 40), st.floats(0, 1))
@settings(max_examples=25)
def test_constant_power_is_exact_for_any_edges(one, other, load):
    node = SimulatedNode("v100", load=load)
    monitor = PowerMonitor(node=node)
    node.sleep(30)
    start, end = sorted((one, other))
    power = node.gpus[0].instant_power()
    assert present(monitor.get_energy(start, end))[0] == pytest.approx(
        power * (end - start), abs=1e-6
    )
    assert monitor.get_power(start) == {0: pytest.approx(power)}


@given(st.lists(st.tuples(st.floats(0.05, 3.0), st.floats(0, 1)), min_size=1, max_size=8))
@settings(max_examples=25)
def test_changing_load_is_within_the_sampling_bound(phases):
    node = SimulatedNode("v100", load=0, sensors="live-power")
    monitor = PowerMonitor(node=node, update_period=0.02)
    begun, before, bound = node.clock.now(), node.exact_energy(), 0.0
    level = node.gpus[0].instant_power()
    for duration, load in phases:
        node.drivers[0].set_load(load)
        level, past = node.gpus[0].instant_power(), level
        bound += abs(level - past) * 0.02 / 2
        node.sleep(duration)
    measured = present(monitor.get_energy(begun, node.clock.now()))[0]
    assert abs(measured - (node.exact_energy() - before)) <= 1.01 * bound + 1e-3


def test_a_day_costs_no_more_than_a_second():
    node = SimulatedNode("v100x4", load=0.5)
    monitor = PowerMonitor(node=node)
    begun = node.exact_energy(3)
    node.sleep(86_400)
    assert present(monitor.get_energy(0, 86_400))[3] == pytest.approx(node.exact_energy(3) - begun)
    assert len(monitor.get_power_timeline()[3]) < 1000


def test_latest_power_and_power_at_an_instant():
    node, _ = metered(lambda now: 100 + 10 * now)
    monitor = PowerMonitor(node=node, update_period=0.5)
    node.clock.sleep(10)
    assert monitor.get_power() == {0: 200.0}
    assert monitor.get_power(5.3) == {0: pytest.approx(153.0)}
    assert monitor.get_power(-1.0) == {0: 100.0}
    assert present(monitor.get_energy(1.1, 2.3))[0] == pytest.approx(1.2 * 117.0)


def test_parts_beyond_the_samples_are_held():
    node, _ = metered(lambda now: 100 + 10 * now)
    with PowerMonitor(node=node, update_period=0.5) as monitor:
        node.clock.sleep(10)
    assert present(monitor.get_energy(-3, 0))[0] == pytest.approx(300.0)
    assert present(monitor.get_energy(10, 12))[0] == pytest.approx(400.0)


def test_timelines_can_be_cut():
    node = SimulatedNode("v100x2", load=1.0)
    monitor = PowerMonitor(node=node, update_period=0.1)
    node.sleep(2)
    cut = monitor.get_power_timeline(gpu_index=1, start_time=0.45, end_time=1.05)
    assert list(cut) == [1]
    assert [instant for instant, _ in cut[1]] == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert monitor.get_all_power_timelines(1, 0.45, 1.05) == {INSTANT: cut}
    assert monitor.get_power_timeline("device_instant", 1, 0.45, 1.05) == cut


@pytest.mark.real_time
def test_wall_clock_instants_are_accepted():
    node = simulated_node("v100", MonotonicClock(), 1.0)
    with PowerMonitor([0], update_period=0.01, cpu_indices=[], node=node) as monitor:
        begun, wall_begun = time.monotonic(), time.time()
        node.clock.sleep(0.1)
        ended, wall_ended = time.monotonic(), time.time()
    power = node.gpus[0].instant_power()
    assert present(monitor.get_energy(begun, ended))[0] == pytest.approx(power * (ended - begun))
    by_wall_clock = monitor.get_energy(wall_begun, wall_ended)
    assert present(by_wall_clock)[0] == pytest.approx(power * (wall_ended - wall_begun), rel=1e-3)
    assert all(begun - 60 < t < ended + 60 for t in instants(monitor))
    assert monitor.get_power(wall_begun) == {0: pytest.approx(power)}
    in_unix_time = monitor.get_power_timeline(start_time=wall_begun - 60, end_time=wall_ended + 60)
    assert in_unix_time == monitor.get_power_timeline()


# --- what is missing --------------------------------------------------------------------------


def test_without_devices_nothing_is_known():
    monitor = PowerMonitor(node=Node(VirtualClock()))
    assert monitor.get_power() is None
    assert monitor.get_energy(0, 1) is None
    assert monitor.get_cpu_energy(0, 1) is None
    assert monitor.get_power_timeline() == {}
    assert monitor.get_all_power_timelines() == {}
    assert monitor.get_cpu_timeline() == {}
    monitor.stop()


def test_domains_a_gpu_lacks_are_absent_with_a_reason():
    node = SimulatedNode("v100", load=1.0)
    monitor = PowerMonitor(node=node)
    node.sleep(1)
    assert set(monitor.unavailable) == {(AVERAGE, 0), (MEMORY, 0)}
    assert monitor.unavailable["device_average", 0].reason is Reason.UNSUPPORTED
    assert list(monitor.get_all_power_timelines()) == [INSTANT]
    assert monitor.get_power_timeline(MEMORY) == {}


def test_mixed_gpus_tell_what_each_has():
    node = SimulatedNode("v100,h100", load=1.0)
    monitor = PowerMonitor(node=node)
    node.sleep(1)
    h100 = next(gpu.index for gpu in node.gpus if "H100" in gpu.name)
    timelines = monitor.get_all_power_timelines()
    assert set(timelines[INSTANT]) == {0, 1}
    assert set(timelines[AVERAGE]) == set(timelines[MEMORY]) == {h100}
    assert monitor.get_power_timeline(MEMORY)[h100][-1][1] < present(monitor.get_power())[h100]


def test_only_the_domains_asked_for_are_read():
    node = SimulatedNode("h100", load=1.0)
    monitor = PowerMonitor(power_domains=["memory_average"], node=node)
    node.sleep(1)
    assert list(monitor.get_all_power_timelines()) == [MEMORY]
    assert monitor.unavailable == {}
    assert monitor.get_power() is None  # memory is not the device


def test_average_power_stands_in_where_instant_power_is_missing():
    node, _ = metered(None, average=120.0)
    monitor = PowerMonitor(node=node)
    node.clock.sleep(5)
    assert monitor.device_domains == {0: AVERAGE}
    assert monitor.get_power() == {0: 120.0}
    assert present(monitor.get_energy(1, 3))[0] == pytest.approx(240.0)
    assert (INSTANT, 0) in monitor.unavailable


def test_a_lost_gpu_is_unknown_from_then_on_and_known_again_later():
    node, driver = metered(lambda now: 100.0)
    monitor = PowerMonitor(node=node, update_period=0.1)
    node.clock.sleep(2)
    driver.error = CapabilityError(Reason.LOST, "fell off the bus")
    node.clock.sleep(2)
    assert monitor.get_power() is None
    assert monitor.get_energy(1, 3) is None
    assert monitor.get_energy(0.5, 1.5) == {0: pytest.approx(100.0)}
    assert monitor.unavailable[INSTANT, 0].reason is Reason.LOST
    driver.error = None
    node.clock.sleep(2)
    assert monitor.get_power() == {0: 100.0}
    assert monitor.unavailable.keys() == {(AVERAGE, 0), (MEMORY, 0)}


def test_a_gpu_lost_at_first_is_followed_once_it_is_back():
    node, driver = metered(lambda now: 100.0)
    driver.error = CapabilityError(Reason.LOST, "fell off the bus")
    monitor = PowerMonitor(node=node)
    node.clock.sleep(2)
    assert monitor.get_energy(0, 1) is None
    driver.error = None
    node.clock.sleep(2)
    assert monitor.get_power() == {0: 100.0}


def test_one_implausible_answer_is_left_out():
    node, driver = metered(lambda now: 100.0)
    monitor = PowerMonitor(node=node, update_period=0.1)
    node.clock.sleep(1)
    driver.error = CapabilityError(Reason.IMPLAUSIBLE, "1e9 W")
    node.clock.sleep(0.1)
    driver.error = None
    node.clock.sleep(1)
    assert max(gaps(instants(monitor))) == pytest.approx(0.2)
    assert present(monitor.get_energy(0, 2))[0] == pytest.approx(200.0)
    assert (INSTANT, 0) not in monitor.unavailable


# --- how often --------------------------------------------------------------------------------


def test_an_explicit_period_is_obeyed():
    node, _ = metered(lambda now: 100.0 + math.sin(now))
    monitor = PowerMonitor(node=node, update_period=0.25)
    node.clock.sleep(2)
    assert gaps(instants(monitor)) == pytest.approx([0.25] * 8)


def test_windows_do_not_make_it_look_more_often():
    node = SimulatedNode("v100", load=1.0)
    monitor = PowerMonitor(node=node, update_period=0.5)
    windows = ZeusMonitor(node=node)
    for _ in range(100):
        with windows.window("step") as window:
            node.sleep(0.02)
        assert present(window.measurement).gpu_energy[0] > 0
    assert all(gap > 0.49 for gap in gaps(instants(monitor)))


@pytest.mark.parametrize(("tick", "expected"), [(0.04, 0.02), (0.1, 0.05), (0.001, 0.01)])
def test_the_period_follows_the_sensors_tick(tick, expected):
    node, _ = metered(lambda now: 100.0 + math.floor(now / tick + 1e-6))
    monitor = PowerMonitor(node=node)
    for _ in range(40):
        node.clock.sleep(0.05)
    late = [instant for instant in instants(monitor) if instant > 1]
    assert gaps(late) == pytest.approx([expected] * (len(late) - 1))


def test_the_period_of_a_level_sensor_is_the_counters():
    node = SimulatedNode("v100", load=1.0)
    monitor = PowerMonitor(node=node)
    for _ in range(40):
        node.sleep(0.05)
    late = [instant for instant in instants(monitor) if instant > 1]
    assert gaps(late) == pytest.approx([0.02] * (len(late) - 1))


def test_quick_looks_are_bounded():
    node, driver = metered(lambda now: 100.0)
    monitor = PowerMonitor(node=node)
    for _ in range(100):
        node.clock.sleep(0.05)
    assert len(driver.reads) <= 51 + 5 / 0.1
    assert instants(monitor)


def test_lateness_does_not_add_up():
    """Reads that take time, as on hardware, do not stretch the period."""
    clock = VirtualClock()

    class Slow(Meter):
        def instant_power(self):
            clock._now += 0.03
            return super().instant_power()

    driver = Slow(clock, lambda now: 100.0)
    node = Node(clock, [driver], DeviceSet([Gpu(0, driver)]))
    monitor = PowerMonitor(node=node, update_period=0.1)
    for _ in range(10):
        clock.sleep(0.5)
    assert gaps(instants(monitor)) == pytest.approx([0.1] * (len(instants(monitor)) - 1))


# --- how much ---------------------------------------------------------------------------------


def test_memory_is_bounded_and_no_energy_is_lost():
    node = SimulatedNode("v100", load=0.2)
    monitor = PowerMonitor(node=node, update_period=0.02, max_samples_per_gpu=64)
    full = PowerMonitor(node=node, update_period=0.02)
    for number in range(200):
        node.drivers[0].set_load(number % 10 / 10)
        node.sleep(0.1)
    assert len(monitor.get_power_timeline()[0]) <= 64
    assert len(full.get_power_timeline()[0]) > 900
    assert present(monitor.get_energy(0, 20))[0] == pytest.approx(
        present(full.get_energy(0, 20))[0]
    )
    assert present(monitor.get_energy(19.5, 20))[0] == pytest.approx(
        present(full.get_energy(19.5, 20))[0]
    )


# --- the end ----------------------------------------------------------------------------------


def test_after_stop_nothing_is_read_and_everything_can_be_asked():
    node, driver = metered(lambda now: 100.0)
    monitor = PowerMonitor(node=node, update_period=0.1)
    node.clock.sleep(1.05)
    monitor.stop()
    assert instants(monitor)[-1] == pytest.approx(1.05)
    reads = len(driver.reads)
    node.clock.sleep(10)
    monitor.stop()
    assert len(driver.reads) == reads
    assert present(monitor.get_energy(0, 1))[0] == pytest.approx(100.0)
    assert monitor.get_power() == {0: 100.0}


def test_a_monitor_that_is_dropped_stops_reading():
    node, driver = metered(lambda now: 100.0)
    monitor = PowerMonitor(node=node, update_period=0.1)
    node.clock.sleep(1)
    gone = weakref.ref(monitor)
    del monitor
    gc.collect()
    assert gone() is None
    node.clock.sleep(0.1)
    reads = len(driver.reads)
    node.clock.sleep(10)
    assert len(driver.reads) == reads


def test_one_monitors_end_is_not_the_others():
    node, _ = metered(lambda now: 100.0)
    first = PowerMonitor(node=node, update_period=0.1)
    second = PowerMonitor(node=node, update_period=0.1)
    first.stop()
    node.clock.sleep(1)
    assert len(instants(first)) <= 2
    assert len(instants(second)) > 8


def test_in_real_time():
    node = simulated_node("v100", MonotonicClock(), 1.0)
    with PowerMonitor(update_period=0.005, cpu_indices=[], node=node) as monitor:
        deadline = time.monotonic() + 120
        while len(instants(monitor)) < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
    samples = len(instants(monitor))
    assert samples >= 10
    time.sleep(0.05)
    assert len(instants(monitor)) == samples


# --- CPUs -------------------------------------------------------------------------------------


def test_cpu_energy_is_the_counters_difference():
    node, _ = counted(lambda now: 1000 + 40 * now + 20 * math.sin(now))
    monitor = PowerMonitor(node=node)
    for _ in range(100):
        node.clock.sleep(0.1)
    energy = monitor.get_cpu_energy(2.0, 7.0)
    assert energy == {0: pytest.approx(200 + 20 * (math.sin(7) - math.sin(2)), abs=0.1)}
    assert monitor.get_cpu_energy(2.0, 7.0, "dram") is None
    assert monitor.unavailable[CpuDomain.DRAM, 0].reason is Reason.UNSUPPORTED
    watts = [value for _, value in monitor.get_cpu_timeline(cpu_index=0)[0]]
    assert all(19 < value < 61 for value in watts)
    assert monitor.get_power() is None


def test_constant_cpu_power_is_exact():
    node, _ = counted(lambda now: 40 * now)
    monitor = PowerMonitor(node=node)
    node.clock.sleep(3600)
    assert monitor.get_cpu_energy(-1, 3700) == {0: pytest.approx(40 * 3701)}


def test_one_reading_of_a_counter_tells_no_power():
    node, _ = counted(lambda now: 40 * now)
    monitor = PowerMonitor(node=node)
    assert monitor.get_cpu_energy(0, 1) is None
    assert monitor.get_cpu_timeline() == {0: []}


def test_two_readings_within_a_tick_tell_no_power():
    node, _ = counted(lambda now: 40 * math.floor(now / 0.001) * 0.001)
    monitor = PowerMonitor(node=node)
    node.clock.sleep(0.0005)
    monitor.stop()
    assert monitor.get_cpu_timeline() == {0: []}


def test_counters_are_read_before_they_can_wrap_twice():
    node, driver = counted(lambda now: 40 * now, wrap_period=0.6)
    monitor = PowerMonitor(node=node, update_period=100)
    node.clock.sleep(4)
    assert max(gaps(driver.reads)) < 0.6
    assert monitor.get_cpu_energy(0, 4) == {0: pytest.approx(160)}


def test_no_cpus_if_none_are_asked_for():
    node, driver = counted(lambda now: 40 * now)
    monitor = PowerMonitor(cpu_indices=[], node=node)
    node.clock.sleep(1)
    assert driver.reads == []
    assert monitor.get_cpu_timeline() == {}


def test_ranks_share_out_a_node(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    node, driver = counted(lambda now: 40 * now)
    simulated = SimulatedNode("v100x2", clock=node.clock)
    node.gpus = simulated.gpus
    monitor = PowerMonitor(node=node)
    assert monitor.gpu_indices == [1]
    assert driver.reads == []


# --- mistakes ---------------------------------------------------------------------------------


def test_an_end_before_the_start_names_both():
    monitor = PowerMonitor(node=SimulatedNode("v100"))
    for ask in (
        monitor.get_energy,
        monitor.get_cpu_energy,
        lambda a, b: monitor.get_power_timeline(start_time=a, end_time=b),
    ):
        with pytest.raises(ValueError, match=r"start_time=5\.5, end_time=2\.25"):
            ask(5.5, 2.25)
        with pytest.raises(ValueError, match="nan"):
            ask(math.nan, 1.0)


@pytest.mark.parametrize("period", [0, -1, 0.0, math.nan, math.inf])
def test_the_period_must_be_positive(period):
    with pytest.raises(ValueError, match=f"update_period > 0.*{re.escape(str(period))}"):
        PowerMonitor(update_period=period, node=SimulatedNode("v100"))


@pytest.mark.parametrize("samples", [1, 0, -5])
def test_at_least_two_samples_are_kept(samples):
    with pytest.raises(ValueError, match=f"max_samples_per_gpu >= 2.*{samples}"):
        PowerMonitor(max_samples_per_gpu=samples, node=SimulatedNode("v100"))
    PowerMonitor(max_samples_per_gpu=2, node=SimulatedNode("v100"))


def test_unknown_devices_and_domains():
    node = SimulatedNode("v100x2")
    with pytest.raises(ValueError, match="7"):
        PowerMonitor([7], node=node)
    with pytest.raises(ValueError, match=r"device_instant.*board"):
        PowerMonitor(power_domains=["board"], node=node)
    monitor = PowerMonitor([1], node=node)
    with pytest.raises(ValueError, match=r"among \[1\], but got 0"):
        monitor.get_power_timeline(gpu_index=0)
    with pytest.raises(ValueError, match="board"):
        monitor.get_power_timeline("board")


def test_the_published_names():
    assert [domain.value for domain in PowerDomain] == [
        "device_instant",
        "device_average",
        "memory_average",
    ]
    with SimulatedNode("v100", load=1.0) as node:
        monitor = PowerMonitor(gpu_indices=[0], update_period=0.1, max_samples_per_gpu=1000)
        node.sleep(1)
        assert present(monitor.get_power(time=0.5))[0] > 100
        assert present(monitor.get_energy(start_time=0.0, end_time=1.0))[0] > 100
        timelines = monitor.get_power_timeline(
            power_domain=PowerDomain.DEVICE_INSTANT, gpu_index=0, start_time=0.0, end_time=1.0
        )
        assert timelines[0][0][1] > 100
        monitor.stop()
