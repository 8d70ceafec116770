"""The simulated NVML driver: what GPUs are, how it is loaded, and tools that read it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from drivers.tests.nvml_clients import (
    Clients,
    Simulate,
    error,
)

from simulated_drivers import GpuSpec, NvmlReturn, SimulatedNvml
from simulated_drivers import _build as building

# --- Identity -------------------------------------------------------------------------------------


def test_handles_are_found_by_whatever_names_a_gpu(simulate: Simulate) -> None:
    uuids = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000"]
    _, clients = simulate(
        GpuSpec(uuid=uuids[0], pci_bus=0x3B), GpuSpec(uuid=uuids[1], pci_bus=0xAF, serial="S-42")
    )
    missing = error(NvmlReturn.NOT_FOUND)
    assert clients.run(
        "h = start()\n"
        "def index(look_up, key):\n"
        "    found = outcome(look_up, key)\n"
        "    return found if isinstance(found, str) else N.nvmlDeviceGetIndex(found)\n"
        "by_bus, by_uuid = N.nvmlDeviceGetHandleByPciBusId, N.nvmlDeviceGetHandleByUUID\n"
        f"answer([index(by_uuid, {uuids[1]!r}), index(by_uuid, 'GPU-nobody'),\n"
        "        index(by_bus, '0000:af:00.0'), index(by_bus, '00000000:3B:00.0'),\n"
        "        index(by_bus, '0000:01:00.0'), index(N.nvmlDeviceGetHandleBySerial, 'S-42'),\n"
        "        outcome(N.nvmlDeviceGetHandleByIndex, 2),\n"
        "        [N.nvmlDeviceGetUUID(x) for x in h], N.nvmlDeviceGetPciInfo(h[1]).busId,\n"
        "        N.nvmlDeviceGetPciInfo(h[1]).busIdLegacy])"
    ) == [
        1, missing, 1, 0, missing, 1, "error 2", uuids, "00000000:AF:00.0", "0000:AF:00.0",
    ]  # fmt: skip


def test_mig_devices_belong_to_their_gpu(simulate: Simulate) -> None:
    _, clients = simulate(
        GpuSpec(mig_uuids=["aaaa", "MIG-bbbb"]), GpuSpec(), GpuSpec(mig_supported=False)
    )
    assert clients.run(
        "h = start()\n"
        "migs = [N.nvmlDeviceGetMigDeviceHandleByIndex(h[0], i) for i in range(2)]\n"
        "found = N.nvmlDeviceGetHandleByUUID('MIG-bbbb')\n"
        "parent = N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)\n"
        "answer([\n"
        "    [outcome(N.nvmlDeviceGetMigMode, x) for x in h],\n"
        "    [N.nvmlDeviceGetMaxMigDeviceCount(x) for x in h],\n"
        "    [N.nvmlDeviceGetUUID(m) for m in migs],\n"
        "    N.nvmlDeviceGetIndex(parent), N.nvmlDeviceGetIndex(found),\n"
        "    [N.nvmlDeviceIsMigDeviceHandle(x).value for x in (parent, found)],\n"
        "    N.nvmlDeviceGetGpuInstanceId(found), N.nvmlDeviceGetComputeInstanceId(found),\n"
        "    outcome(N.nvmlDeviceGetMigDeviceHandleByIndex, h[0], 2),\n"
        "    outcome(N.nvmlDeviceGetPowerUsage, found),\n"
        "    outcome(N.nvmlDeviceGetTotalEnergyConsumption, found),\n"
        "    outcome(N.nvmlDeviceGetFieldValues, found, [186]),\n"
        "    outcome(N.nvmlDeviceSetPowerManagementLimit, found, 200_000),\n"
        "    N.nvmlDeviceGetMemoryInfo(found).total == 40 * 2**30])"
    ) == [
        [[1, 1], [0, 0], "error 3"],
        [7, 7, 0],
        ["MIG-aaaa", "MIG-bbbb"],
        0, 1, [0, 1], 2, 0, "error 6", "error 3", "error 3", "error 3", "error 3", True,
    ]  # fmt: skip


def test_the_rest_of_what_a_gpu_tells(simulate: Simulate) -> None:
    pid = os.getpid()
    _, clients = simulate(
        GpuSpec(
            name="NVIDIA H100 80GB HBM3", architecture=9, compute_capability=(9, 0), cores=16896,
            minor_number=5, memory_used=2**30, memory_reserved=2**20, utilization_gpu=88,
            utilization_memory=33, compute_processes=[(pid, 2**29)],
            graphics_processes=[(1, 2**20)], performance_state=2,
        ),
        driver_version="999.1",
        cuda_version=13010,
    )  # fmt: skip
    told = clients.run(
        "h = start()[0]\n"
        "v1, v2 = N.nvmlDeviceGetMemoryInfo(h), N.nvmlDeviceGetMemoryInfo(h, N.nvmlMemory_v2)\n"
        "answer({\n"
        " 'name': N.nvmlDeviceGetName(h), 'arch': N.nvmlDeviceGetArchitecture(h),\n"
        " 'cc': N.nvmlDeviceGetCudaComputeCapability(h), 'cores': N.nvmlDeviceGetNumGpuCores(h),\n"
        " 'minor': N.nvmlDeviceGetMinorNumber(h), 'v1': v1.used, 'v2': [v2.used, v2.reserved],\n"
        " 'sum': [v1.used + v1.free - v1.total, v2.used + v2.reserved + v2.free - v2.total],\n"
        " 'util': N.nvmlDeviceGetUtilizationRates(h).gpu, 'pstate':\n"
        " N.nvmlDeviceGetPerformanceState(h), 'compute':\n"
        " [[p.pid, p.usedGpuMemory] for p in N.nvmlDeviceGetComputeRunningProcesses(h)],\n"
        " 'graphics': [p.pid for p in N.nvmlDeviceGetGraphicsRunningProcesses(h)],\n"
        " 'process': outcome(N.nvmlSystemGetProcessName, os.getpid()),\n"
        " 'nobody': outcome(N.nvmlSystemGetProcessName, 4000000000),\n"
        " 'driver': N.nvmlSystemGetDriverVersion(), 'cuda': N.nvmlSystemGetCudaDriverVersion(),\n"
        " 'absent': outcome(N.nvmlDeviceGetGspFirmwareVersion, h, b''),\n"
        " 'text': str(N.NVMLError(N.NVML_ERROR_GPU_IS_LOST)),\n"
        "})"
    )
    assert told.pop("process").endswith(Path(sys.executable).name)
    assert told.pop("text")
    assert told == {
        "name": "NVIDIA H100 80GB HBM3", "arch": 9, "cc": [9, 0], "cores": 16896, "minor": 5,
        "v1": 2**30 + 2**20, "v2": [2**30, 2**20], "sum": [0, 0], "util": 88, "pstate": 2,
        "compute": [[pid, 2**29]], "graphics": [1], "nobody": "error 6", "driver": "999.1",
        "cuda": 13010, "absent": "error 13",
    }  # fmt: skip


# --- Loading --------------------------------------------------------------------------------------


def test_without_a_state_file_there_is_no_driver(
    simulate: Simulate, nvml_library: Path, tmp_path: Path
) -> None:
    _, clients = simulate(GpuSpec())
    state = clients.environment.pop("SIMULATED_NVML")
    assert clients.run("answer(outcome(N.nvmlInit))") == "error 9"
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"?" + Path(state).read_bytes()[1:])
    clients.environment["SIMULATED_NVML"] = str(damaged)
    assert clients.run("answer(outcome(N.nvmlInit))") == "error 18"
    with pytest.raises(ValueError, match="no state file"):
        SimulatedNvml(damaged)


def test_calls_need_an_initialized_library(simulate: Simulate) -> None:
    _, clients = simulate(GpuSpec())
    assert clients.run(
        "h = start()[0]; N.nvmlInit(); N.nvmlShutdown()\n"
        "between = outcome(N.nvmlDeviceGetIndex, h); N.nvmlShutdown()\n"
        "after = outcome(N.nvmlDeviceGetIndex, h); N.nvmlInit()\n"
        "answer([between, after, outcome(N.nvmlDeviceGetIndex, h),\n"
        "        outcome(N.nvmlDeviceGetIndex, N.c_nvmlDevice_t())])"
    ) == [0, "error 1", 0, "error 2"]


def test_a_broken_source_shows_what_the_compiler_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml" / "broken.c").write_text("this is not C\n")
    monkeypatch.setattr(building, "SOURCES", tmp_path)
    with pytest.raises(building.BuildError, match=r"broken\.c:1"):
        building.build("nvml", tmp_path / "out")
    with pytest.raises(building.BuildError, match="no simulated driver"):
        building.build("nothing", tmp_path / "out")


# --- Other people's tools -------------------------------------------------------------------------


@pytest.fixture
def busy_pair(simulate: Simulate) -> tuple[SimulatedNvml, Clients]:
    sim, clients = simulate(
        GpuSpec(name="NVIDIA A100-SXM4-80GB", watts=321.0, memory_used=5 * 2**30, fan_percent=41,
                compute_processes=[(os.getpid(), 3 * 2**30)], needs_root=False),
        GpuSpec(name="NVIDIA GeForce RTX 3090", watts=123.0, memory_total=24 * 2**30,
                default_power_limit=350, mig_supported=False, ecc_supported=False,
                utilization_gpu=77),
    )  # fmt: skip
    sim.set_power_limit(0, 333.0)
    return sim, clients


def test_gpustat_reads_the_driver(busy_pair: tuple[SimulatedNvml, Clients]) -> None:
    pytest.importorskip("gpustat")
    _, clients = busy_pair
    gpus = json.loads(clients.module("gpustat", "--json"))["gpus"]
    assert [g["name"] for g in gpus] == ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 3090"]
    assert [g["power.draw"] for g in gpus] == [321, 123]
    assert [g["enforced.power.limit"] for g in gpus] == [333, 350]
    assert [g["memory.used"] for g in gpus] == [5120, 0]
    assert [g["memory.total"] for g in gpus] == [81920, 24576]
    assert [g["utilization.gpu"] for g in gpus] == [0, 77]
    assert [g["temperature.gpu"] for g in gpus] == [68, 44]
    assert [p["pid"] for p in gpus[0]["processes"]] == [os.getpid()]


def test_nvitop_reads_the_driver(busy_pair: tuple[SimulatedNvml, Clients]) -> None:
    pytest.importorskip("nvitop")
    _, clients = busy_pair
    seen = clients.run(
        "from nvitop import Device\n"
        "devices = Device.all()\n"
        "answer([[d.name(), d.power_usage(), d.power_limit(), d.memory_used(), d.memory_total(),\n"
        "         d.gpu_utilization(), d.temperature(), list(d.processes())] for d in devices])"
    )
    pid = os.getpid()
    assert seen[0] == [
        "NVIDIA A100-SXM4-80GB", 321_000, 333_000, 5 * 2**30, 80 * 2**30, 0, 68, [pid],
    ]  # fmt: skip
    assert seen[1] == [
        "NVIDIA GeForce RTX 3090", 123_000, 350_000, 0, 24 * 2**30, 77, 44, [],
    ]  # fmt: skip


def test_the_screen_of_nvitop_shows_the_driver(busy_pair: tuple[SimulatedNvml, Clients]) -> None:
    pytest.importorskip("nvitop")
    _, clients = busy_pair
    screen = clients.module("nvitop", "--once", "--ascii")
    assert "A100-SXM4-80GB" in screen
    assert "321W / 333W" in screen
    assert "123W / 350W" in screen
    assert "5120MiB / 80.00GiB" in screen
