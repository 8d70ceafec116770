"""`zeus verify`: the report in the terminal, as JSON and to share; exit codes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here
from tests.verify.worlds import QUICK, node_of

from zeus.device._node import override
from zeus.device._sensors import PRESETS, Sensor
from zeus.verify import _report


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Shorter parts."""
    monkeypatch.setattr(_report, "Lengths", lambda: QUICK)


def test_the_report(capfd, tmp_path):
    share, output = tmp_path / "share.json", tmp_path / "report.json"
    with override(node_of()):
        done = zeus_here(capfd, "verify", "--knobs", "--output", str(output), "--share", str(share))
    assert (done.returncode, done.stderr) == (0, "")
    first, _, title, *rest = done.stdout.splitlines()
    assert " checks as expected, 0 different, " in first
    assert title == "GPU 0  NVIDIA A100-SXM4-80GB"
    assert any(line.split() == ["counter", "period", *line.split()[2:]] for line in rest)
    assert all(len(line) <= 120 for line in rest)
    report = json.loads(output.read_text())
    assert set(report) == {"zeus", "counts", "devices", "problems"}
    assert report["counts"]["different"] == 0
    shared = json.loads(share.read_text())
    assert (shared["format"], shared["simulated"]) == (1, True)


def test_what_is_different_is_an_exit_code(capfd):
    sensors = replace(PRESETS["a100"], power=Sensor(period=0.1, window=0.1))
    with override(node_of(sensors)):
        done = zeus_here(capfd, "verify", "--json")
    assert done.returncode == 1
    assert one_error_line(done) == "zeus: error: 1 check found something else than expected"
    report = json.loads(done.stdout)
    (found,) = [c for c in report["devices"][0]["checks"] if c["verdict"] == "different"]
    assert found["name"] == "power window"
    assert found["value"] == pytest.approx(0.1, abs=0.003)


def test_a_machine_without_gpus(capfd):
    done = zeus("verify", ZEUS_SIMULATE=None, ZEUS_POWERCAP_ROOT="/nonexistent")
    assert done.returncode == 0
    assert done.stdout.startswith("0 checks as expected, 0 different, 0 not possible")
    assert "NVIDIA GPUs" in done.stdout


def test_wrong_options_check_nothing(capfd, tmp_path):
    with override(node_of()):
        done = zeus_here(capfd, "verify", "--json", "--share", "-")
        assert done.returncode == 2
        assert "give one of them a file" in one_error_line(done)
        done = zeus_here(capfd, "verify", "--gpus", "3")
        assert done.returncode == 2
        assert "must be among [0], but got [3]" in one_error_line(done)
        done = zeus_here(capfd, "verify", "--share", str(tmp_path / "nowhere" / "file"))
        assert done.returncode == 2
        assert "nowhere" in one_error_line(done)
