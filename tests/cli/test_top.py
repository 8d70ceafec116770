"""`zeus top`: in a terminal, into a pipe, and with GPUs that misbehave."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import sys
import termios
import time
from typing import Any

import pytest
from tests.cli.support import LONG_ENOUGH, ZEUS, environment, serving, start, zeus

from simulated_drivers import GpuSpec, NvmlReturn
from zeus.cli._gpu_rows import frame_of
from zeus.cli._live_view import LiveView
from zeus.cli._snapshot import GpuReading, ProcessReading, Snapshot
from zeus.cli._terminal import Console, width

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


# Tables


def test_once_prints_one_table():
    done = zeus("top", "--once", ZEUS_SIMULATE="v100x2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "2 GPUs · 500 W" in done.stdout
    rows = [line for line in done.stdout.splitlines() if "Tesla V100" in line]
    assert len(rows) == 2
    for cell in ("250 W", "██████████", "100%", "°C", "GiB", "1380 MHz"):
        assert cell in rows[0]
    assert "simulated load" in done.stdout


def test_a_plain_table_per_interval_without_a_terminal():
    process = start("top", "--interval", "0.1", variables={"ZEUS_SIMULATE": "v100"})
    assert process.stdout is not None
    tables = 0
    while tables < 3:
        tables += "1 GPU · " in process.stdout.readline()
    process.terminate()
    out, err = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == -signal.SIGTERM
    assert "\x1b" not in out
    assert err == ""


@pytest.mark.real_time
def test_json_is_one_object_per_line():
    process = start(
        "top", "--json", "--interval", "0.2", "--gpus", "1", variables={"ZEUS_SIMULATE": "v100x2"}
    )
    assert process.stdout is not None
    first = later = json.loads(process.stdout.readline())
    while later["elapsed"] < first["elapsed"] + 0.6:  # some ticks of the counter
        later = json.loads(process.stdout.readline())
    process.terminate()
    process.communicate(timeout=LONG_ENOUGH)
    (gpu,) = later["gpus"]
    assert gpu["index"] == 1
    assert (gpu["power"], gpu["power_limit"], gpu["utilization"]) == (250, 250, 1)
    assert gpu["problem"] is None
    assert gpu["processes"][0]["name"] == "simulated load"
    assert first["gpus"][0]["energy"] is None
    elapsed = later["elapsed"] - first["elapsed"]
    assert gpu["energy"] == pytest.approx(250 * elapsed, rel=0.3)
    assert set(later) == {"time", "elapsed", "gpus", "cpus", "soc"}


def test_a_gpu_without_a_counter_has_its_power_summed_up():
    process = start("top", "--json", "--interval", "0.2", variables={"ZEUS_SIMULATE": "p100"})
    assert process.stdout is not None
    _, second = (json.loads(process.stdout.readline()) for _ in range(2))
    process.terminate()
    process.communicate(timeout=LONG_ENOUGH)
    assert second["gpus"][0]["energy_is_integrated"] is True
    assert second["gpus"][0]["energy"] > 0


def test_nothing_to_watch_is_told():
    done = zeus("top", "--once", ZEUS_SIMULATE=None, ZEUS_POWERCAP_ROOT="/nonexistent")
    assert done.returncode == 0
    assert "zeus env" in done.stdout


def test_cpu_and_memory_power(tmp_path):
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0/intel-rapl:0:0", "dram")):
        (tmp_path / zone).mkdir(parents=True)
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "energy_uj").write_text("1000000\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("262143328850\n")
    variables: dict[str, Any] = {"ZEUS_SIMULATE": None, "ZEUS_POWERCAP_ROOT": str(tmp_path)}
    (cpu,) = json.loads(zeus("top", "--once", "--json", **variables).stdout)["cpus"]
    assert cpu["power"] == 0  # its counter stands still: that is a measured nought
    assert cpu["dram_power"] == 0
    assert "0.0 W" in zeus("top", "--once", **variables).stdout


def test_other_nodes_beside_this_one():
    page = b"""zeus_gpu_info{gpu="0",uuid="GPU-far",name="Far GPU"} 1.0
