"""Labels of owners: those of processes that are the user's own, in this namespace."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from zeus.state._files import process_namespace
from zeus.telemetry._owners import Owner, owner_in

PID = 4321
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Processes as the kernel shows them on a node with Slurm."""
    (tmp_path / f"{PID}").mkdir()
    uids = "\t".join([f"{os.getuid()}"] * 4)
    (tmp_path / f"{PID}" / "status").write_text(f"Name:\tpython\nUid:\t{uids}\n")
    cgroup = "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n"
    (tmp_path / f"{PID}" / "cgroup").write_text(cgroup)
    return tmp_path


def test_a_process_of_the_user_has_all_labels(proc):
    owner = owner_in(process_namespace(), PID, "1", os.getuid(), proc)
    assert owner == Owner(ME, slurm_job="123")
    assert owner.labels == (ME, "123", "")


def test_a_file_that_names_a_process_of_another_user_gets_no_job(proc):
    assert owner_in(process_namespace(), PID, "1", 4_242_424, proc) == Owner("4242424")


def test_a_number_of_another_namespace_means_nothing_here(proc):
    assert owner_in("pid:[1]", PID, "1", os.getuid(), proc) == Owner(ME)


def test_a_process_that_is_gone_has_a_user(proc):
    assert owner_in(process_namespace(), PID + 1, "1", os.getuid(), proc) == Owner(ME)
