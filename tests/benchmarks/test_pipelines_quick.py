"""The benchmark of pipeline plans runs on the recorded profiles, and reports what it promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"


@pytest.fixture(scope="module")
def rows(traces):
    done = subprocess.run(
        [sys.executable, str(RUN), "--quick", "--no-peers", "--only", "pipelines"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def test_every_row_has_a_number_of_ours_and_no_trouble(rows):
    assert len(rows) > 20
    for row in rows:
        assert row["task"] == "pipelines"
        assert "errors" not in row, row
        assert row["values"].keys() == {"ours"}
        assert row["values"]["ours"] is not None


def test_targets_that_are_not_about_the_clock_are_met(rows):
    aimed = [row for row in rows if row["target"] is not None and row["unit"] != "s"]
    assert len(aimed) > 10
    for row in aimed:
        # With 12 microbatches, plans of variants are further from their bound than is aimed at.
        assert row["met"] or "on variants" in row["measure"], row