zeus_gpu_power_watts{gpu="0",uuid="GPU-far",method="instant"} 123.0
"""
    with serving(page) as url:
        nodes = ("--node", url, "--node", "http://127.0.0.1:1")
        done = zeus("top", "--once", *nodes, ZEUS_SIMULATE="v100")
        as_json = zeus("top", "--once", "--json", *nodes, ZEUS_SIMULATE="v100")
    assert done.returncode == 0
    assert re.search(r"^local +0  Tesla V100", done.stdout, re.MULTILINE)
    assert re.search(r"^127\.0\.0\.1:\d+ +0  Far GPU +123 W", done.stdout, re.MULTILINE)
    assert "127.0.0.1:1  unreachable: Connection refused" in done.stdout
    far, none = json.loads(as_json.stdout)["nodes"]
    assert (far["gpus"][0]["power"], far["problem"]) == (123.0, None)
    assert (none["node"], none["gpus"]) == ("127.0.0.1:1", [])
    assert "unreachable" in none["problem"]


def test_a_node_that_does_not_answer_does_not_stop_the_view():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        terminal = Terminal("--node", url, ZEUS_SIMULATE="v100")
        terminal.read_until(b"J in ")
        terminal.read_until(b"connecting")
        terminal.read_until(b"no answer within")
        terminal.type(b"q")
        assert_given_back(terminal.finish(), 0)


# GPUs that misbehave


def test_a_lost_gpu_shows_its_reason_and_costs_no_other(nvml):
    sim, variables = nvml(GpuSpec(watts=123.0), GpuSpec(), GpuSpec(lost_at_init=True))
    sim.fault(1, "nvmlDeviceGetFieldValues", "error", code=NvmlReturn.GPU_IS_LOST)
    done = zeus("top", "--once", env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, third = (line for line in done.stdout.splitlines() if "NVIDIA" in line)
    assert "123 W" in first
    assert "device lost" in second
    assert "device lost" in third
    assert "without 2 unreadable" in done.stdout


@pytest.mark.real_time
def test_a_hanging_gpu_does_not_stop_the_view(nvml):
    sim, variables = nvml(GpuSpec(watts=123.0), GpuSpec())
    sim.fault(1, "nvmlDeviceGetUtilizationRates", "hang")
    process = start("top", "--json", "--interval", "0.2", variables=variables)
    assert process.stdout is not None
    begun = time.monotonic()
    looks = []
    while time.monotonic() < begun + LONG_ENOUGH:
        looks.append(json.loads(process.stdout.readline()))
        if "hangs" in (looks[-1]["gpus"][1]["problem"] or ""):
            break
    process.terminate()
    process.communicate(timeout=LONG_ENOUGH)
    assert "did not answer" in looks[-1]["gpus"][1]["problem"]
    assert len(looks) > 3  # the view went on meanwhile
    assert all(look["gpus"][0]["power"] == pytest.approx(123) for look in looks)


def test_what_a_gpu_does_not_tell_is_a_dash_and_never_nought(nvml):
    _, variables = nvml(
        GpuSpec(unsupported=["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature"])
    )
    done = zeus("top", "--once", env=variables)
    (row,) = (line for line in done.stdout.splitlines() if "A100" in line)
    assert re.search(r"400 W +- +- +0\.6/80 GiB", row), row
    (gpu,) = json.loads(zeus("top", "--once", "--json", env=variables).stdout)["gpus"]
    assert gpu["utilization"] is None
    assert gpu["temperature"] is None


def test_processes_have_names_and_users(nvml):
    _, variables = nvml(
        GpuSpec(compute_processes=[(os.getpid(), 2**30), (4194000, 2**31)]),
        GpuSpec(compute_processes=[(os.getpid(), 2**30)]),
    )
    (first, _) = json.loads(zeus("top", "--once", "--json", env=variables).stdout)["gpus"]
    mine, gone = first["processes"]
    with open(f"/proc/{os.getpid()}/comm") as comm:  # noqa: PTH123
        assert mine["name"] == comm.read().strip()
    assert mine["user"]
    assert (gone["name"], gone["user"]) == (None, None)
    done = zeus("top", "--once", env=variables)
    assert re.search(rf"^ *{os.getpid()} +\S+ +0-1 +2\.0 GiB +\S", done.stdout, re.MULTILINE)
    assert re.search(r"^4194000 +- +0 +2\.0 GiB +-$", done.stdout, re.MULTILINE)


# What fits on the screen


def console(columns: int, lines: int) -> Console:
    class Sized(Console):
        def size(self) -> tuple[int, int]:
            return columns, lines

    made = Sized(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    made.colors = True
    return made


def snapshot(gpus: int) -> Snapshot:
    readings = [
        GpuReading(
            i, "NVIDIA A100-SXM4-80GB", f"GPU-{i}", power=300, power_limit=400, energy=1e5,
            utilization=0.5, temperature=50, processes=(ProcessReading(i, "python", "me", None),),
        )
        for i in range(gpus)
    ]  # fmt: skip
    return Snapshot(
        10.0, (*readings, GpuReading(gpus, "A100", "x", problem="lost " * 60)), (), None
    )


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 200])
def test_readings_are_not_cut_off_but_columns_left_out(columns):
    lines = LiveView(console(columns, 50)).lines(frame_of(snapshot(3)))
    headings = [line for line in lines if "power" in line]
    if columns >= 40:
        assert width(headings[0]) <= columns
    assert ("clock" in headings[0]) == (columns >= 110)


@pytest.mark.parametrize("height", [2, 5, 10])
def test_what_does_not_fit_is_counted(height):
    lines = LiveView(console(80, height)).lines(frame_of(snapshot(16)))
    assert len(lines) == height
    assert re.search(r"1-\d of 17", lines[0])


# In a terminal


class Terminal:
    """`zeus top` in a terminal of its own."""

    def __init__(
        self, *arguments: str, columns: int = 120, lines: int = 30, ignored: str = "", **variables
    ) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                # A shell stands for the user's: it tells what the terminal is like afterwards.
                ignoring = f"trap '' {ignored}; " if ignored else ""
                script = f'{ignoring}trap : INT; "$@"; echo "code $?"; stty -a'
                os.execve(
                    "/bin/sh",
                    ["sh", "-c", script, "sh", *ZEUS, "top", "--interval", "0.2", *arguments],
                    environment(TERM="xterm", **variables),
                )
            finally:
                os._exit(99)
        self.resize(columns, lines)
        self.shown = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, wanted: bytes) -> bytes:
        deadline = time.monotonic() + LONG_ENOUGH
        while wanted not in self.shown:
            assert time.monotonic() < deadline, self.shown[-2000:]
            self._read(0.1)
        return self.shown

    def forget(self) -> None:
        self.shown = b""

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def child(self) -> int:
        """The process `zeus`, below the shell."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as children:  # noqa: PTH123
            return int(children.read().split()[0])

    def finish(self) -> str:
        """Read to the end; what came after the screen was given back."""
        while self._read(LONG_ENOUGH):
            pass
        os.waitpid(self.pid, 0)
        os.close(self.master)
        before, left, after = self.shown.rpartition(LEAVE)
        assert left, self.shown[-2000:]
        assert HIDE_CURSOR not in after
        assert SHOW_CURSOR in before[-40:]
        return after.decode()

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.shown += data
        return bool(data)


