"""`zeus measure`: the command it runs must not notice it."""

from __future__ import annotations

import datetime
import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time

import pytest
from tests.cli.support import LONG_ENOUGH, ZEUS, environment, one_error_line, start, zeus

from zeus.monitor import Measurement


def test_prints_time_energy_and_power_on_stderr():
    done = zeus("measure", "--", "sleep", "0.2", ZEUS_SIMULATE="v100x2")
    assert done.returncode == 0
    assert done.stdout == ""
    summary, *devices = done.stderr.splitlines()
    assert summary.startswith("zeus: ")
    assert "W on average" in summary
    assert [line.split()[:2] for line in devices] == [["GPU", "0"], ["GPU", "1"]]
    assert all(" W " in line and " J" in line for line in devices)


def test_without_any_meter_there_is_the_time_and_honesty():
    done = zeus("measure", "--", "true", ZEUS_SIMULATE=None, ZEUS_POWERCAP_ROOT="/nonexistent")
    assert done.returncode == 0
    assert "energy not measured" in done.stderr
    assert "zeus env" in done.stderr
    assert "0 J" not in done.stderr


def test_streams_are_the_commands():
    done = zeus(
        "measure", "--", "sh", "-c", "cat; echo err >&2", stdin="in\n", ZEUS_SIMULATE="v100"
    )
    assert done.stdout == "in\n"
    assert done.stderr.startswith("err\nzeus: ")


def test_quiet_leaves_stderr_alone():
    done = zeus("measure", "--quiet", "--", "sh", "-c", "echo err >&2", ZEUS_SIMULATE="v100")
    assert done.stderr == "err\n"


@pytest.mark.parametrize("with_dashes", [True, False])
def test_options_of_the_command_are_its_own(with_dashes):
    separator = ["--"] if with_dashes else []
    show = "import sys; print(sys.argv[1:])"
    words = ["--json", "x", "--help", "--", "-c", "--gpus=9"]
    done = zeus("measure", *separator, sys.executable, "-c", show, *words, ZEUS_SIMULATE="v100")
    assert done.returncode == 0
    assert done.stdout == f"{words}\n"


def test_exit_codes_are_the_commands():
    done = zeus("measure", "--", "sh", "-c", "exit 3", ZEUS_SIMULATE="v100")
    assert done.returncode == 3
    assert "exit code 3" in done.stderr


def test_death_by_signal_is_told():
    done = zeus("measure", "--", "sh", "-c", "kill -9 $$", ZEUS_SIMULATE="v100")
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed by SIGKILL" in done.stderr


def test_a_command_that_is_not_there():
    done = zeus("measure", "--", "no-such-program", ZEUS_SIMULATE="v100")
    assert done.returncode == 127
    assert "no-such-program: command not found" in one_error_line(done)


@pytest.mark.parametrize("kind", ["not executable", "directory", "no interpreter"])
def test_a_command_that_cannot_be_run(tmp_path, kind):
    file = tmp_path / "program"
    if kind == "directory":
        file.mkdir()
    else:
        file.write_text("#!/no/such/interpreter\n")
        file.chmod(0o755 if kind == "no interpreter" else 0o644)
    done = zeus("measure", "--", str(file), ZEUS_SIMULATE="v100")
    assert done.returncode == 126
    assert str(file) in one_error_line(done)


@pytest.mark.real_time
def test_json_holds_the_measurement_and_the_command(tmp_path):
    file = tmp_path / "out.json"
    before = datetime.datetime.now(datetime.UTC)
    done = zeus(
        "measure", "--output", str(file), "--gpus", "1", "--", "sh", "-c", "sleep 0.5; exit 4",
        ZEUS_SIMULATE="v100x2",
    )  # fmt: skip
    assert done.returncode == 4
    record = json.loads(file.read_text())
    assert record["command"] == ["sh", "-c", "sleep 0.5; exit 4"]
    assert record["exit_code"] == 4
    assert record["signal"] is None
    started_at = datetime.datetime.fromisoformat(record["started_at"])
    assert before <= started_at <= datetime.datetime.now(datetime.UTC)
    assert started_at.utcoffset() == datetime.timedelta(0)
    measurement = Measurement.from_dict(record)
    assert measurement.time >= 0.5
    assert list(measurement.gpu_energy) == [1]
    assert measurement.gpu_energy[1] == pytest.approx(250 * measurement.time, rel=0.05)
    assert stat.S_IMODE(file.stat().st_mode) & 0o600 == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.json"]


