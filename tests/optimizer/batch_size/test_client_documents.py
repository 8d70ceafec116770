"""What docs/recurring-client.md shows and names is true."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.optimizer.batch_size.clients import trials

from zeus.optimizer.batch_size.job_file import JobFile

PAGE = Path(__file__).parents[3] / "docs" / "recurring-client.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_example_runs_as_it_is(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("target reached 64 Point(knob=")
    (trial,) = trials(f"sqlite:///{tmp_path}/jobs.db", "nightly-resnet")
    assert (trial.state, trial.epochs) == ("converged", 3)


def test_the_job_can_be_read(tmp_path):
    (block,) = re.findall(r"\n(    name = (?:.*\n)+?)\n", TEXT)
    assert tomllib.loads(block)
    (tmp_path / "JOB.toml").write_text(block)
    assert JobFile.read(tmp_path / "JOB.toml").storage == "sqlite:///jobs.db"


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (PAGE.parent / target).exists(), target
