"""The benchmark of `zeus export` runs, and prints what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "export.py"


def test_it_measures_scrapes_and_rest():
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--scrapes", "3", "--rest", "0.1", "--gpus", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["page_milliseconds"]) == {"zeus", "prometheus-client"}
    held = report["counters, all limits held"]["samples"] - report["counters"]["samples"]
    assert held == 2
    for case, method in (("counters", "counter"), ("no counters", "integrated")):
        assert report[case]["energy_by"] == method
        assert report[case]["samples"] > 20
        assert report[case]["scrape_milliseconds"] > 0
