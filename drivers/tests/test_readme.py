"""The README is true: a stranger who follows it has a node, and it lists what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulated_drivers import SimulatedAmdSmi, SimulatedNvml

DRIVERS = Path(__file__).parents[1]
PYTHONPATH = str(DRIVERS / "python")
README = (DRIVERS / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def stranger(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the files that the README names, and an environment without our sources."""
    for block in blocks("python") + blocks("c"):
        found = re.match(r"(?:# |/\* )(\S+)", block)
        assert found is not None, block
        (tmp_path / found[1]).write_text(block)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return tmp_path, {**os.environ, "PATH": path, "PYTHONPATH": PYTHONPATH, "TERM": "dumb"}


def test_the_commands_work_as_they_are(stranger: tuple[Path, dict[str, str]]) -> None:
    pytest.importorskip("nvitop")
    folder, environment = stranger
    done = subprocess.run(
        ["bash", "-eu", "-c", "\n".join(blocks("sh"))],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "H100 80GB HBM3" in done.stdout
    assert "300W / 700W" in done.stdout  # nvitop
    assert re.search(r"NVIDIA H100 80GB HBM3: \d+ J in about a second", done.stdout)
    assert "GPU 0: 300.0 W" in done.stdout  # the program in C
    assert "ClockSettings(" in done.stdout  # script.py


def test_a_node_needs_nothing_that_is_installed(stranger: tuple[Path, dict[str, str]]) -> None:
    folder, environment = stranger
    code = "import runpy; runpy.run_path('node.py'); import importlib.util as i\n"
    code += "assert i.find_spec('zeus') is None"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],  # without site-packages
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with SimulatedNvml(folder / "node") as node:
        assert len(node) == 2


def test_sensors_by_name_say_what_they_need(tmp_path: Path) -> None:
    code = "from simulated_drivers import GpuSpec; GpuSpec()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    project = Path(__file__).resolve().parents[2]
    assert f"pip install {project}" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("controller", [SimulatedNvml, SimulatedAmdSmi])
def test_every_function_is_listed(controller: type[SimulatedNvml | SimulatedAmdSmi]) -> None:
    listed = README[README.index("## Functions") : README.index("## Limits")]
    words = set(re.findall(r"\w+", listed))
    prefixes = ["nvmlDevice(?:Get|Set|Reset)", "nvmlSystemGet", "nvml"]
    prefixes += ["amdsmi_get_gpu_", "amdsmi_(?:get|set)_", "amdsmi_"]
    for name in list(controller._functions)[1:]:
        names = {name, *(re.sub(f"^{prefix}", "", name) for prefix in prefixes)}
        assert names & words, name
