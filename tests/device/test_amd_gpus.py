"""The AMD back end: which GPU is which, and what is left when one breaks."""

from __future__ import annotations

from dataclasses import replace

from tests.device.amd_clients import CLOCKS, Ask

from simulated_drivers import AmdGpuSpec, mi250x_board

# --- Which GPU is which ---------------------------------------------------------------------------


def test_names_and_order_without_hip_numbers(simulate, ask: Ask) -> None:
    gpus = [
        AmdGpuSpec(pci_bus=0xC1, serial="0BC1", uuid="c1ff74a1-0000-1000-8000-000000000001"),
        AmdGpuSpec(
            pci_bus=0x05, serial="9F05ABCD12345678", unsupported=["amdsmi_get_gpu_device_uuid"]
        ),
        AmdGpuSpec(pci_domain=1, pci_bus=0x01, name=""),
    ]
    found = ask(
        simulate(*gpus),
        """
answer([[d.identity.key, d.identity.pci_address, d.identity.name, d.identity.vendor,
         d.identity.whole_module, d.visible_uuid] for d in drivers])
""",
    )
    plain = "AMD Instinct MI300X"
    second, third = "GPU-9f05abcd12345678", "GPU-0000000000000bc1"
    assert found[0] == ["0000:05:00.0", "0000:05:00.0", plain, "AMD", False, second]
    assert found[1] == [gpus[0].uuid, "0000:c1:00.0", plain, "AMD", False, third]
    assert found[2][1:3] == ["0001:01:00.0", "AMD GPU"]


def test_hip_numbers_decide_the_order_where_they_are_known(simulate, ask: Ask) -> None:
    gpus = [AmdGpuSpec(hip_id=2), AmdGpuSpec(hip_id=0), AmdGpuSpec(hip_id=1)]
    script = "answer([d.identity.pci_address[5:7] for d in drivers])"
    assert ask(simulate(*gpus), script) == ["11", "12", "10"]
    # Numbers that are not numbers of their own decide nothing.
    gpus = [replace(gpu, hip_id=0, pci_bus=9 - i) for i, gpu in enumerate(gpus)]
    assert ask(simulate(*gpus), script) == ["07", "08", "09"]


def test_only_the_first_die_of_a_board_reports_power(simulate, ask: Ask) -> None:
    simulation = simulate(*mi250x_board(needs_root=False, watts=400.0))
    first, second = ask(
        simulation,
        """
answer([[d.identity.whole_module, outcome(d.average_power), outcome(d.energy),
         outcome(d.power_limit), outcome(d.power_limits) if d is drivers[1] else None,
         outcome(d.set_power_limit, 300.0), outcome(d.temperature)] for d in drivers])
""",
    )
    assert first[:2] == [True, 400.0]
    assert first[2] > 1000
    assert first[3] == 560.0
    assert second[0] is True
    assert [said[0] for said in second[1:6]] == ["unsupported"] * 5
    assert second[6] == 45.0
    assert simulation.power_limit(0) == 300.0


def test_a_partition_is_measured_as_the_whole_package(simulate, ask: Ask) -> None:
    gpus = [AmdGpuSpec(partition=mode) for mode in (None, "SPX", "CPX")]
    script = "answer([d.identity.whole_module for d in drivers])"
    assert ask(simulate(*gpus), script) == [False, False, True]


# --- When things break ----------------------------------------------------------------------------


def test_a_lost_gpu_costs_only_itself(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(), AmdGpuSpec(watts=222.0))
    lost, other = ask(
        simulation,
        """
simulation.lose(0)
answer([[outcome(d.energy), outcome(d.instant_power), outcome(d.power_limit)] for d in drivers])
""",
    )
    assert [said[0] for said in lost] == ["device lost"] * 3
    assert other[1] == 222.0


def test_a_gpu_that_is_lost_from_the_start_keeps_its_place(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(), AmdGpuSpec(watts=222.0))
    simulation.lose(0)
    found = ask(
        simulation,
        """
answer([[d.identity.key for d in drivers], [d.visible_uuid for d in drivers],
        outcome(driver.energy), drivers[1].instant_power(), told(problems)])
""",
    )
    keys, uuids, energy, power, problems = found
    assert keys[0] == "0000:10:00.0"
    assert uuids[0] == ""
    assert energy[0] == "device lost"
    assert power == 222.0
    assert [problem[:2] for problem in problems] == [["AMD GPU at 0000:10:00.0", "device lost"]]


def test_a_gpu_without_any_address_is_known_by_its_uuid(simulate, ask: Ask) -> None:
    mute = ["amdsmi_get_gpu_device_bdf"]
    gpus = [
        AmdGpuSpec(unsupported=mute),
        AmdGpuSpec(unsupported=[*mute, "amdsmi_get_gpu_device_uuid"]),
    ]
    first, second = ask(
        simulate(*gpus),
        """
answer([[d.identity.key, d.identity.pci_address, outcome(d.instant_power)] for d in drivers])
""",
    )
    assert first == ["a1ff74a1-0000-1000-80ff-000000000000", None, 140.0]
    assert second[:2] == ["AMD GPU 1", None]
    assert second[2][0] == "device lost"


def test_a_hanging_call_is_given_up_and_taken_up_again(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(), AmdGpuSpec(watts=222.0))
    hanging, again, other, after = ask(
        simulation,
        """
gpus = [Gpu(index, driver) for index, driver in enumerate(drivers)]
gpus[0]._guard = Guard("the GPU", timeout=0.1)
simulation.fault(0, "amdsmi_get_power_info", "hang")
hanging, again = outcome(gpus[0].instant_power), outcome(gpus[0].energy)
other = gpus[1].instant_power()
simulation.clear_faults(0)
while isinstance(after := outcome(gpus[0].instant_power), list):
    time.sleep(0.005)
answer([hanging, again, other, after])
""",
    )
    assert hanging[0] == again[0] == "driver call hangs"
    assert other == 222.0
    assert after == 140.0


def test_a_slow_call_is_waited_for(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec())
    simulation.fault(0, "amdsmi_get_power_info", "delay", seconds=0.05, times=1)
    assert ask(simulation, "answer(Gpu(0, driver).instant_power())") == 140.0


def test_another_user_may_shut_the_library_down(simulate, ask: Ask) -> None:
    found = ask(
        simulate(AmdGpuSpec()),
        """
import amdsmi
amdsmi.amdsmi_shut_down()
answer([driver.instant_power(), driver.identity.name])
""",
    )
    assert found == [140.0, "AMD Instinct MI300X"]


def test_two_processes_see_one_machine(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    ask(
        simulation,
        """
driver.set_power_limit(345.0)
driver.lock_graphics_clock(ClockRange(700, 1500))
simulation.set_power(0, 321.0)
while driver.instant_power() != 321.0:  # the meter lags
    time.sleep(0.001)
answer(0)
""",
    )
    assert simulation.power_limit(0) == 345.0
    assert simulation.graphics_bounds(0) == (700, 1500)
    found = ask(
        simulation,
        CLOCKS + "answer([driver.power_limit(), clocks(driver)[0], driver.instant_power()])",
    )
    assert found == [345.0, [700, 1500], 321.0]
    assert simulation.calls("amdsmi_set_power_cap") == 1
