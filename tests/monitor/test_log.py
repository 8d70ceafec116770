"""The log of windows, written and read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from zeus.errors import LogFileError
from zeus.monitor import ZeusMonitor
from zeus.monitor._log import LoggedWindow, WindowLog, read_log
from zeus.testing import SimulatedNode


def test_recorded_logs_are_read(traces):
    files = sorted((traces / "profiles").glob("*.csv"))
    assert files
    for path in files:
        rows = read_log(path)
        assert len(rows) == 9
        assert all(row.elapsed_time > 0 for row in rows)
        gpus = 4 if "gpu0,1,2,3" in path.name else 1
        assert all(len(row.gpu_energy) == gpus for row in rows)


def test_what_is_written_is_what_was_measured(tmp_path):
    path = tmp_path / "deep" / "log.csv"
    with SimulatedNode("v100x2", load=0.5) as node:
        monitor = ZeusMonitor(log_file=path)
        measured = []
        for name in ("plain", 'with, comma and "quotes"', "new\nline"):
            monitor.begin_window(name)
            node.sleep(1.5)
            measured.append((name, monitor.end_window(name)))
        monitor.close()
        rows = read_log(path)
    header = path.read_text().splitlines()[0]
    assert header == "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy"
    assert [(row.name, row.elapsed_time, row.gpu_energy) for row in rows] == [
        (name, m.time, m.gpu_energy) for name, m in measured
    ]


def test_a_log_is_continued_not_overwritten(tmp_path):
    path = tmp_path / "log.csv"
    for name in ("first", "second"):
        log = WindowLog(path, [0])
        log.write(LoggedWindow(1.0, name, 2.0, {0: 3.0}))
        log.close()
    assert [row.name for row in read_log(path)] == ["first", "second"]
    with pytest.raises(LogFileError, match="choose another log_file"):
        WindowLog(path, [0, 1])
    other = tmp_path / "notes.txt"
    other.write_text("dear diary\n")
    with pytest.raises(ValueError, match="dear diary"):
        WindowLog(other, [0])
    assert other.read_text() == "dear diary\n"


def test_an_unknown_energy_is_empty_not_zero(tmp_path):
    path = tmp_path / "log.csv"
    log = WindowLog(path, [0, 1])
    log.write(LoggedWindow(1.0, "w", 2.0, {0: 3.0, 1: None}))
    log.close()
    assert path.read_text().splitlines()[1] == "1.0,w,2.0,3.0,"
    assert read_log(path)[0].gpu_energy == {0: 3.0, 1: None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1"),
        ("a,b,c\n", "line 1"),
        ("start_time,window_name,elapsed_time,gpu0_power\n", "line 1"),
        ("start_time,window_name,elapsed_time,gpu0_energy\n1,w,x,2\n", "line 2.*'x'"),
        ("start_time,window_name,elapsed_time,gpu0_energy\n1,w,2,3\n1,w,2\n", "line 3: .*4 fields"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(LogFileError, match=f"log.csv, {message}"):
        read_log(path)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(LogFileError, match="there is no log"):
        read_log(tmp_path / "none.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LogFileError, match="not text"):
        read_log(tmp_path / "binary")


def test_a_forked_child_does_not_write_the_rows_of_its_parent_again(tmp_path):
    """They are written when they are final, or at exit, by whoever began the windows."""
    path = tmp_path / "log.csv"
    program = f"""
import os, sys
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(log_file={str(path)!r})
monitor.begin_window("w")
monitor.end_window("w")
if os.fork() == 0:
    sys.exit()
os.wait()
"""
    environment = {**os.environ, "ZEUS_SIMULATE": "v100", "ZEUS_STATE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
    assert [row.name for row in read_log(path)] == ["w"]
