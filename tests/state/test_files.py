"""Files that outlive a process: where they are, how they are replaced, and whose they are."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from zeus.device._records import recorded_gpus
from zeus.state._files import boot_id, process_start, state_directory, write_atomically


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_processes_are_known_by_when_they_started() -> None:
    assert process_start(os.getpid()) == process_start(os.getpid())
    assert process_start(os.getpid()) is not None
    assert process_start(2**22 + 1) is None
    assert boot_id() == boot_id() != ""


def test_a_process_that_ended_unnoticed_is_gone() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    started = process_start(process.pid)
    assert started
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert process_start(process.pid) is None
    process.communicate()


def test_a_process_with_an_odd_name_is_found() -> None:
    name = "a) S 1 ("
    code = (
        "import ctypes; ctypes.CDLL(None).prctl(15, b'" + name + "', 0, 0, 0); print('', flush=1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code + "; input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    before = process_start(process.pid)
    process.stdout.readline()
    assert process_start(process.pid) == before
    process.communicate("\n")


# --- Where it is kept -----------------------------------------------------------------------------


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("ZEUS_STATE_DIR")
    monkeypatch.setattr("zeus.device._record_places.SHARED_PLACES", ())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path


def test_state_is_kept_in_the_users_directory(unset: Path) -> None:
    assert state_directory() == unset / "home" / "zeus"
    assert stat.S_IMODE(state_directory().stat().st_mode) == 0o700


def test_accounts_without_a_home_have_a_directory_of_their_own(unset: Path) -> None:
    (unset / "home").write_text("no directory")
    own = unset / "temporary" / f"zeus-{os.getuid()}"
    assert state_directory() == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_a_directory_that_others_can_write_is_not_trusted(unset: Path) -> None:
    # Whoever writes a record decides what a privileged process sets later.
    (unset / "home").write_text("no directory")
    trap = unset / "temporary" / f"zeus-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    with pytest.raises(PermissionError, match="ZEUS_STATE_DIR"):
        state_directory()
    trap.rmdir()
    (unset / "elsewhere").mkdir()
    trap.symlink_to(unset / "elsewhere")
    with pytest.raises(PermissionError, match="ZEUS_STATE_DIR"):
        state_directory()
    assert recorded_gpus() == set()
