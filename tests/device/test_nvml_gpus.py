"""The NVIDIA back end: GPUs that are lost, hang, or are meant by a framework's index."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.device.nvml_rig import (
    ABSENT,
    HANGS,
    LOST,
    MakeRig,
    reasons,
)

from simulated_drivers import GpuSpec

# --- Lost and hanging GPUs ------------------------------------------------------------------------


def test_a_lost_gpu_costs_only_itself_and_no_index(rig: MakeRig) -> None:
    machine = rig(GpuSpec(watts=100.0), GpuSpec(watts=150.0), GpuSpec(watts=200.0))
    machine.simulation.set_lost_at_init(0)
    powers, cure, count, late = machine.ask(
        """
gpus = get_gpus()
powers = [outcome(gpu.instant_power) for gpu in gpus]
refusals = [outcome(gpus[0].hold, power_limit=200), outcome(gpus[0].energy)]
simulation.lose(1)
late = [outcome(gpu.instant_power) for gpu in gpus]
say([powers, [r[0] for r in refusals], len(gpus), late])
"""
    )
    assert reasons(powers) == [LOST, 150.0, 200.0]
    assert cure == [LOST, LOST]
    assert count == 3
    assert reasons(late) == [LOST, LOST, 200.0]
    assert "dmesg" in powers[0][2]


def test_a_gpu_lost_between_handle_and_name_is_absent_too(rig: MakeRig) -> None:
    machine = rig(GpuSpec(), GpuSpec(watts=150.0))
    machine.simulation.lose(0)
    answers = machine.ask("say([outcome(gpu.instant_power) for gpu in get_gpus()])")
    assert reasons(answers) == [LOST, 150.0]


def test_a_hanging_call_is_given_up_and_taken_up_again(rig: MakeRig) -> None:
    hanging, at_once, other, after = rig(GpuSpec(watts=100.0), GpuSpec(watts=150.0)).ask(
        """
gpus = get_gpus()
guard.DEFAULT_TIMEOUT = 0.1
simulation.fault(0, "nvmlDeviceGetFieldValues", "hang")
hanging = outcome(gpus[0].instant_power)
guard.DEFAULT_TIMEOUT = 1000.0  # so that waiting once more would be seen
at_once = outcome(gpus[0].energy)
other = gpus[1].instant_power()
simulation.clear_faults(0)
while isinstance(after := outcome(gpus[0].instant_power), list):
    time.sleep(0.005)
say([hanging, at_once, other, after])
"""
    )
    assert hanging[0] == at_once[0] == HANGS
    assert "0.1 s" in hanging[1]
    assert (other, after) == (150.0, 100.0)


@pytest.mark.real_time
def test_a_gpu_that_hangs_from_the_start_costs_only_itself(rig: MakeRig) -> None:
    machine = rig(GpuSpec(), GpuSpec(watts=150.0))
    machine.simulation.fault(0, "nvmlDeviceGetName", "hang")
    answers = machine.ask(
        "nvml._INIT_TIMEOUT = 1.0\n"
        "say([outcome(gpu.instant_power) for gpu in get_gpus()]); os._exit(0)"
    )
    assert reasons(answers) == [HANGS, 150.0]


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_hangs_is_a_problem_not_the_end(rig: MakeRig, function: str) -> None:
    machine = rig(GpuSpec())
    machine.simulation.fault(None, function, "hang")
    count, problems = machine.ask(
        "nvml._INIT_TIMEOUT = 0.2\nsay([len(get_gpus()), told(get_gpus().problems)]); os._exit(0)"
    )
    assert count == 0
    assert ["NVIDIA GPUs", HANGS, ""] in problems


def test_without_driver_or_library_there_are_no_gpus(
    rig: MakeRig, nvml_library: Path, tmp_path: Path
) -> None:
    machine = rig(GpuSpec())
    broken = tmp_path / "broken"
    broken.mkdir()
    # A name that the loader finds first and cannot use, whatever this machine has installed.
    (broken / "libnvidia-ml.so.1").write_text("no library")
    report = "say([len(get_gpus()), told(get_gpus().problems)])"
    for variables in (
        {"SIMULATED_NVML": "/nonexistent", "LD_LIBRARY_PATH": str(nvml_library)},
        {"LD_LIBRARY_PATH": str(broken)},
    ):
        count, problems = machine.clients.ask(
            "def told(problems):\n"
            "    return [[p.what, str(p.error.reason), p.error.cure] for p in problems]\n" + report,
            **variables,
        )
        assert count == 0
        absent = [problem for problem in problems if problem[0] == "NVIDIA GPUs"]
        assert absent[0][1] == ABSENT
        assert "nvidia-smi" in absent[0][2]


def test_threads_may_ask_for_power_at_once(rig: MakeRig) -> None:
    # A sampler asks the driver directly, while others ask through the guard.
    wrong = rig(GpuSpec(watts=321.0)).ask(
        """
gpu, = get_gpus()
gpu.instant_power()
answers = set()

def work(ask):
    for _ in range(4000):
        answers.add(str(outcome(ask)))

threads = [threading.Thread(target=work, args=(ask,))
           for ask in (gpu.instant_power, gpu.driver.instant_power, gpu.driver.instant_power)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
say(sorted(answers))
"""
    )
    assert wrong == ["321.0"]


# --- Visible devices ------------------------------------------------------------------------------


FIRST, SECOND, THIRD = (f"GPU-{letter * 8}-0000" for letter in "abc")


def three() -> list[GpuSpec]:
    return [GpuSpec(uuid=uuid, name=uuid) for uuid in (FIRST, SECOND, THIRD)]


def test_control_goes_to_the_gpu_that_the_framework_means(rig: MakeRig) -> None:
    machine = rig(*three())
    seen = []
    for visible in (f"{SECOND},{FIRST}", "GPU-b", "1"):
        client = machine.start(
            "with get_gpus()[0].hold(power_limit=200): say(get_gpus()[0].key); heard()",
            CUDA_VISIBLE_DEVICES=visible,
        )
        seen.append(client.hear())
        limits = [machine.simulation.power_limit(gpu) for gpu in range(3)]
        assert limits == [400.0, 200.0, 400.0]
        client.tell()
        assert client.end() == 0
        assert machine.simulation.power_limit(1) == 400.0
    assert seen == [SECOND] * 3


def test_the_fastest_gpu_is_first_by_default(rig: MakeRig) -> None:
    slow, fast = GpuSpec(name="slow", cores=1000), GpuSpec(name="fast", cores=5000)
    machine = rig(slow, fast)
    report = "say([gpu.name for gpu in get_gpus()])"
    assert machine.ask(report) == ["slow", "fast"]
    assert machine.ask(report, CUDA_DEVICE_ORDER="FASTEST_FIRST") == ["fast", "slow"]


def test_a_slice_is_measured_by_its_whole_gpu(rig: MakeRig) -> None:
    machine = rig(
        GpuSpec(watts=100.0), GpuSpec(name="A100", watts=150.0, mig_uuids=["aaaa", "bbbb"])
    )
    report = """
say([[gpu.name, gpu.identity.whole_module, gpu.instant_power(), gpu.power_limit()]
     for gpu in get_gpus()])
"""
    assert machine.ask(report, CUDA_VISIBLE_DEVICES="MIG-bbbb") == [
        ["A100 (whole GPU of MIG-bbbb)", True, 150.0, 400.0]
    ]
    assert machine.ask(report)[1][:3] == ["A100 (whole GPU of MIG-aaaa)", True, 150.0]
    assert machine.ask(report, CUDA_VISIBLE_DEVICES="MIG-cccc") == []
