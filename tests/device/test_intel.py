"""Intel GPUs, in a directory tree and beside a kernel that clamps and refuses as the real one."""

from __future__ import annotations

import errno
import re
import signal
from pathlib import Path

import pytest
from tests.device.clients import Clients
from tests.device.trees import Drm, follow, lock, open_directory, unprivileged, write

from zeus.device import _intel as intel
from zeus.device._base import ClockRange
from zeus.device._gpu import Gpu
from zeus.device._visible import Candidate, Visible, visible_intel
from zeus.errors import CapabilityError, KnobError, Reason

B580 = {
    "energy1_label": "card", "energy1_input": 5_000_000,
    "energy2_label": "pkg", "energy2_input": 3_000_000,
    "power1_max": 190_000_000, "power2_max": 160_000_000,
    "temp2_label": "pkg", "temp2_input": 61_000, "temp3_label": "vram", "temp3_input": 70_000,
}  # fmt: skip
A770 = {"energy1_input": 7_500_000, "power1_max": 190_000_000, "power1_rated_max": 225_000_000}


@pytest.fixture
def drm(tmp_path):
    return Drm(tmp_path)


def only(drm: Drm) -> intel.IntelGpuDriver:
    (driver,), problems = intel.discover(drm.root)
    assert problems == []
    assert isinstance(driver, intel.IntelGpuDriver)
    return driver


def refused(question, *arguments) -> CapabilityError:
    with pytest.raises(CapabilityError) as caught:
        question(*arguments)
    return caught.value


@pytest.fixture
def kernel(monkeypatch):
    """What the kernel does with what is written: it clamps limits, and refuses crossed clocks."""
    plain = Path.write_text
    written: list[tuple[str, int]] = []

    def write_text(path: Path, text: str, *rest, **options) -> int:
        value = int(text)
        if re.fullmatch(r"power\d_max", path.name):
            value = min(max(value, 60_000_000), 225_000_000)
        elif found := re.fullmatch(r"(rps_|)(min|max|boost)(_freq\w*)", path.name):
            head, name, tail = found.groups()

            def bound(which: str) -> int:
                return int(path.with_name(f"{head}{which}{tail}").read_text())

            low, high = (bound("RPn"), bound("RP0")) if head else (bound("rpn"), bound("rp0"))
            crossed = (name == "min" and value > bound("max")) or (
                name == "max" and value < bound("min")
            )
            if not low <= value <= high or crossed:
                raise OSError(errno.EINVAL, "Invalid argument", str(path))
        written.append((path.name, value))
        return plain(path, f"{value}\n", *rest, **options)

    monkeypatch.setattr(Path, "write_text", write_text)
    return written


# --- what there is ------------------------------------------------------------------------------


def test_a_card_of_xe_is_the_whole_card(drm):
    drm.card(sensors=B580)
    driver = only(drm)
    assert driver.identity.name == "Intel Arc B580"
    assert driver.identity.key == driver.identity.pci_address == "0000:03:00.0"
    assert not driver.identity.whole_module
    assert driver.energy() == 5.0
    assert driver.power_limit() == 190
    assert driver.temperature() == 61
    assert driver.version().startswith("xe ")


def test_an_older_gpu_of_xe_has_sensors_of_its_package_only(drm):
    older = {name: value for name, value in B580.items() if "1" not in name}
    drm.card(device=0x56A0, sensors=older)
    assert only(drm).energy() == 3.0
    assert only(drm).power_limit() == 160


def test_i915_has_a_sensor_of_the_card_beside_those_of_its_gts(drm):
    device = drm.card(driver="i915", device=0x56A0, sensors=A770)
    write(device / "hwmon/hwmon1", {"name": "i915_gt0", "energy1_input": 1})
    assert only(drm).energy() == 7.5
    assert only(drm).power_limits().maximum == 225


def test_there_is_no_power_meter(drm):
    drm.card(sensors=B580)
    assert refused(only(drm).instant_power).reason is Reason.UNSUPPORTED
    assert isinstance(only(drm).sample()[1], CapabilityError)


def test_cards_come_by_pci_address_and_others_are_ignored(drm):
    drm.card(0, "0000:83:00.0", sensors=B580)
    drm.card(1, "0000:03:00.0", sensors=A770, driver="i915", device=0x56A0)
    drm.card(2, "0000:04:00.0", vendor=0x10DE, driver="nvidia")
    drm.card(3, "0000:05:00.0", driver="vfio-pci")
    (drm.root / "version").write_text("drm 1.1.0\n")
    drivers, problems = intel.discover(drm.root)
    assert [driver.identity.name for driver in drivers] == ["Intel Arc A770", "Intel Arc B580"]
    assert problems == []


