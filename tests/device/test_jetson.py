from __future__ import annotations

import pytest
from tests.device.trees import Jetson, follow, lock, open_directory, unprivileged

from zeus.device import _jetson as jetson
from zeus.errors import CapabilityError, Reason

ORIN_GPU = {1: ("VDD_GPU_SOC", 20_000, 500), 2: ("VDD_CPU_CV", 20_000, 250)}


@pytest.fixture
def board(tmp_path):
    return Jetson(tmp_path)


@pytest.fixture
def shared_board():
    with open_directory() as directory:
        yield Jetson(directory)


def only_soc(board: Jetson) -> jetson.JetsonSoc:
    soc, problems = jetson.discover(board.root)
    assert problems == []
    assert isinstance(soc, jetson.JetsonSoc)
    return soc


def test_hwmon_rails_are_voltage_times_current(board):
    board.hwmon("1-0040", {**ORIN_GPU, 3: ("VIN_SYS_5V0", 5_000, 400)})
    soc = only_soc(board)
    assert soc.name == "NVIDIA Jetson AGX Orin"
    assert soc.powers() == {"vdd_gpu_soc": 10.0, "vdd_cpu_cv": 5.0, "vin_sys_5v0": 2.0}
    assert soc.energies() is None
    # A 5 V supply of some parts, not the input of the board.
    assert soc.total_rail is None


def test_sums_and_shunt_voltages_are_not_rails(board):
    monitor = board.hwmon("1-0040", {1: ("VDD_IN", 5_000, 1_000)})
    for number in (4, 5, 6, 7):
        (monitor / f"in{number}_input").write_text("12345\n")
        (monitor / f"curr{number}_input").write_text("99\n")
    (monitor / "in7_label").write_text("sum of shunt voltages\n")
    assert only_soc(board).powers() == {"vdd_in": 5.0}


def test_iio_rails_are_milliwatts(board):
    board.iio("6-0040", {0: ("POM_5V_IN", 2_500), 1: ("POM_5V_GPU", 500), 2: ("POM_5V_CPU", 750)})
    soc = only_soc(board)
    assert soc.powers() == {"pom_5v_in": 2.5, "pom_5v_gpu": 0.5, "pom_5v_cpu": 0.75}
    assert soc.total_rail == "pom_5v_in"


def test_iio_below_the_newer_driver_name(board):
    board.iio("6-0040", {0: ("VDD_IN", 2_500)}, driver="ina3221")
    assert only_soc(board).powers() == {"vdd_in": 2.5}


def test_a_chip_shown_in_both_layouts_counts_once(board):
    board.hwmon("1-0040", {1: ("VDD_IN", 5_000, 1_000)})
    board.iio("1-0040", {0: ("VDD_IN", 5_001)}, driver="ina3221")
    assert only_soc(board).powers() == {"vdd_in": 5.0}


def test_a_chip_whose_newer_layout_is_empty_falls_back(board):
    board.hwmon("1-0040", {})
    board.iio("1-0040", {0: ("VDD_IN", 5_001)}, driver="ina3221")
    assert only_soc(board).powers() == {"vdd_in": 5.001}


def test_several_chips_are_joined_and_equal_labels_kept_apart(board):
    board.hwmon("1-0040", {1: ("VDD_A", 1_000, 1_000)}, number=3)
    board.hwmon("1-0041", {1: ("VDD_A", 1_000, 2_000), 2: ("VDD_B", 1_000, 3_000)}, number=4)
    assert only_soc(board).powers() == {"vdd_a": 1.0, "vdd_a_2": 2.0, "vdd_b": 3.0}


def test_unconnected_and_switched_off_channels_are_skipped(board):
    monitor = board.hwmon("1-0041", {**ORIN_GPU, 3: ("NC", 0, 0)})
    (monitor / "in1_enable").write_text("0\n")
    (monitor / "in2_enable").write_text("1\n")
    assert only_soc(board).powers() == {"vdd_cpu_cv": 5.0}


def test_other_entries_of_the_driver_directory_are_ignored(board):
    monitor = board.hwmon("1-0040", ORIN_GPU)
    driver = monitor.parents[2]
    (driver / "bind").write_text("")
    (driver / "module").symlink_to(monitor.parents[1])
    assert set(only_soc(board).powers()) == {"vdd_gpu_soc", "vdd_cpu_cv"}


