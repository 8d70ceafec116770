"""A server in a process of its own, for examples and test suites."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(folder: str | Path) -> Iterator[str]:
    """Run `zeus serve` on a free port while the block lasts; yield its address.

    Args:
        folder: Where its database is.

    Raises:
        RuntimeError: If the server does not start; it has said why on stderr.
    """
    command = [sys.executable, "-m", "zeus", "serve", "--listen", "0"]
    storage = ["--storage", f"sqlite:///{folder}/zeus.db"]
    with subprocess.Popen([*command, *storage], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = next((line for line in server.stdout if "serving on" in line), "")
            if not line:
                raise RuntimeError(f"`zeus serve` must start, but has not in {folder}")
            yield line.split("serving on ")[1].split()[0]
        finally:
            server.terminate()