def test_an_integrated_gpu_is_no_gpu_of_its_own(drm):
    drm.card(0, "0000:00:02.0", driver="i915", device=0x9A49)
    drm.card(1, sensors=B580)
    (driver,), (problem,) = intel.discover(drm.root)
    assert driver.identity.name == "Intel Arc B580"
    assert problem.what == "Intel GPU 9a49 at 0000:00:02.0"
    assert problem.error.reason is Reason.UNSUPPORTED
    assert "in that of the CPU package" in str(problem)


def test_a_card_without_sensors_is_listed_and_says_what_it_needs(drm):
    drm.card(device=0xFFFF)
    driver = only(drm)
    assert driver.identity.name == "Intel GPU ffff"
    for question in (driver.energy, driver.power_limit, driver.power_limits):
        error = refused(question)
        assert error.reason is Reason.UNSUPPORTED
        assert "no hwmon of i915 or xe; it needs Linux 6.2" in str(error)
    for asked in (driver.temperature, driver.current_clocks, driver.supported_clocks):
        assert refused(asked).reason is Reason.UNSUPPORTED
    assert driver.locked_graphics_clock() is None


@pytest.mark.parametrize("name", ["energy1_input", "power1_max", "temp2_input"])
def test_a_file_that_vanishes_costs_itself(drm, name):
    device = drm.card(sensors={key: value for key, value in B580.items() if "2_m" not in key})
    driver = only(drm)
    questions = {"energy": driver.energy, "power": driver.power_limit, "temp": driver.temperature}
    for file in (name, name.replace("1_input", "2_input")):
        (device / "hwmon/hwmon3" / file).unlink(missing_ok=True)
    for key, question in questions.items():
        if name.startswith(key):
            assert refused(question).reason is Reason.UNSUPPORTED
        else:
            question()


def test_a_machine_without_graphics_cards_has_none(tmp_path):
    assert intel.discover(tmp_path / "nowhere") == ([], [])


# --- the counter --------------------------------------------------------------------------------


def test_a_counter_that_restarts_never_runs_backwards(drm):
    """The kernel undoes the overflow of its register; loading the driver again starts at 0."""
    device = drm.card(sensors=B580)
    driver = only(drm)
    seen = [driver.energy()]
    for value in (5_000_000, 9_000_000, 0, 1_000_000, 2**40, 5):
        write(device / "hwmon/hwmon3", {"energy1_input": value})
        seen.append(driver.energy())
    assert seen == [5, 5, 9, 9, 10, 9 + 2**40 / 1e6, pytest.approx(9 + 2**40 / 1e6 + 5e-6)]


@pytest.mark.parametrize("content", ["", "-5", "many", "1.5"])
def test_what_is_no_count_is_refused_with_the_file_and_the_value(drm, content):
    drm.card(sensors=B580 | {"energy1_input": content})
    error = refused(only(drm).energy)
    assert error.reason is Reason.IMPLAUSIBLE
    assert "energy1_input must contain a number of at least 0, but contains" in str(error)


def test_without_permission_the_cure_is_named_and_works():
    with open_directory() as directory:
        drm = Drm(directory)
        device = drm.card(sensors=B580)
        driver = only(drm)
        energy, limit = (device / "hwmon/hwmon3" / name for name in ("energy1_input", "power1_max"))
        lock(energy)
        limit.chmod(0o644)
        with unprivileged():
            reading, setting = refused(driver.energy), refused(driver.set_power_limit, 150)
        assert reading.reason is setting.reason is Reason.NO_PERMISSION
        assert reading.cure.startswith("sudo chmod a+r ")
        assert setting.cure.startswith("sudo chmod a+w ")
        follow(reading.cure)
        follow(setting.cure)
        with unprivileged():
            assert driver.energy() == 5.0
            driver.set_power_limit(150)
            assert driver.power_limit() == 150


# --- the power limit ----------------------------------------------------------------------------


def test_a_limit_is_kept_in_microwatts(drm, kernel):
    device = drm.card(sensors=A770, driver="i915")
    driver = only(drm)
    limits = driver.power_limits()
    assert (limits.minimum, limits.maximum, limits.default) == (112.5, 225, 225)
    driver.set_power_limit(150.5)
    assert (device / "hwmon/hwmon3/power1_max").read_text() == "150500000\n"


