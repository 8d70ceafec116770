"""`zeus restore`: what killed processes left behind comes back, and is told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.cli.support import environment, zeus

from simulated_drivers import GpuSpec
from zeus.device import get_gpus

HOLD = """
import sys, time
from zeus.device import get_gpus
get_gpus()[1].hold(power_limit=150, graphics_clock=(900, 1200)).acquire()
print("held", flush=True)
time.sleep(600)
"""


def kill_a_holder(**variables):
    """A process that holds knobs of GPU 1 and is killed; its number."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, env=environment(**variables)
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    return holder.pid


def test_nothing_to_do():
    done = zeus("restore", ZEUS_SIMULATE="v100x2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing to restore.\n", "")


def test_nothing_to_do_on_a_machine_with_nothing():
    done = zeus("restore", ZEUS_SIMULATE=None)
    assert (done.returncode, done.stdout) == (0, "Nothing to restore.\n")


def test_a_killed_process(monkeypatch):
    pid = kill_a_holder(ZEUS_SIMULATE="v100x2")
    done = zeus("restore", ZEUS_SIMULATE="v100x2")
    assert (done.returncode, done.stderr) == (0, "")
    title, clock, limit = done.stdout.splitlines()
    assert title == "Restored"
    assert "GPU 1 Tesla V100" in limit
    assert f"250 W (was 150 W by process {pid})" in limit
    assert f"unlocked (was 900-1200 MHz by process {pid})" in clock
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    assert get_gpus()[1].power_limit() == 250
    assert get_gpus()[1].locked_graphics_clock() is None
    assert zeus("restore", ZEUS_SIMULATE="v100x2").stdout == "Nothing to restore.\n"


def test_json():
    pid = kill_a_holder(ZEUS_SIMULATE="v100x2")
    report = json.loads(zeus("restore", "--json", ZEUS_SIMULATE="v100x2").stdout)
    assert (report["refused"], report["held"]) == ([], [])
    restored = {line["knob"]: line for line in report["restored"]}
    assert set(restored) == {"power_limit", "graphics_clock"}
    assert restored["power_limit"]["previous"] == 250
    assert restored["power_limit"]["value"] == 150
    assert restored["power_limit"]["pid"] == pid


def test_running_processes_keep_what_they_hold(monkeypatch):
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    with get_gpus()[0].hold(power_limit=120):
        done = zeus("restore")
        assert get_gpus()[0].power_limit() == 120
    assert done.returncode == 0
    assert "Nothing to restore." in done.stdout
    assert "Not touched" in done.stdout
    assert "120 W by process" in done.stdout


def test_a_hold_above_a_dead_one_inherits(monkeypatch):
    kill_a_holder(ZEUS_SIMULATE="v100x2")
    record = next((path for path in _records() if path.suffix == ".json"), None)
    assert record is not None
    # A process that runs holds the limit on top of the dead one's.
    text = json.loads(record.read_text())
    dead = text["knobs"]["power_limit"][0]
    alive = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        from zeus.state._files import process_start

        top = dead | {
            "id": "above", "value": 120.0, "previous": 150.0, "pid": alive.pid,
            "started": process_start(alive.pid),
        }  # fmt: skip
        text["knobs"]["power_limit"].append(top)
        record.write_text(json.dumps(text))
        done = zeus("restore", ZEUS_SIMULATE="v100x2")
    finally:
        alive.kill()
        alive.wait()
    assert done.returncode == 0
    assert f"process {alive.pid} holds it now and restores 250 W" in done.stdout


def _records():
    from zeus.state._files import state_directory

    return sorted((state_directory() / "holds").iterdir())


def test_a_refusal_is_told_with_its_cure(nvml):
    sim, variables = nvml(GpuSpec(), GpuSpec())
    kill_a_holder(**variables)
    assert sim.power_limit(1) == 150
    sim.deny_control()
    done = zeus("restore", env=variables)
    assert (done.returncode, done.stderr) == (1, "")
    assert "Could not be restored" in done.stdout
    assert "GPU 1 NVIDIA A100" in done.stdout
    assert "no permission" in done.stdout
    assert "→ an administrator starts the node agent" in done.stdout
    refused = json.loads(zeus("restore", "--json", env=variables).stdout)["refused"]
    assert {line["knob"] for line in refused} == {"power_limit", "graphics_clock"}
    sim.deny_control(False)
    done = zeus("restore", env=variables)
    assert done.returncode == 0
    assert "Restored" in done.stdout
    assert sim.power_limit(1) == 400
    assert sim.clocks(1).locked_graphics is None


def test_a_gpu_that_is_not_here():
    kill_a_holder(ZEUS_SIMULATE="v100x2")
    done = zeus("restore", ZEUS_SIMULATE=None)
    assert done.returncode == 1
    assert "no such GPU here now" in done.stdout
    assert "ZEUS_SIMULATE" in done.stdout


UNREADABLE = {
    "damaged": "{",
    "of a newer version": '{"version": 2, "knobs": {}}',
    "with NaN": '{"version": 1, "knobs": {"power_limit": NaN}}',
    "nested deeply": "[" * 100_000,
    "with an unknown knob": '{"version": 1, "knobs": {"fan": []}}',
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_record_is_kept_named_and_no_success(content, monkeypatch):
    kill_a_holder(ZEUS_SIMULATE="v100x2")
    (record,) = (path for path in _records() if path.suffix == ".json")
    record.write_text(content)
    for command in ("restore", "env"):
        done = zeus(command, ZEUS_SIMULATE="v100x2")
        assert done.returncode == 1
        assert str(record) in done.stdout
        assert "Nothing to restore" not in done.stdout
        report = json.loads(zeus(command, "--json", ZEUS_SIMULATE="v100x2").stdout)
        assert [found["path"] for found in report["unreadable"]] == [str(record)]
    measured = zeus("measure", "--", "true", ZEUS_SIMULATE="v100x2")
    assert measured.returncode == 0
    assert record.read_text() == content
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    assert get_gpus()[1].power_limit() == 150  # left alone