@pytest.mark.parametrize(
    ("labels", "total"),
    [
        (["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"], "vdd_in"),
        (["VDD_IN", "VDD_MUX"], "vdd_mux"),
        (["SYS_VIN", "GPU"], "sys_vin"),
        (["GPU", "CPU", "SYS5V"], None),
        (["VIN_SYS_5V0"], None),
    ],
)
def test_the_rail_that_feeds_the_others_is_known(board, labels, total):
    board.hwmon("1-0040", {number: (label, 1, 1) for number, label in enumerate(labels, 1)})
    soc = only_soc(board)
    assert soc.total_rail == total
    assert list(soc.powers()) == [label.lower() for label in labels]


def test_noise_below_zero_is_reported_as_it_is(board):
    board.hwmon("1-0040", {1: ("VDD_IN", 5_000, -8)})
    assert only_soc(board).powers() == {"vdd_in": -0.04}


def test_readings_are_of_now(board):
    monitor = board.hwmon("1-0040", ORIN_GPU)
    soc = only_soc(board)
    (monitor / "curr1_input").write_text("1000\n")
    assert soc.powers()["vdd_gpu_soc"] == 20.0


def test_no_jetson_no_problem(tmp_path):
    assert jetson.discover(tmp_path) == (None, [])


def test_this_machine_can_be_asked():
    _, problems = jetson.discover()
    assert all(problem.error.detail for problem in problems)


def test_a_jetson_without_monitors_says_what_to_load(board):
    soc, [problem] = jetson.discover(board.root)
    assert soc is None
    assert problem.error.reason is Reason.DRIVER_ABSENT
    assert problem.error.cure == "sudo modprobe ina3221"


def test_a_board_that_does_not_say_its_model(board):
    board.hwmon("1-0040", ORIN_GPU)
    (board.root / "proc/device-tree/model").unlink()
    assert only_soc(board).name == "Jetson"


@pytest.mark.parametrize("file", ["in1_label", "in1_input", "curr1_input"])
def test_an_unreadable_rail_costs_that_rail_and_is_mended_by_its_cure(shared_board, file):
    monitor = shared_board.hwmon("1-0040", ORIN_GPU)
    lock(monitor / file)
    with unprivileged():
        soc, [problem] = jetson.discover(shared_board.root)
        assert soc is not None
        assert soc.powers() == {"vdd_cpu_cv": 5.0}
    assert problem.error.reason is Reason.NO_PERMISSION
    assert str(monitor) in problem.error.cure
    follow(problem.error.cure)
    with unprivileged():
        assert set(only_soc(shared_board).powers()) == {"vdd_gpu_soc", "vdd_cpu_cv"}


def test_one_line_mends_all_rails_of_a_chip(shared_board):
    monitor = shared_board.iio("6-0040", {0: ("VDD_IN", 1), 1: ("VDD_GPU", 2)})
    lock(*monitor.iterdir())
    with unprivileged():
        soc, problems = jetson.discover(shared_board.root)
    assert soc is None
    assert len(problems) == 2
    assert {problem.error.reason for problem in problems} == {Reason.NO_PERMISSION}
    follow(problems[0].error.cure)
    with unprivileged():
        assert set(only_soc(shared_board).powers()) == {"vdd_in", "vdd_gpu"}


def test_a_rail_without_a_number_costs_that_rail(board):
    monitor = board.hwmon("1-0040", ORIN_GPU)
    (monitor / "in1_input").write_text("\n")
    soc, [problem] = jetson.discover(board.root)
    assert soc is not None
    assert [*(soc.powers() or ())] == ["vdd_cpu_cv"]
    assert problem.error.reason is Reason.IMPLAUSIBLE


def test_a_rail_that_vanishes_later_is_left_out_and_the_last_one_is_an_error(board):
    monitor = board.hwmon("1-0040", ORIN_GPU)
    soc = only_soc(board)
    (monitor / "in1_input").unlink()
    assert soc.powers() == {"vdd_cpu_cv": 5.0}
    (monitor / "curr2_input").unlink()
    with pytest.raises(CapabilityError) as caught:
        soc.powers()
    assert caught.value.reason is Reason.LOST
