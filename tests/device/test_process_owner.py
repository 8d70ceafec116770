"""Owners of processes, from directory trees as the kernel shows them."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest
from tests.device.trees import lock, open_directory, unprivileged

from zeus.device._process_owner import ProcessOwner, owner_of

ID = "3f" * 32
OTHER_ID = "a0" * 32
POD = "74c13223-5a00-11e9-b385-42010a80018d"
POD_IN_SLICE = POD.replace("-", "_")
STATIC_POD = "f2a1" * 8
JOB = "/system.slice/slurmstepd.scope/job_123/step_0/user/task_0"
UNKNOWN_UID = 3_141_592_653


def process(proc: Path, pid: int, *cgroups: str, uid: int | None = 0) -> None:
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    uids = "" if uid is None else f"Uid:\t{uid}\t0\t0\t0\nGid:\t100\t100\t100\t100\n"
    (directory / "status").write_text(f"Name:\tpython\nUmask:\t0022\nPid:\t{pid}\n{uids}")
    (directory / "cgroup").write_text("".join(f"{line}\n" for line in cgroups))


def owner(proc: Path, *cgroups: str) -> ProcessOwner:
    process(proc, 7, *cgroups)
    found = owner_of(7, proc)
    assert found is not None
    return found


def test_plain_user_of_a_unified_hierarchy(tmp_path):
    path = "/user.slice/user-0.slice/session-3.scope"
    assert owner(tmp_path, f"0::{path}") == ProcessOwner(7, 0, "root", path)


def test_user_is_the_real_one_also_without_a_name(tmp_path):
    process(tmp_path, 8, "0::/", uid=UNKNOWN_UID)
    assert owner_of(8, tmp_path) == ProcessOwner(8, UNKNOWN_UID, "", "/")


def test_systemd_hierarchy_names_the_cgroup_on_version_1(tmp_path):
    found = owner(tmp_path, "12:cpuset:/", "3:cpu,cpuacct:/a", "1:name=systemd:/system.slice/x")
    assert found == ProcessOwner(7, 0, "root", "/system.slice/x")


@pytest.mark.parametrize(
    "lines",
    [
        [f"0::{JOB}"],
        ["0::/system.slice/node7_slurmstepd.scope/job_123/step_batch/user/task_special"],
        # Version 1: systemd's own hierarchy knows only the service.
        ["9:memory:/slurm/uid_0/job_123/step_0/task_0", "1:name=systemd:/system.slice/slurmd"],
        ["9:cpuset:/slurm_node7/uid_0/job_123/step_extern", "0::/system.slice/slurmd.service"],
        # Seen from a container with a cgroup namespace of its own.
        ["0::/../../slurmstepd.scope/job_123/step_0/user/task_0"],
    ],
)  # fmt: skip
def test_slurm_jobs(tmp_path, lines):
    found = owner(tmp_path, *lines)
    assert (found.slurm_job, found.pod, found.container) == ("123", "", "")


SLICES = "/kubepods.slice/kubepods-{0}.slice/kubepods-{0}-pod{1}.slice/{2}-{3}.scope"
KIND = (
    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{0}.slice/cri-containerd-{1}.scope"
)


@pytest.mark.parametrize(
    ("path", "pod"),
    [
        # systemd's driver: burstable, besteffort and guaranteed, containerd, cri-o and docker.
        (SLICES.format("burstable", POD_IN_SLICE, "cri-containerd", ID), POD),
        (SLICES.format("besteffort", POD_IN_SLICE, "crio", ID), POD),
        (f"/kubepods.slice/kubepods-pod{STATIC_POD}.slice/docker-{ID}.scope", STATIC_POD),
        (KIND.format(POD_IN_SLICE, ID), POD),
        # cgroupfs.
        (f"/kubepods/burstable/pod{POD}/{ID}", POD),
        (f"/kubepods/besteffort/pod{POD}/{ID}", POD),
        (f"/kubepods/pod{STATIC_POD}/{ID}", STATIC_POD),
        # Both at once.
        (f"/system.slice/x.service/kubepods-pod{POD_IN_SLICE}.slice:cri-containerd:{ID}", POD),
        # From inside another pod.
        (f"/../../kubepods-burstable-pod{POD_IN_SLICE}.slice/cri-containerd-{ID}.scope", POD),
        (f"/../../pod{POD}/{ID}", POD),
    ],
)
@pytest.mark.parametrize("hierarchy", ["0::", "11:devices:"])
def test_kubernetes_pods(tmp_path, hierarchy, path, pod):
    found = owner(tmp_path, hierarchy + path)
    assert (found.slurm_job, found.pod, found.container) == ("", pod, ID)
    assert found.cgroup == path


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{ID}",
        f"/system.slice/docker-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope/container",
        f"/system.slice/train.service/libpod-payload-{ID}",
        f"/libpod_parent/libpod-{ID}",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        f"/system.slice/nerdctl-{ID}.scope",
    ],
)
def test_containers_of_docker_and_podman(tmp_path, path):
    found = owner(tmp_path, f"0::{path}")
    assert (found.slurm_job, found.pod, found.container) == ("", "", ID)


@pytest.mark.parametrize(
    "path",
    [
        # What users may create below their own manager, and containers below themselves.
        "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_123/step_0",
        "/user.slice/user-1000.slice/user@1000.service/slurm/uid_1000/job_123/step_0",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{POD}",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods-pod{POD_IN_SLICE}.slice",
        f"/user@1000.service/kubepods-pod{POD_IN_SLICE}.slice:cri-containerd:{ID}",
        f"/docker/{ID}/system.slice/slurmstepd.scope/job_123/step_0",
        f"/docker/{ID}/kubepods/burstable/pod{POD}/{OTHER_ID}",
        # Names that only resemble.
        "/system.slice/job_123/step_0",
        "/slurm/job_123",
        "/system.slice/slurmstepd.scope/job_12x",
        "/system.slice/slurmstepd.scope.d/job_123",
        f"/system.slice/pod{POD}",
        f"/system.slice/crio-conmon-{ID}.scope",
    ],
)
def test_names_that_prove_nothing(tmp_path, path):
    found = owner(tmp_path, f"0::{path}")
    assert (found.slurm_job, found.pod) == ("", "")
    assert found.container != OTHER_ID


def test_processes_that_are_gone(tmp_path):
    assert owner_of(7, tmp_path) is None
    assert owner_of(0, tmp_path) is None
    assert owner_of(-1, tmp_path) is None
    (tmp_path / "8").mkdir()  # it ended after its directory was opened
    assert owner_of(8, tmp_path) is None
    child = subprocess.Popen(["true"])
    child.wait()
    assert owner_of(child.pid) is None


def test_files_in_no_known_form_are_unknown(tmp_path):
    process(tmp_path, 9, "", "nothing", uid=None)
    assert owner_of(9, tmp_path) == ProcessOwner(9)


def test_bytes_that_are_no_text(tmp_path):
    process(tmp_path, 9, "0::/x")
    (tmp_path / "9/cgroup").write_bytes(b"0::/\xff\xfe\n")
    found = owner_of(9, tmp_path)
    assert found is not None
    assert os.fsencode(found.cgroup) == b"/\xff\xfe"


def test_a_path_with_colons(tmp_path):
    assert owner(tmp_path, "0::/system.slice/a:b:c").cgroup == "/system.slice/a:b:c"


@pytest.mark.parametrize(
    ("unreadable", "rest"),
    [
        ("status", ProcessOwner(7, cgroup=JOB, slurm_job="123")),
        ("cgroup", ProcessOwner(7, 0, "root")),
        (".", ProcessOwner(7)),
    ],
)
def test_what_may_not_be_read_is_unknown(unreadable, rest):
    with open_directory() as proc:
        process(proc, 7, f"0::{JOB}")
        lock(proc / "7" / unreadable)
        with unprivileged():
            assert owner_of(7, proc) == rest
        (proc / "7" / unreadable).chmod(0o700)


def test_this_process():
    found = owner_of(os.getpid())
    assert found is not None
    assert (found.pid, found.uid) == (os.getpid(), os.getuid())
    assert found.user == pwd.getpwuid(os.getuid()).pw_name
    assert found.cgroup.startswith("/")
