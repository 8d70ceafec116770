"""A real Prometheus for the tests: a server of their own, on a port and in a folder of its own.

`python -m tests.prometheus` tells which program would be used. It comes from Debian's package
`prometheus` (`make prometheus`); `ZEUS_PROMETHEUS` names another directory that has it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_DEADLINE = 240.0  # seconds


def programs() -> Path | None:
    """The directory that has `prometheus` and `promtool`."""
    on_path = shutil.which("prometheus")
    found = [os.environ.get("ZEUS_PROMETHEUS"), on_path and str(Path(on_path).parent)]
    return next((Path(folder) for folder in found if folder and _has_all(Path(folder))), None)


def _has_all(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("prometheus", "promtool"))


class Prometheus:
    """A server, from `start` to `stop`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def promtool(self, *arguments: str | Path, stdin: str | None = None) -> None:
        """Run the tool of Prometheus that checks and converts; fails if it does."""
        command = [str(self._binaries / "promtool"), *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def backfill(self, openmetrics: str) -> None:
        """Add samples of the past, in the OpenMetrics format with timestamps."""
        file = self._folder / "past.om"
        file.write_text(openmetrics, encoding="utf-8")
        self.promtool("tsdb", "create-blocks-from", "openmetrics", file, self._folder / "data")

    def start(self, targets: Sequence[str] = ()) -> None:
        """Start the server, which scrapes the targets every second."""
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "zeus", "static_configs": [{"targets": [*targets]}]}],
        }
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(settings))  # which is YAML, too
        self.promtool("check", "config", config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={address}",
                    "--storage.tsdb.retention.time=1y",
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (it makes one system call)
            )
        self.wait_for(self._ready)

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"{self.url}/-/ready", timeout=10).status == 200)
        return False

    def wait_for(self, happened: Callable[[], object]) -> None:
        """Wait until something has happened; fails if the server ends before."""
        deadline = time.monotonic() + _DEADLINE
        assert self._process is not None
        while not happened():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "server.log").read_text(errors="replace").strip()[-1000:]
                raise RuntimeError(f"Prometheus does not do as expected: {said}")
            time.sleep(0.05)

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the series of an expression at an instant."""
        return self._ask("query", query=expression, **({} if at is None else {"time": at}))

    def query_range(
        self, expression: str, begin: float, end: float, step: float = 15.0
    ) -> list[dict[str, Any]]:
        """Return the series of an expression over a range of time."""
        return self._ask("query_range", query=expression, start=begin, end=end, step=step)

    def _ask(self, what: str, **values: object) -> list[dict[str, Any]]:
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{values['query']}: {error.read().decode()}") from None

    def stop(self) -> None:
        """Stop the server."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _die_with_parent() -> None:
    # A test run that is killed must not leave a server behind.
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


@pytest.fixture
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A server that is not started yet; tests are skipped without, but not in a build."""
    binaries = programs()
    if binaries is None:
        why = "Prometheus is not installed; `make prometheus` gets it"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    server = Prometheus(binaries, tmp_path_factory.mktemp("prometheus"))
    yield server
    server.stop()


if __name__ == "__main__":
    print(programs() or "Prometheus is not installed")
    sys.exit(programs() is None)
