"""`zeus env`: what can be used, what not, why, and what mends it."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
from tests.cli.support import zeus

from simulated_drivers import GpuSpec, NvmlReturn
from zeus import __version__
from zeus.device import Capability

KEYS = [
    "zeus", "python", "platform", "simulated", "drivers", "visibility", "gpus_on_machine", "gpus",
    "cpus", "soc", "problems", "agent", "holds", "records", "unreadable", "extensions",
    "frameworks",
]  # fmt: skip


def answers(text: str, block: str) -> dict[str, str]:
    """Capability and answer of the block that begins with this line."""
    body = text.split(block, 1)[1].split("\n\n", 2)[1]
    return {
        match[1]: match[2] for match in re.finditer(r"^  (\S.*?)  +(yes|no.*)$", body, re.MULTILINE)
    }


def test_equal_gpus_share_a_block():
    done = zeus("env", ZEUS_SIMULATE="v100x4")
    assert (done.returncode, done.stderr) == (0, "")
    assert "GPU 0-3  Tesla V100" in done.stdout
    assert "simulated: v100x4 (ZEUS_SIMULATE)" in done.stdout
    assert len(set(re.findall(r"GPU-[0-9a-f-]{36}", done.stdout))) == 4
    found = answers(done.stdout, "GPU 0-3")
    assert list(found) == list(Capability)
    assert found["energy counter"] == "yes"
    assert found["power limit control"] == "yes"
    assert found["average power"].startswith("no   unsupported")


def test_different_gpus_have_blocks_of_their_own():
    done = zeus("env", ZEUS_SIMULATE="h100x2,mi250x,v100")
    assert "GPU 0-1  NVIDIA H100" in done.stdout
    assert "GPU 2  Tesla V100" in done.stdout
    assert "GPU 3  AMD Instinct MI250X" in done.stdout
    assert "the whole module" in done.stdout.split("GPU 3")[1]


def test_a_machine_with_nothing_is_told_kindly():
    done = zeus("env", ZEUS_SIMULATE=None, ZEUS_POWERCAP_ROOT="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Zeus {__version__}" in done.stdout
    assert "Only time can be measured on this machine." in done.stdout
    assert "NVIDIA GPUs" in done.stdout
    assert "→ install or load the NVIDIA driver" in done.stdout
    assert "ZEUS_SIMULATE=v100x4 zeus demo" in done.stdout


@pytest.mark.parametrize("spec", [None, "v100x2"])
def test_json_has_stable_keys(spec):
    done = zeus("env", "--json", ZEUS_SIMULATE=spec)
    report = json.loads(done.stdout)
    assert list(report) == KEYS
    assert report["zeus"] == __version__
    assert report["simulated"] == spec
    assert set(report["frameworks"]) == {"torch", "jax", "cupy"}
    if spec is None:
        assert report["gpus"] == []
        assert all(set(p) == {"what", "reason", "detail", "cure"} for p in report["problems"])
        return
    assert [gpu["index"] for gpu in report["gpus"]] == [0, 1]
    for gpu in report["gpus"]:
        assert gpu["whole_module"] is False
        assert gpu["pci_address"].startswith("0000:")
        capabilities = gpu["capabilities"]
        assert list(capabilities) == [name.replace(" ", "_") for name in Capability]
        assert capabilities["energy_counter"]["available"] is True
        refused = capabilities["average_power"]
        assert refused["available"] is False
        assert refused["reason"] == "unsupported"


def test_visibility_variables_are_shown():
    done = zeus("env", ZEUS_SIMULATE="v100x4", CUDA_VISIBLE_DEVICES="2,3")
    assert "CUDA_VISIBLE_DEVICES=2,3 (hides 2 of 4 GPUs)" in done.stdout
    assert "GPU 0-1" in done.stdout
    report = json.loads(
        zeus("env", "--json", ZEUS_SIMULATE="v100x4", CUDA_VISIBLE_DEVICES="2,3").stdout
    )
    assert report["visibility"] == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert (report["gpus_on_machine"], len(report["gpus"])) == (4, 2)


def test_a_refused_permission_comes_with_its_cure(nvml):
    sim, variables = nvml(GpuSpec(), GpuSpec())
    sim.deny_control()
    done = zeus("env", env=variables)
    found = answers(done.stdout, "GPU 0-1  NVIDIA A100")
    assert found["energy counter"] == "yes"
    assert "no permission" in found["power limit control"]
    assert "no permission" in found["clock control"]
    assert done.stdout.count("→ an administrator starts the node agent") == 2


def test_nothing_is_changed_by_finding_out(nvml):
    sim, variables = nvml(GpuSpec())
    sim.set_power_limit(0, 222)
    assert zeus("env", env=variables).returncode == 0
    assert sim.power_limit(0) == 222
    assert sim.clocks(0).locked_graphics is None


def test_a_lost_gpu_costs_only_itself(nvml):
    sim, variables = nvml(GpuSpec(), GpuSpec())
    sim.fault(1, "*", "error", code=NvmlReturn.GPU_IS_LOST, skip=20)
    done = zeus("env", env=variables)
    assert done.returncode == 0
    assert answers(done.stdout, "GPU 0")["energy counter"] == "yes"
    lost = done.stdout.split("GPU 1 ")[1]
    assert "device lost" in lost
    assert "dmesg" in lost


def test_a_gpu_that_is_lost_from_the_start_is_told_in_one_row(nvml):
    _, variables = nvml(GpuSpec(), GpuSpec(lost_at_init=True))
    done = zeus("env", env=variables)
    assert list(answers(done.stdout, "GPU 1  NVIDIA GPU 1")) == ["everything"]
    assert done.stdout.count("dmesg") == 1


def test_a_hanging_gpu_costs_only_itself(nvml):
    sim, variables = nvml(GpuSpec(), GpuSpec())
    sim.fault(1, "nvmlDeviceGetTotalEnergyConsumption", "hang")
    done = zeus("env", env=variables)
    assert done.returncode == 0
    assert answers(done.stdout, "GPU 0")["power limit control"] == "yes"
    assert "driver call hangs" in answers(done.stdout, "GPU 1")["everything"]


def test_cpus_and_their_memory(tmp_path):
    package = tmp_path / "intel-rapl:0"
    dram = package / "intel-rapl:0:0"
    dram.mkdir(parents=True)
    for zone, name in ((package, "package-0"), (dram, "dram")):
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text("1000000\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
    variables: dict[str, Any] = {"ZEUS_POWERCAP_ROOT": str(tmp_path), "ZEUS_SIMULATE": None}
    done = zeus("env", **variables)
    assert re.search(r"^CPU 0", done.stdout, re.MULTILINE)
    assert re.search(r"package energy +yes", done.stdout)
    assert re.search(r"DRAM energy +yes", done.stdout)
    assert "Only time can be measured" not in done.stdout
    (cpu,) = json.loads(zeus("env", "--json", **variables).stdout)["cpus"]
    assert cpu["energy"]["available"]
    assert cpu["dram"]["available"]


def test_holds_in_force_are_shown(monkeypatch):
    from zeus.device import get_gpus

    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    with get_gpus()[1].hold(power_limit=150):
        done = zeus("env")
        (hold,) = json.loads(zeus("env", "--json").stdout)["holds"]
    line = done.stdout.split("Settings changed under a hold")[1]
    assert re.search(r"GPU 1 .*power limit +150 W +set by process", line)
    assert "250 W is restored" in line
    assert hold["knob"] == "power_limit"
    assert (hold["value"], hold["previous"], hold["pid"]) == (150.0, 250.0, os.getpid())
