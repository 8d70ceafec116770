"""Servers in processes of their own, as users run them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from zeus.optimizer.batch_size.api._remote import RemoteJobs

_SERVE = [sys.executable, "-m", "zeus", "serve"]


class Server:
    """`zeus serve` on a free port, from the moment it says that it is ready.

    Attributes:
        token: The one that it has made for its user; `None` if it has not. Clients find it by
            themselves in a test that has the same state directory, as one has that starts it.
    """

    def __init__(
        self, storage: str, *options: str, port: int = 0, command: Sequence[str] = _SERVE
    ) -> None:
        state = _state()
        self.process = subprocess.Popen(
            [*command, "--storage", storage, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error", "ZEUS_STATE_DIR": state},
        )
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()
        found = re.search(r"serving on (http://(\S+):(\d+)) ", self.greeting)
        if found is None:
            raise RuntimeError(f"no server: {self.greeting}{self.stop()}")
        self.url, self.host, self.port = found[1], found[2], int(found[3])
        made = "tokens required" in self.greeting and "--host" not in options
        self.token = (Path(state) / "server-token").read_text().strip() if made else None
        self.bearer = {"Authorization": f"Bearer {self.token}"} if made else {}

    def jobs(self, token: str | None = None, timeout: float = 60.0) -> RemoteJobs:
        """A client; by default of the user who has started it."""
        return RemoteJobs(self.url, token or self.token, timeout)

    def share_token(self) -> None:
        """Let this test's clients find the token, as if they had the server's state directory."""
        path = Path(os.environ["ZEUS_STATE_DIR"]) / "server-token"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text(f"{self.token}\n")

    def stop(self, number: int = signal.SIGTERM) -> str:
        """End it by a signal; what it said on stderr."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        try:
            _, said = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, said = self.process.communicate()
            said += "\n(it did not end by itself)"
        return said


@cache
def _scratch() -> str:
    return tempfile.mkdtemp(prefix="zeus-state-")


def _state() -> str:
    """Never that of whoever runs this outside of the tests."""
    return os.environ.get("ZEUS_STATE_DIR") or _scratch()


@contextlib.contextmanager
def serving(
    storage: str, *options: str, complaints: bool = False, command: Sequence[str] = _SERVE
) -> Iterator[Server]:
    """A server that must end well and, unless `complaints`, have said nothing."""
    server = Server(storage, *options, command=command)
    try:
        yield server
    finally:
        said = server.stop()
    assert server.process.returncode == 0, said
    assert complaints or said == ""
