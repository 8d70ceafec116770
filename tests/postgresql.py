"""A real PostgreSQL for the tests: a server of their own, on a socket in a temporary directory.

`python -m tests.postgresql` tells which programs would be used. They come from Debian's package
`postgresql` (`make postgresql`); `ZEUS_POSTGRESQL` names another directory that has them.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def programs() -> Path | None:
    """The directory that has `initdb` and `postgres`."""
    found = [os.environ.get("ZEUS_POSTGRESQL")]
    # The real ones: what lies on the path may be a link that does not find its shared files.
    on_path = shutil.which("initdb")
    found.append(on_path and str(Path(on_path).resolve().parent))
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found += [str(path.parent) for path in sorted(versions, reverse=True)]
    return next((Path(folder) for folder in found if folder and _has_all(Path(folder))), None)


def _has_all(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


class PostgreSQL:
    """A server, from `start` to `stop`."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self._process = process
        self._numbers = itertools.count()

    @classmethod
    def start(cls) -> PostgreSQL:
        """Start a server on an empty database.

        Raises:
            RuntimeError: If it cannot be had here; says why.
        """
        binaries = programs()
        if binaries is None:
            raise RuntimeError("PostgreSQL is not installed; `make postgresql` gets it")
        # Not pytest's directories: the server refuses to be root, and they are root's own.
        folder = Path(tempfile.mkdtemp(prefix="zeus-pg-"))
        account = _account()
        if account:
            shutil.chown(folder, **account)
        try:
            return cls(folder, _started(binaries, folder, account))
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        """How to reach it."""
        return f"postgresql://zeus@/postgres?host={self._folder}"

    def new_storage(self) -> str:
        """Make room for tables that nobody else sees; its URL."""
        import psycopg  # the tests of everything else run without

        # A schema of its own: a database of its own takes half a second to make.
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def stop(self) -> None:
        """Stop it, whoever is still connected."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _account() -> dict[str, Any]:
    """Whom to run it as, if this process is root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid}
    raise RuntimeError("PostgreSQL does not run as root, and there is no account `nobody`")


def _started(binaries: Path, folder: Path, account: dict[str, Any]) -> subprocess.Popen[bytes]:
    data = folder / "data"
    options: dict[str, Any] = {**account, "cwd": folder, "env": {"LC_ALL": "C.UTF-8"}}
    if account:
        options["extra_groups"] = []
    make: list[str | Path] = [binaries / "initdb", "-D", data, "-U", "zeus", "-A", "trust"]
    make += ["-E", "UTF8", "--no-sync", "--no-instructions"]
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        make, capture_output=True, check=False, **options
    )
    if done.returncode:
        raise RuntimeError(f"initdb fails: {done.stderr.decode(errors='replace').strip()[-500:]}")
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        # The machine will not lose power during a test; what is tested is the client.
        "fsync": "off",
        "max_connections": "100",
        "shared_buffers": "32MB",
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [binaries / "postgres", "-D", data, *words],
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (it makes one system call)
            **options,
        )
    _await(process, folder)
    return process


def _die_with_parent() -> None:
    # A test run that is killed must not leave a server behind.
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGQUIT)


def _await(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        # It writes this word once it takes connections.
        with contextlib.suppress(OSError):
            if "ready" in (folder / "data" / "postmaster.pid").read_text():
                return
        time.sleep(0.02)
    process.kill()
    process.wait()
    said = (folder / "server.log").read_text(errors="replace").strip()[-500:]
    raise RuntimeError(f"PostgreSQL does not start: {said}")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server for all tests of this process; they are skipped without, but not in a build."""
    pytest.importorskip("psycopg")
    try:
        server = PostgreSQL.start()
    except (RuntimeError, OSError) as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Make empty storage of each kind: call to get its URL."""
    if request.param == "sqlite":
        numbers = itertools.count()
        return lambda: f"sqlite:///{tmp_path}/jobs-{next(numbers)}.db"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.new_storage


@pytest.fixture
def storage(new_storage: Callable[[], str]) -> str:
    """URL of empty storage, of each kind in turn."""
    return new_storage()


if __name__ == "__main__":
    print(programs() or "PostgreSQL is not installed")
    sys.exit(programs() is None)