def test_a_limit_that_the_hardware_does_not_keep_is_undone_and_refused(drm, kernel):
    drm.card(sensors=A770, driver="i915")
    driver = only(drm)
    with pytest.raises(KnobError, match=r"60 W <= power_limit <= 225 W must hold .* got 20 W"):
        driver.set_power_limit(20)
    assert driver.power_limit() == 190
    with pytest.raises(KnobError, match="but got 400 W"):
        driver.set_power_limit(400)
    assert driver.power_limit() == 190


def test_without_a_rated_limit_the_highest_in_force_is_the_maximum(drm, kernel):
    drm.card(sensors=B580)
    driver = only(drm)
    assert driver.power_limits().maximum == 190
    driver.set_power_limit(120)
    assert driver.power_limits().maximum == 190


def test_a_limit_that_is_switched_off_is_no_limit_of_zero(drm):
    drm.card(sensors=B580 | {"power1_max": 0})
    error = refused(only(drm).power_limit)
    assert error.reason is Reason.UNSUPPORTED
    assert "contains 0, so no limit is in force" in str(error)
    assert refused(only(drm).set_power_limit, 100).reason is Reason.UNSUPPORTED


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["xe", "i915"])
def test_clocks_are_locked_and_unlocked_in_an_order_that_the_kernel_accepts(drm, kernel, driver):
    drm.card(driver=driver, sensors=B580)
    drm.clocks(0, "tile0/gt0" if driver == "xe" else "gt0")
    gpu = only(drm)
    clocks = gpu.supported_clocks().graphics
    assert (clocks[0], clocks[1], clocks[-1]) == (2400, 2383, 300)
    assert gpu.locked_graphics_clock() is None
    for low, high in ((1200, 1200), (2400, 2400), (300, 300), (700, 1500), (2000, 2100)):
        gpu.lock_graphics_clock(ClockRange(low, high))
        assert gpu.locked_graphics_clock() == ClockRange(low, high)
    boosts = [value for name, value in kernel if "boost" in name]
    assert boosts == ([] if driver == "xe" else [1200, 2400, 300, 1500, 2100])
    gpu.lock_graphics_clock(None)
    assert gpu.locked_graphics_clock() is None
    with pytest.raises(KnobError, match=r"300 MHz <= lowest <= highest <= 2400 MHz must hold"):
        gpu.lock_graphics_clock(ClockRange(200, 1000))


def test_unlocking_returns_to_what_i915_begins_with(drm, kernel):
    drm.card(driver="i915", sensors=A770)
    drm.clocks(0, "gt0")
    usual = {"rps_min_freq_mhz": 600, "rps_max_freq_mhz": 2400}
    write(drm.root / "card0/gt/gt0/.defaults", usual)
    write(drm.root / "card0/gt/gt0", usual)
    gpu = only(drm)
    assert gpu.locked_graphics_clock() is None
    gpu.lock_graphics_clock(ClockRange(300, 1000))
    gpu.lock_graphics_clock(None)
    assert (drm.root / "card0/gt/gt0/rps_min_freq_mhz").read_text() == "600\n"


def test_all_tiles_are_locked_but_not_their_media_engines(drm, kernel):
    drm.card(device=0x0BD5, sensors=B580)
    drm.clocks(0, "tile0/gt0", "tile0/gt1", "tile1/gt2", "tile1/gt3")
    gpu = only(drm)
    gpu.lock_graphics_clock(ClockRange(900, 900))
    held = [
        int((drm.root / "card0/device" / place / "freq0/max_freq").read_text())
        for place in ("tile0/gt0", "tile0/gt1", "tile1/gt2", "tile1/gt3")
    ]
    assert held == [900, 2400, 900, 2400]


def test_the_clock_of_now_is_that_of_the_fastest_tile(drm):
    drm.card(device=0x0BD5, sensors=B580)
    drm.clocks(0, "tile0/gt0", "tile1/gt1")
    write(drm.root / "card0/device/tile1/gt1/freq0", {"act_freq": 1450})
    assert only(drm).current_clocks().graphics == 1450


# --- holds, in processes of their own -----------------------------------------------------------


@pytest.fixture
def clients():
    clients = Clients(ZEUS_SIMULATE="", ZEUS_HELPER="0")
    yield clients
    clients.stop()


