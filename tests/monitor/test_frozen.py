"""A program whose `sys.executable` is no Python, because it was frozen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
with open(os.environ["STARTED"], "a") as started:
    started.write(f"{os.getpid()}\\n")
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor()
monitor.begin_window("w")
time.sleep(2.0)
measurement = monitor.end_window("w")
print(sys.frozen, sorted(measurement.gpu_energy), measurement.total_energy > 0)
"""


# What the front door names, or somebody there would use; looking through it takes a minute.
UNUSED = (
    *("alembic", "matplotlib", "numpy", "PIL", "psycopg"),
    *("rich", "setuptools", "sqlalchemy", "torch"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_frozen_program_is_started_once(tmp_path: Path) -> None:
    """Built by PyInstaller, as users do."""
    source = tmp_path / "program.py"
    source.write_text(PROGRAM)
    subprocess.run(
        [
            sys.executable, "-m", "PyInstaller", "--onedir", "--noconfirm", "--log-level=ERROR",
            "--collect-submodules=zeus.device", "--collect-submodules=zeus.monitor",
            *(f"--exclude-module={name}" for name in UNUSED),
            f"--distpath={tmp_path / 'dist'}", f"--workpath={tmp_path / 'build'}",
            f"--specpath={tmp_path}", str(source),
        ],
        check=True,
        timeout=600,
        env={**os.environ, "PYINSTALLER_CONFIG_DIR": str(tmp_path / "config")},
    )  # fmt: skip
    started = tmp_path / "started"
    done = subprocess.run(
        [tmp_path / "dist" / "program" / "program"],
        env={**os.environ, "ZEUS_SIMULATE": "v100x2", "STARTED": str(started)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True [0, 1] True\n"
    assert len(started.read_text().splitlines()) == 1
