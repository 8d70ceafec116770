"""The document on pipelines is true: its example runs, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "pipelines.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_example_runs_as_it_is():
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    saved, gap = (float(number) for number in re.findall(r"([\d.]+) %", done.stdout)[:2])
    assert 5 < saved < 50
    assert 0 <= gap < 1
    assert "MHz" in done.stdout


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (DOCUMENT.parent / target).exists(), target


def test_it_names_sources_that_exist():
    folder = DOCUMENT.parents[1] / "src" / "zeus" / "optimizer" / "pipeline_frequency" / "c"
    for name in re.findall(r"`(\w+\.c)`", TEXT):
        assert (folder / name).exists(), name
