"""The units are what systemd accepts, and exposed as little as they promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
MAX_EXPOSURE = 2.5

if shutil.which("systemd-analyze") is None and not os.environ.get("CI"):
    pytest.skip("systemd-analyze is not installed; `make systemd` gets it", allow_module_level=True)


def _analyze(*words):
    return subprocess.run(
        ["systemd-analyze", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
    )


@pytest.fixture(params=UNITS, ids=lambda path: path.name)
def unit(request, tmp_path):
    """A unit, with a program that is installed here."""
    text = request.param.read_text(encoding="utf-8")
    assert text.count("/opt/zeus/bin/zeus") == 1
    for path in UNITS:  # they name each other
        program = path.read_text(encoding="utf-8").replace("/opt/zeus/bin/zeus", "/bin/true")
        (tmp_path / path.name).write_text(program, encoding="utf-8")
    return tmp_path / request.param.name


def test_there_is_a_unit_for_each_process():
    assert [path.name for path in UNITS] == ["zeus-agent.service", "zeus-export.service"]


def test_systemd_finds_nothing_wrong(unit):
    done = _analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_would_find_a_mistake(unit):
    unit.write_text(unit.read_text().replace("ProtectClock=yes", "ProtectClocks=yes"))
    assert "ProtectClocks" in _analyze("verify", "--man=no", unit).stderr


def test_exposure(unit):
    done = _analyze("security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= MAX_EXPOSURE


def _settings(name):
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and line[0] not in "#;"]


def test_the_agent_has_one_capability_and_the_exporter_none():
    agent, exporter = (_settings(f"zeus-{name}.service") for name in ("agent", "export"))
    assert ("CapabilityBoundingSet", "CAP_SYS_ADMIN") in agent
    assert ("CapabilityBoundingSet", "") in exporter
    assert ("DynamicUser", "yes") in exporter


def test_records_of_holds_outlive_the_agent():
    from zeus.device._agent_place import SOCKET

    agent = dict(_settings("zeus-agent.service"))
    assert Path("/run") / agent["RuntimeDirectory"] == SOCKET.parent
    assert agent["RuntimeDirectoryPreserve"] == "yes"
    assert agent["Restart"] == "always"
