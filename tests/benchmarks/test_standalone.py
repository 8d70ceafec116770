"""Benchmarks that are run by themselves start, as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path.name
    for path in (ROOT / "benchmarks").glob("*.py")
    if "argparse" in (text := path.read_text()) and f"python benchmarks/{path.name}" in text
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_shows_its_help(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
