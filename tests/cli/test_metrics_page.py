"""Readings from a page of metrics, also from one that is odd."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from tests.present import present

from zeus.cli._gpu_rows import Holder
from zeus.cli._metrics_page import cpus_of, gpus_of, parse_page

PAGE = """\
# HELP zeus_gpu_info A GPU.
# TYPE zeus_gpu_info gauge
zeus_gpu_info{gpu="1",uuid="GPU-b",name="V100",vendor="NVIDIA",pci_address="0000:11:00.0"} 1.0
zeus_gpu_info{gpu="0",uuid="GPU-a",name="V100",vendor="NVIDIA",pci_address="0000:10:00.0"} 1.0
zeus_gpu_energy_joules_total{gpu="0",uuid="GPU-a",method="counter"} 120280.041
zeus_gpu_energy_joules_total{gpu="1",uuid="GPU-b",method="integrated"} 7.5
zeus_gpu_power_watts{gpu="0",uuid="GPU-a",method="instant"} 250.0
zeus_gpu_power_watts{gpu="1",uuid="GPU-b",method="average"} 100.0
zeus_gpu_power_limit_watts{gpu="0",uuid="GPU-a"} 300.0
zeus_gpu_graphics_clock_hertz{gpu="0",uuid="GPU-a"} 1380000000.0
zeus_gpu_memory_clock_hertz{gpu="0",uuid="GPU-a"} 877000000.0
zeus_gpu_temperature_celsius{gpu="0",uuid="GPU-a"} 68.0
zeus_gpu_utilization_ratio{gpu="0",uuid="GPU-a"} 0.5
zeus_gpu_memory_used_bytes{gpu="0",uuid="GPU-a"} 20615843020.0
zeus_gpu_memory_size_bytes{gpu="0",uuid="GPU-a"} 34359738368.0
zeus_gpu_held_power_limit_watts{gpu="0",uuid="GPU-a",pid="7",user="alice",slurm_job="12",pod=""} 200.0
zeus_gpu_held_graphics_clock_hertz{gpu="0",uuid="GPU-a",pid="8",user="bob",slurm_job="",pod=""} 1.2e+09
zeus_cpu_info{package="0",name="package-0"} 1.0
zeus_cpu_energy_joules_total{package="0",method="counter"} 400.0
zeus_cpu_power_watts{package="0"} 40.5
zeus_dram_energy_joules_total{package="0",method="counter"} 50.0
zeus_collector_success{collector="gpu0"} 1.0
zeus_collector_success{collector="gpu2"} 0.0
node_cpu_seconds_total{cpu="0",mode="idle"} 1.5
"""  # noqa: E501


def test_all_readings_of_a_gpu():
    first, second, third = gpus_of(parse_page(PAGE))
    gpu = first.reading
    assert (gpu.index, gpu.name, gpu.key) == (0, "V100", "GPU-a")
    assert (gpu.power, gpu.power_is_average, gpu.power_limit) == (250.0, False, 300.0)
    assert (gpu.utilization, gpu.temperature) == (0.5, 68.0)
    clocks, memory = present(gpu.clocks), present(gpu.memory)
    assert (clocks.graphics, clocks.memory) == (1380, 877)
    assert (memory.used, memory.total) == (20615843020, 2**35)
    assert (first.counter, gpu.energy_is_integrated) == (120280.041, False)
    assert first.holders == (
        Holder("power limit", "200 W", "alice", "(process 7, job 12)"),
        Holder("graphics clock", "1200 MHz", "bob", "(process 8)"),
    )
    # What is absent stays unknown.
    other = second.reading
    assert (other.power, other.power_is_average, other.energy_is_integrated) == (100.0, True, True)
    assert other.power_limit is other.utilization is other.clocks is other.memory is None
    assert (third.reading.index, third.reading.problem) == (2, "cannot be read there")


def test_packages():
    (cpu,) = cpus_of(parse_page(PAGE))
    assert (cpu.reading.index, cpu.reading.name, cpu.reading.power) == (0, "package-0", 40.5)
    assert (cpu.reading.dram_power, cpu.counter, cpu.dram_counter) == (None, 400.0, 50.0)


def test_labels_as_the_library_of_prometheus_escapes_them():
    registry = CollectorRegistry()
    gauge = Gauge("zeus_gpu_info", "Help.", ["gpu", "uuid", "name"], registry=registry)
    name = 'a "quoted} name", back\\slash'
    gauge.labels("3", "GPU-x", name).set(1)
    (gpu,) = gpus_of(parse_page(generate_latest(registry).decode()))
    assert (gpu.reading.index, gpu.reading.name) == (3, name)


def test_text_of_another_node_cannot_steer_the_terminal():
    text = 'zeus_gpu_info{gpu="0",uuid="u",name="evil\x1b[2J\\nline"} 1'
    (gpu,) = gpus_of(parse_page(text))
    assert gpu.reading.name == "evil?[2J?line"


def test_odd_lines_are_skipped():
    odd = """\
zeus_gpu_info{gpu="minus",uuid="u"} 1
zeus_gpu_info{gpu="9999999999",uuid="u"} 1
zeus_gpu_info{gpu="0",uuid="u" 1
zeus_gpu_info
zeus_gpu_info{} nothing
zeus_gpu_info 1
zeus_gpu_power_watts{gpu="5",uuid="u"} NaN
zeus_gpu_info{gpu="5", uuid="u", name="with spaces and time",} 1 1700000000000
"""
    (gpu,) = gpus_of(parse_page(odd))
    assert (gpu.reading.index, gpu.reading.name, gpu.reading.power) == (
        5,
        "with spaces and time",
        None,
    )


@given(
    st.lists(st.sampled_from([*PAGE.splitlines(), '{"', '"}', "\\", "zeus_gpu_info{", "\x00"])),
    st.text(),
)
def test_no_page_breaks_the_reader(lines, text):
    for page in ("\n".join(lines), "".join(lines), text, f"zeus_{text}"):
        gpus_of(parse_page(page))
        cpus_of(parse_page(page))
