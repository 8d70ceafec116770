"""Locks between processes: held for a block, for no longer, and not waited for without end."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from zeus.state._locks import LockTimeoutError, locked, signs_of_life


def test_a_lock_ends_with_its_block_even_if_a_child_was_forked_inside(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(ready, 1)  # lives on, with a copy of the open file
            os._exit(0)
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(tell)
        os.close(ready)
        os.waitpid(child, 0)


def test_a_lock_keeps_others_out_until_its_end(tmp_path: Path) -> None:
    log: list[str] = []

    def second() -> None:
        with locked(tmp_path / "lock"):
            log.append("second")

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.05)
        log.append("first")
    thread.join(30)
    assert log == ["first", "second"]


def test_a_lock_that_is_not_free_in_time_is_an_error_that_names_its_holder(tmp_path: Path) -> None:
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "lock"):
            os.write(tell, b".")
            signal.pause()
        os._exit(0)
    os.read(ready, 1)
    try:
        with (
            pytest.raises(LockTimeoutError, match=f"by process {child}"),
            locked(tmp_path / "lock"),
        ):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
    with locked(tmp_path / "lock"):
        pass


def test_members_of_a_group_are_seen_by_others_as_long_as_they_live(tmp_path: Path) -> None:
    path = tmp_path / "group"
    signs_of_life.join(path, 0)
    signs_of_life.join(path, 1)
    assert not signs_of_life.others_joined(path, 0)  # only this process has joined
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        seen = signs_of_life.others_joined(path, 0)  # the parent, whose locks are not its own
        signs_of_life.join(path, 1)
        os.write(tell, b"y" if seen else b"n")
        signal.pause()
    try:
        assert os.read(ready, 1) == b"y"
        assert not signs_of_life.others_joined(path, 0)
        assert signs_of_life.others_joined(path, 1)
        signs_of_life.leave(path, 1)
        assert signs_of_life.others_joined(path, 1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
    assert not signs_of_life.others_joined(path, 1)


def test_a_group_whose_file_was_deleted_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "group"
    signs_of_life.join(path, 0)
    path.unlink()
    signs_of_life.join(path, 0)
    child = os.fork()
    if child == 0:
        os._exit(signs_of_life.others_joined(path, 0))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