@pytest.mark.parametrize("option", [["--json"], ["--output", "-"]])
def test_json_on_stdout_is_alone(option):
    done = zeus(
        "measure", "--quiet", *option, "--", "sh", "-c", "echo first; kill -TERM $$",
        ZEUS_SIMULATE="v100",
    )  # fmt: skip
    assert done.stderr == "first\n"
    record = json.loads(done.stdout)
    assert record["signal"] == "SIGTERM"
    assert record["exit_code"] == done.returncode == 143


def test_an_unwritable_file_is_known_before_the_command_runs(tmp_path):
    done = zeus("measure", "--output", str(tmp_path / "missing" / "x"), "--", "echo", "ran")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "missing" in one_error_line(done)


def test_a_file_that_cannot_be_completed_does_not_hide_the_commands_failure():
    done = zeus("measure", "--quiet", "--output", "/dev/full", "--", "sh", "-c", "exit 5")
    assert done.returncode == 5
    assert "could not be written" in one_error_line(done)
    assert zeus("measure", "--quiet", "--output", "/dev/full", "--", "true").returncode == 1


def test_an_existing_file_survives_a_command_that_cannot_start(tmp_path):
    file = tmp_path / "out.json"
    file.write_text("old")
    assert zeus("measure", "--output", str(file), "--", "no-such-program").returncode == 127
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.json"]


def test_the_file_is_written_and_the_code_kept_when_nobody_reads(tmp_path):
    file = tmp_path / "out.json"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*ZEUS, "measure", "--output", str(file), "--", "sh", "-c", "exit 6"],
        stderr=writer,
        env=environment(ZEUS_SIMULATE="v100"),
        check=False,
        timeout=LONG_ENOUGH,
    )
    os.close(writer)
    assert done.returncode == 6
    assert json.loads(file.read_text())["exit_code"] == 6


WAIT_FOR_SIGNAL = r"""
import os, signal, sys, time
def tell(number, frame):
    os.write(1, f"{signal.Signals(number).name}\n".encode())
    os._exit(7)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), tell)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_signals_reach_the_command_and_the_report_is_still_printed(name):
    process = start(
        "measure", "--", sys.executable, "-c", WAIT_FOR_SIGNAL, name,
        variables={"ZEUS_SIMULATE": "v100"}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=LONG_ENOUGH)
    assert out == f"{name}\n"
    assert process.returncode == 7
    assert "GPU 0" in err


def test_a_signal_the_caller_ignores_stays_ignored():
    script = "trap '' HUP; exec \"$@\""
    check = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    done = subprocess.run(
        ["sh", "-c", script, "sh", *ZEUS, "measure", "--quiet", "--", sys.executable, "-c", check],
        env=environment(ZEUS_SIMULATE="v100"),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_ENOUGH,
    )
    assert done.stdout == "True\n"


def test_the_command_does_not_inherit_our_own_handling():
    check = (
        "import signal; print([signal.getsignal(getattr(signal, n)) is signal.SIG_IGN "
        "for n in ('SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT')])"
    )
    done = zeus("measure", "--quiet", "--", sys.executable, "-c", check, ZEUS_SIMULATE="v100")
    assert done.stdout == "[False, False, False, False]\n"


def test_ctrl_c_at_a_terminal_reaches_the_command_once():
    code = (
        "import signal, sys, time\n"
        "hits = []\n"
        "signal.signal(signal.SIGINT, lambda *_: hits.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 0.5\n"
        "while time.monotonic() < end or not hits: time.sleep(0.02)\n"
        "sys.exit(40 + len(hits))"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [*ZEUS, "measure", "--", sys.executable, "-c", code],
            environment(ZEUS_SIMULATE="v100"),
        )
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 41


def test_open_files_are_handed_down(tmp_path):
    (tmp_path / "in").write_text("handed down\n")
    done = subprocess.run(
        ["sh", "-c", f'exec 5<"{tmp_path}/in"; "$@"', "sh", *ZEUS, "measure", "--quiet", "--",
         "sh", "-c", "cat <&5"],
        env=environment(ZEUS_SIMULATE="v100"),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_ENOUGH,
    )  # fmt: skip
    assert done.stdout == "handed down\n"


@pytest.mark.real_time
def test_the_energy_is_that_of_the_time_the_command_ran(tmp_path, nvml_library):
    from simulated_drivers import GpuSpec, SimulatedNvml

    with SimulatedNvml.create(tmp_path / "nvml", [GpuSpec(watts=200.0)]) as sim:
        file = tmp_path / "out.json"
        begun = time.monotonic()
        done = zeus(
            "measure", "--output", str(file), "--", "sleep", "0.5",
            env=sim.environment(nvml_library),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        measurement = Measurement.from_dict(json.loads(file.read_text()))
        assert 0.5 <= measurement.time <= time.monotonic() - begun
        assert measurement.gpu_energy[0] == pytest.approx(200 * measurement.time, rel=0.05)
