"""The documents are true: every README block runs, every file they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def _run(block, machine):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        capture_output=True,
        text=True,
        env={**os.environ, "ZEUS_SIMULATE": machine},
        check=False,
        timeout=120,
    )


BLOCKS = _blocks("README.md")


def test_there_are_two_examples():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["measure", "optimize"])
@pytest.mark.parametrize("machine", ["", "v100x2"], ids=["without GPUs", "simulated"])
def test_readme_examples_run_as_they_are(block, machine):
    done = _run(block, machine)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("block", _blocks("docs/optimizing.md"), ids=["limit", "loader", "hold"])
def test_optimizing_examples_run_as_they_are(block):
    done = _run(block, "v100")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_links_lead_somewhere(name):
    path = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_architecture_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = {path.name for path in (ROOT / "src").rglob("*.py")}
    for name in re.findall(r"`(\w+\.py)`", text):
        assert name in source, name


def test_readme_is_short():
    assert len(README.split()) < 800
