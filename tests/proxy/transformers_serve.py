"""`transformers serve`, unmodified, with the models of `tests.proxy.language_models`."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.proxy.processes import wait_for

# Without a cache there is nothing to look for in it, and nothing is downloaded.
_ALONE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture(scope="session")
def language_models(tmp_path_factory):
    """The folder with the trained models; trained once, however many processes run the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "language-models"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "trained").exists():
            command = [sys.executable, "-m", "tests.proxy.language_models", str(folder)]
            subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2])
            (folder / "trained").touch()
    return folder


class TransformersServe:
    """The server on a free port, from the moment it is ready.

    Args:
        models: Folder with the models; their names are those of the folders in it.
        options: Further options of the command.
    """

    def __init__(self, models: Path, *options: str) -> None:
        program = Path(sys.executable).with_name("transformers")
        words = ("serve", "--host", "127.0.0.1", "--port", "0", "--device", "cpu", *options)
        self._log = (models / f"log-{os.getpid()}-{len(options)}").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(program), *words],
            cwd=models,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_ALONE, "HF_HOME": str(models / "cache")},
        )
        try:
            found = wait_for(lambda: re.search(r"running on (http://\S+:(\d+))", self.said()))
        except BaseException:
            self.stop()
            raise
        self.url, self.port = found[1], int(found[2])

    def said(self) -> str:
        """What it wrote so far."""
        if self.process.poll() is not None:
            raise RuntimeError(f"no server: {Path(self._log.name).read_text()}")
        return Path(self._log.name).read_text()

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def __enter__(self) -> TransformersServe:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
