"""The benchmark runs and reports in the form that its README promises. How fast is its business."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"


def bench(*arguments):
    return subprocess.run(
        [sys.executable, str(RUN), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    copy = tmp_path_factory.mktemp("bench") / "report.json"
    done = bench("--quick", "--no-peers", "--only", "overhead,import", "--output", str(copy))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert json.loads(copy.read_text()) == document
    return document


def test_the_report_says_what_was_measured_and_where(report):
    assert report["quick"] is True
    assert report["machine"]["cpus"] >= 1
    assert len(report["machine"]["load_average"]) == 3
    assert report["tools"].keys() == {"ours"}
    assert report["tools"]["ours"]["distribution"] == "zeus-energy"
    assert {row["task"] for row in report["rows"]} == {"overhead", "import"}


def test_every_row_has_a_number_of_ours_and_no_trouble(report):
    for row in report["rows"]:
        assert "errors" not in row, row
        assert row["values"]["ours"] > 0, row
        assert row["unit"], row
        assert row["ratios"] == {}, row


def test_met_is_told_exactly_where_there_is_a_target(report):
    aimed = [row for row in report["rows"] if row["target"] is not None]
    assert len(aimed) == 14
    for row in aimed:
        assert row["met"] is (row["values"]["ours"] <= row["target"])
    assert all(row["met"] is None for row in report["rows"] if row["target"] is None)
    assert report["targets_met"] is all(row["met"] for row in aimed)


def test_a_change_under_a_hold_is_reported_beside_the_drivers_call():
    done = bench("--quick", "--no-peers", "--only", "holds")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 3
    for row in rows:
        assert "errors" not in row, row
        bare, guarded, ours = (
            row["values"][way] for way in ("bare driver call", "guarded driver call", "ours")
        )
        assert 0 < bare < guarded < ours
        assert row["target"] == 1.3 * bare
        assert row["met"] is (ours <= row["target"])


def test_an_unknown_name_is_refused_with_the_known_ones():
    done = bench("--only", "speed")
    assert done.returncode == 2
    assert "speed" in done.stderr
    assert "accuracy" in done.stderr
