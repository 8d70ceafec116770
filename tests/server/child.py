"""Servers in processes of their own, as users run them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

from zeus.optimizer.batch_size.remote import RemoteJobs

_SERVE = [sys.executable, "-m", "zeus", "serve"]


class Server:
    """`zeus serve` on a free port, from the moment it says that it is ready."""

    def __init__(self, storage: str, *options: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [*_SERVE, "--storage", storage, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self.greeting = self.process.stdout.readline()
        found = re.search(r"serving on (http://(\S+):(\d+)) ", self.greeting)
        if found is None:
            raise RuntimeError(f"no server: {self.greeting}{self.stop()}")
        self.url, self.host, self.port = found[1], found[2], int(found[3])

    def jobs(self, token: str | None = None, timeout: float = 60.0) -> RemoteJobs:
        """A client."""
        return RemoteJobs(self.url, token, timeout)

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


@contextlib.contextmanager
def serving(storage: str, *options: str, complaints: bool = False) -> Iterator[Server]:
    """A server that must end well and, unless `complaints`, have said nothing."""
    server = Server(storage, *options)
    try:
        yield server
    finally:
        said = server.stop()
    assert server.process.returncode == 0, said
    assert complaints or said == ""
