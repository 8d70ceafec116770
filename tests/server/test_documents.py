"""What docs/recurring.md shows, lists and names is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.optimizer.batch_size.clients import trials
from tests.server.test_openapi import ROUTES

from zeus.optimizer.batch_size.job._job_file import JobFile

PAGE = Path(__file__).parents[2] / "docs" / "recurring.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_examples_run_as_they_are(tmp_path):
    # One after the other, in one process: the jobs of both are kept in the same store.
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    script, measured, decided, shares, service = done.stdout.splitlines()
    assert re.fullmatch(r"converged 64 \d+ W", script)
    costs = ast.literal_eval(measured)
    assert list(costs) == [64, 32, 128, 256]
    assert costs[256] is None
    assert int(decided) in (32, 64, 128)
    assert shares == "128 = 32 x 4 x 1"
    assert service == "converged the target was reached in epoch 4"
    for name, epochs in (("nightly-resnet", 3), ("nightly-bert", 4)):
        (trial,) = trials(f"sqlite:///{tmp_path}/jobs.db", name)
        assert (trial.state, trial.epochs) == ("converged", epochs)


def test_the_job_can_be_read(tmp_path):
    (block,) = re.findall(r"\n(    name = (?:.*\n)+?)\n", TEXT)
    assert tomllib.loads(block)
    (tmp_path / "JOB.toml").write_text(block)
    assert JobFile.read(tmp_path / "JOB.toml").storage == "sqlite:///jobs.db"


def test_every_route_is_listed():
    others = ("/api/pipelines", "/api/services")
    for path in (path for path in ROUTES if not path.startswith(others)):
        shown = path.replace("{name}", "NAME").replace("{trial}", "TRIAL")
        assert f" {shown}`" in TEXT, path