def test_holds_work_as_on_other_gpus_and_a_killed_process_is_undone(drm, clients):
    device = drm.card(sensors=A770, driver="i915", device=0x56A0)
    drm.clocks(0, "gt0")
    limit, most = device / "hwmon/hwmon3/power1_max", drm.root / "card0/gt/gt0/rps_max_freq_mhz"
    client = clients.start(
        """
(gpu,) = get_gpus()
hold = gpu.hold(power_limit=150, graphics_clock=(600, 1200))
hold.acquire()
say(gpu.name)
heard()
""",
        ZEUS_DRM_ROOT=str(drm.root),
    )
    assert client.hear() == "Intel Arc A770"
    assert (int(limit.read_text()), int(most.read_text())) == (150_000_000, 1200)
    client.send(signal.SIGKILL)
    client.end()
    said = clients.ask("say(get_gpus()[0].power_limit())", ZEUS_DRM_ROOT=str(drm.root))
    assert said == 190
    assert int(most.read_text()) == 2400


def test_a_window_has_the_energy_of_the_counter(drm, clients):
    device = drm.card(sensors=B580)
    script = """
import itertools, os
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor()
for count in itertools.count(5_000_000, 100_000):  # 0.1 J in each window
    with monitor.window("w") as window:
        open("COUNTER.new", "w").write(str(count))
        os.replace("COUNTER.new", "COUNTER")
    energy = window.measurement.gpu_energy
    if energy:
        break
say([list(energy), energy[0] >= 0])
""".replace("COUNTER", str(device / "hwmon/hwmon3/energy1_input"))
    assert clients.ask(script, ZEUS_DRM_ROOT=str(drm.root)) == [[0], True]


# --- which are visible --------------------------------------------------------------------------


TILES = ("tile0", "tile1")


def seen(tiles: int = 1, count: int = 3, **environment: str) -> list[object]:
    cards = [
        Candidate(f"0000:0{n}:00.0", mig_uuids=TILES if tiles > 1 else ()) for n in range(count)
    ]
    return [
        (each.position, each.mig_uuid) if each.mig_uuid else each.position
        for each in visible_intel(cards, environment)
    ]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"ZE_AFFINITY_MASK": "1"}, [1]),
        ({"ZE_AFFINITY_MASK": "2,0"}, [0, 2]),  # it hides, and never reorders
        ({"ZE_AFFINITY_MASK": "0.0, 2.1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, [0, 2]),
        ({"ZE_AFFINITY_MASK": "7"}, []),
        ({"ZE_AFFINITY_MASK": ""}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:1,2"}, [1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "Level_Zero:0;opencl:cpu"}, [0]),
        ({"ONEAPI_DEVICE_SELECTOR": "opencl:*"}, []),
        ({"ONEAPI_DEVICE_SELECTOR": "*:cpu"}, []),
        ({"ONEAPI_DEVICE_SELECTOR": "*:*;!level_zero:1"}, [0, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "!opencl:*"}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero"}, []),
        # The selector numbers what the mask leaves.
        ({"ZE_AFFINITY_MASK": "1,2", "ONEAPI_DEVICE_SELECTOR": "level_zero:0"}, [1]),
    ],
)
def test_the_variables_of_level_zero_and_sycl_are_followed(environment, expected):
    assert seen(**environment) == expected


def test_each_tile_is_a_device_unless_cards_are_composite():
    assert seen(2, 2) == [(0, "card"), (0, "tile1"), (1, "card"), (1, "tile1")]
    assert seen(2, 2, ZE_FLAT_DEVICE_HIERARCHY="composite") == [0, 1]
    assert seen(2, 2, ZE_FLAT_DEVICE_HIERARCHY="COMBINED") == seen(2, 2)
    # The first tile that is seen stands for the card.
    assert seen(2, 2, ZE_AFFINITY_MASK="1,2") == [(0, "card"), (1, "card")]


def test_a_card_is_counted_once_whatever_tiles_are_seen(drm):
    drm.card(device=0x0BD5, sensors=B580)
    drm.clocks(0, "tile0/gt0", "tile1/gt1")
    driver = only(drm)
    assert driver.slice_uuids == TILES
    whole, other = driver.seen_as_slice("card"), driver.seen_as_slice("tile1")
    assert whole.energy() == 5.0
    assert whole.identity.whole_module
    assert whole.identity.key == driver.identity.key
    assert other.identity.name == "Intel Data Center GPU Max 1550 (tile1)"
    assert refused(Gpu(1, other).energy).reason is Reason.UNSUPPORTED
    assert refused(other.set_power_limit, 100).reason is Reason.UNSUPPORTED
    assert Visible(0, "card") == visible_intel([Candidate("x", mig_uuids=TILES)], {})[0]
