"""A real Slurm of one node for the tests: controller, node and munge of their own, as root.

`python -m tests.slurm` prints whether the programs are here. They come from Debian's package
`slurm-wlm` (`make slurm`). All files are in a temporary directory; only control groups are not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

_PROGRAMS = ("slurmctld", "slurmd", "srun", "scancel", "squeue", "scontrol", "munged", "setpriv")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_FREEZER = Path("/sys/fs/cgroup/freezer")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_DEADLINE = 120.0  # seconds
GPUS = 4


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)}); `make slurm` gets it"
    return "" if os.geteuid() == 0 else "only root can run Slurm's daemons for several users"


class SlurmNode:
    """A cluster of one node with four GPUs, from `start` to `stop`.

    Attributes:
        folder: Its directory, which all users may read.
        cgroups: Whether jobs have control groups; else processes are followed by their parents.
    """

    def __init__(self, prolog: str, epilog: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zeus-slurm-"))
        self.folder.chmod(0o755)
        self.cgroups = os.access(_FREEZER, os.W_OK)
        # Also the name of its control groups: several test runs can have one each.
        self._name = f"zeus{os.getpid()}"
        self._daemons: list[subprocess.Popen[bytes]] = []
        for name, text in (("prolog.sh", prolog), ("epilog.sh", epilog)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        self.environment = {"PATH": _PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start it, and wait until it takes jobs.

        Raises:
            RuntimeError: If it does not; says why.
        """
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir()
        self._configure()
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{name}={self.folder}/munge/{file}" for name, file in files.items()]
        self._spawn("munged", "--foreground", "--force", *options)
        self._await((self.folder / "munge" / "socket").exists, "munged")
        settings = ("-D", "-c", "-f", str(self.folder / "slurm.conf"))
        self._spawn("slurmctld", *settings)
        self._spawn("slurmd", "-N", self._name, *settings)
        self._await(lambda: "State=IDLE" in self.command("scontrol", "show", "node"), "the node")

    def _configure(self) -> None:
        for number in range(GPUS):  # which Slurm only wants to be devices: these are all /dev/null
            os.mknod(self.folder / f"gpu{number}", 0o20666, os.makedev(1, 3))
        host = socket.gethostname().split(".")[0]
        controller, node = _free_ports(2)
        settings = {
            "ClusterName": "zeus",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": controller,
            "SlurmdPort": node,
            "AuthInfo": f"socket={self.folder}/munge/socket",
            "SlurmUser": "root",
            "StateSaveLocation": f"{self.folder}/state",
            "SlurmdSpoolDir": f"{self.folder}/spool",
            "SlurmctldPidFile": f"{self.folder}/slurmctld.pid",
            "SlurmdPidFile": f"{self.folder}/slurmd.pid",
            "ProctrackType": "proctrack/cgroup" if self.cgroups else "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "PrologFlags": "Alloc",
            "Prolog": f"{self.folder}/prolog.sh",
            "Epilog": f"{self.folder}/epilog.sh",
            "KillWait": 2,
            "SlurmdParameters": "config_overrides",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines.append(
            f"NodeName={self._name} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=500 "
            f"Gres=gpu:{GPUS}"
        )
        lines.append(f"PartitionName=main Nodes={self._name} Default=YES State=UP")
        self._write("slurm.conf", lines)
        self._write("gres.conf", [f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]"])
        self._write("cgroup.conf", ["CgroupPlugin=cgroup/v1", "CgroupMountpoint=/sys/fs/cgroup"])

    def _write(self, name: str, lines: Sequence[str]) -> None:
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def _spawn(self, name: str, *options: str) -> None:
        program = shutil.which(name, path=_PATH)
        assert program is not None
        with (self.folder / f"{name}.log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    [program, *options],
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    cwd=self.folder,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509  (it makes one system call)
                )
            )

    def _await(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            if happened():
                return
            if any(daemon.poll() is not None for daemon in self._daemons):
                break
            time.sleep(0.1)
        raise RuntimeError(f"{what} of Slurm does not start: {self.logs()[-2000:]}")

    def logs(self) -> str:
        """Return what the daemons have logged."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace').strip()}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def command(self, *words: str) -> str:
        """Run one of Slurm's commands as root; returns its output."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout

    def launch(
        self, uid: int, *command: str, gpus: int = 1, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a job of a user; its output is the process's."""
        return subprocess.Popen(
            [*become(uid), "srun", "--quiet", "-n1", f"--gres=gpu:{gpus}", *command],
            env={**self.environment, **variables},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        """End all jobs and the daemons, and remove what they left."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.command("scancel", "--signal=KILL", "--state=RUNNING")
            deadline = time.monotonic() + 30
            while self.command("squeue", "--noheader") and time.monotonic() < deadline:
                time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        left = sorted(_FREEZER.glob(f"slurm_{self._name}/**/"), reverse=True)
        for directory in left:
            with contextlib.suppress(OSError):
                directory.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)


def become(uid: int) -> list[str]:
    """The beginning of a command that another user is to run."""
    # It keeps capabilities up to its own exec: `env` is executed with them, but what follows not.
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env"]


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(number)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _die_with_parent() -> None:
    # A test run that is killed must not leave daemons behind.
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


@contextlib.contextmanager
def running(prolog: str, epilog: str) -> Iterator[SlurmNode]:
    """Run a node; the test is skipped where that is not possible."""
    if why := missing():
        pytest.skip(why)
    node = SlurmNode(prolog, epilog)
    try:
        node.start()
        yield node
    finally:
        node.stop()


if __name__ == "__main__":
    print(missing() or "Slurm can be run here")
    sys.exit(bool(missing()))