def assert_given_back(text: str, code: int) -> None:
    assert f"code {code}\r\n" in text
    assert " icanon" in text  # a terminal that was not given back has -icanon and -echo
    assert " echo " in text
    assert "Traceback" not in text


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"Q", 0), (b"\x03", 0)])
def test_a_key_quits_and_the_terminal_is_as_before(key, code):
    terminal = Terminal(ZEUS_SIMULATE="v100x2")
    shown = terminal.read_until(b"simulated load")
    assert shown.index(ENTER) < shown.index(b"Tesla V100")
    assert b"\x1b[1m" in shown
    assert "█".encode() in shown
    terminal.type(key)
    assert_given_back(terminal.finish(), code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_gives_the_terminal_back(number):
    terminal = Terminal(ZEUS_SIMULATE="v100")
    terminal.read_until(b"Tesla V100")
    os.kill(terminal.child(), number)
    after = terminal.finish()
    assert_given_back(after, 128 + number)
    assert "highest" in after  # the summary


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_the_end_sums_up_energy_and_power(key):
    terminal = Terminal(ZEUS_SIMULATE="v100x2")
    terminal.read_until(b"J in ")
    terminal.type(key)
    after = terminal.finish()
    assert re.search(r"^[\d.]+ m?s of `zeus top`", after, re.MULTILINE), after
    energies = [
        re.search(
            rf"^ *{name} .*? (\d+) J +([\d.e-]+) kWh +(?:\d+ W|-) +(\d+) W", after, re.MULTILINE
        )
        for name in ("0", "1", "all")
    ]
    # Within the first quarter of a second, the mean power may not be known yet.
    joules = [int(found[1]) for found in energies if found]
    assert len(joules) == 3, after
    assert abs(joules[0] + joules[1] - joules[2]) <= 2  # each is rounded
    assert [float(found[2]) for found in energies if found] == pytest.approx(
        [each / 3.6e6 for each in joules], rel=0.1
    )
    assert [found[3] for found in energies if found] == ["250", "250", "500"]


def test_keys_scroll_and_sort_more_gpus_than_lines():
    terminal = Terminal("--sort", "power", columns=80, lines=24, ZEUS_SIMULATE="v100x4,a100x64")
    shown = terminal.read_until(b"by power, 1-")
    assert b"A100" in shown
    assert b"V100" not in shown
    terminal.type(b"\x1b[F")  # End
    terminal.read_until(b"-68 of 68")
    terminal.read_until(b"Tesla V100")
    terminal.type(b"i\x1b[H")
    terminal.read_until(b"by index, 1-")
    terminal.read_until(b">   0  ")
    terminal.type(b"q")
    assert_given_back(terminal.finish(), 0)


def test_graphs_of_other_lengths():
    terminal = Terminal(columns=80, lines=24, ZEUS_SIMULATE="v100x8")
    terminal.read_until(b"highest 250 W")
    terminal.read_until(b"last 2 min")
    terminal.type(b"+")
    terminal.read_until(b"last 5 min")
    terminal.type(b"q")
    assert_given_back(terminal.finish(), 0)


def test_a_signal_that_the_caller_ignores_changes_nothing():
    terminal = Terminal(ZEUS_SIMULATE="v100", ignored="HUP")
    terminal.read_until(b"Tesla V100")
    os.kill(terminal.child(), signal.SIGHUP)
    terminal.forget()
    terminal.read_until(b"Tesla V100")
    terminal.type(b"q")
    assert_given_back(terminal.finish(), 0)


def test_the_view_is_redrawn_in_place():
    terminal = Terminal(ZEUS_SIMULATE="v100")
    terminal.read_until(b"J in ")  # energy shows from the second look on
    terminal.type(b"q")
    terminal.finish()
    assert terminal.shown.count(b"\x1b[2J") == 1  # cleared once, overwritten ever after
    assert terminal.shown.count(b"\x1b[H") >= 2


def test_a_new_size_is_used_at_once():
    terminal = Terminal("--interval", "30", ZEUS_SIMULATE="v100")
    terminal.read_until(b"clock")
    terminal.forget()
    terminal.resize(60, 10)
    # No look is due for half a minute: only the new size can have caused this.
    shown = terminal.read_until(b"limit")
    assert b"clock" not in shown
    terminal.type(b"q")
    assert_given_back(terminal.finish(), 0)


def test_no_colors_if_they_are_not_wanted():
    terminal = Terminal(ZEUS_SIMULATE="v100", NO_COLOR="1")
    terminal.read_until(b"Tesla V100")
    terminal.type(b"q")
    terminal.finish()
    assert not re.search(rb"\x1b\[[1-9][0-9;]*m", terminal.shown)


def test_ascii_where_the_encoding_knows_no_blocks():
    terminal = Terminal(ZEUS_SIMULATE="v100", PYTHONIOENCODING="ascii")
    shown = terminal.read_until(b"Tesla V100")
    terminal.read_until(b"simulated load")
    terminal.type(b"q")
    terminal.finish()
    assert b"##########" in shown
    assert terminal.shown.isascii()


def test_a_dumb_terminal_gets_plain_tables():
    pid, master = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [*ZEUS, "top", "--interval", "0.2"],
            environment(TERM="dumb", ZEUS_SIMULATE="v100"),
        )
    shown = b""
    while shown.count(b"Tesla V100") < 2:
        shown += os.read(master, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(master)
    assert b"\x1b" not in shown


def test_stopping_gives_the_terminal_back_for_a_while():
    terminal = Terminal(ZEUS_SIMULATE="v100")
    terminal.read_until(b"Tesla V100")
    child = terminal.child()
    terminal.forget()
    os.kill(child, signal.SIGTSTP)
    terminal.read_until(LEAVE)
    # Nobody above could wake it (the shell's parent is in another session): it is not stopped.
    os.kill(child, signal.SIGCONT)
    shown = terminal.read_until(ENTER)
    assert shown.index(LEAVE) < shown.index(ENTER)
    terminal.forget()
    terminal.read_until(b"Tesla V100")
    terminal.type(b"q")
    assert_given_back(terminal.finish(), 0)
