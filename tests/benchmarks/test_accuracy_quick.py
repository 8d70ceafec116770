"""The benchmark of accuracy runs on the drivers, and judges by the truth that it knows."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


def test_the_kindest_of_the_possible_truths_counts(benchmarks):
    from accuracy_worker import judgement

    error, stated, covered, zero = judgement([9.9, 10.0, 10.1], 10.15, 0.06)
    assert (error, stated) == (pytest.approx(0.005), pytest.approx(0.006))
    assert (covered, zero) == (True, False)
    assert judgement([9.9, 10.0, 10.1], 10.15, 0.04)[2] is False
    assert judgement([9.9, 10.0, 10.1], 0.0, None)[1:] == [None, False, True]


@pytest.mark.real_time
def test_windows_are_measured_on_each_kind_of_driver(benchmarks, tmp_path):
    from accuracy import Case, bench_accuracy
    from harness import Bench, Effort
    from tools import ours

    effort = Effort(accuracy_turns=1, accuracy_seconds=2.0, accuracy_windows=2)
    cases = [
        Case("live power", "inside", 0.05, 0.01, 0.1, mean=0.5),
        Case("A100", "nested", 0.05),
        Case("A100", "periodic", 1.0, gpus=2),
        Case("MI300X", "steps", 0.05),
    ]
    rows = list(bench_accuracy(Bench([ours()], effort, tmp_path), cases))
    assert not [row["errors"] for row in rows if "errors" in row]
    found = {(row["case"], row["measure"]): row for row in rows}
    measures = {measure for case, measure in found if case == str(cases[0])}
    assert len(measures) == 6
    # The meter is live, so whoever is far off is compared with the wrong truth.
    assert found[str(cases[0]), "error, p50"]["values"]["ours"] < 0.05
    for case in cases:
        windows = found[str(case), "error, p50"]["windows"]["ours"]
        assert windows % case.gpus == 0
        assert windows >= 3
    coverage = "coverage of the stated uncertainty"
    shares = [found[str(case), coverage]["values"]["ours"] for case in cases]
    over_all = found["mean over all rows", coverage]
    assert over_all["values"]["ours"] == pytest.approx(sum(shares) / len(shares))
    assert over_all["met"] is (over_all["values"]["ours"] >= over_all["target"])
