"""The benchmarks of the power limit optimizer run, and know the truth they compare with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def bench(*arguments):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--no-peers", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def power_limit():
    rows = bench("--only", "power_limit")["rows"]
    return {row["measure"]: row for row in rows}


def test_the_optimizer_decides_on_the_driver(power_limit):
    choice = power_limit["cost of the chosen limit above the least"]
    assert "errors" not in choice
    assert choice["case"] == "A100, 5 ms"
    assert choice["optimum"] == 275
    (chosen,) = choice["chosen"]["ours"]
    # The limit that was chosen is the one that is in force afterwards.
    assert choice["limit_after"]["ours"] == [chosen]
    assert chosen in range(100, 401, 25)
    assert choice["values"]["ours"] == pytest.approx(excess_cost(chosen))


def excess_cost(limit):
    """The benchmark's own arithmetic, done again from the physics."""
    from zeus.device._simulated_models import MODELS

    a100 = MODELS["a100"]

    def cost(watts):
        clock = a100.relative_clock(1.0, watts, a100.highest_clock)
        seconds = 0.5 / clock + 0.5
        return seconds * (a100.busy_power(clock, 1.0) + 400)

    return cost(limit) / min(map(cost, range(100, 401, 25))) - 1


def test_every_figure_of_a_decision_is_there(power_limit):
    for row in power_limit.values():
        assert row["task"] == "power_limit"
        assert row["values"]["ours"] is not None, row
        assert row["met"] is None or row["met"] is (row["values"]["ours"] <= row["target"])
    assert power_limit["steps until the decision"]["values"]["ours"] > 12
    assert sum(row["target"] is not None for row in power_limit.values()) == 4


def test_profiled_points_are_told_with_their_errors(power_limit):
    choice = power_limit["cost of the chosen limit above the least"]
    (errors,) = choice["energy_errors"]["ours"]
    (points,) = choice["points"]["ours"]
    assert [f"{point[0]:g}" for point in points] == list(errors)
    worst = power_limit["error of the energy per step, worst profiled limit"]
    assert worst["values"]["ours"] == max(errors.values())


def test_a_whole_run_is_compared_with_the_best_limit_of_the_trace(traces, monkeypatch):
    monkeypatch.setenv("ZEUS_TRACES", str(traces))
    rows = bench("--only", "whole_runs")["rows"]
    assert {row["case"] for row in rows} == {
        "V100, librispeech, 192, by the trace",
        "V100, librispeech, 192, by the fit",
    }
    choice = rows[0]
    assert choice["best"] == 225  # the cheapest row of the recorded sweep
    assert choice["epochs"] == 10
    assert choice["steps_per_epoch"] == 1465
    assert choice["step_seconds"] * choice["steps_per_epoch"] == pytest.approx(6181.6, rel=0.01)
    above = {row["measure"]: row["values"]["ours"] for row in rows if "trace" in row["case"]}
    assert above["cost of the chosen limit above the least"] >= 0
    # The run cannot be cheaper than its own limit throughout by more than profiling could save.
    assert abs(above["time of the whole run above that at the chosen limit"]) < 0.01


def test_without_traces_whole_runs_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEUS_TRACES", str(tmp_path))
    assert bench("--only", "whole_runs")["rows"] == []


def test_decisions_on_noisy_hosts_are_counted():
    rows = bench("--only", "power_limit_decisions")["rows"]
    counted = rows[0]
    assert counted["of"] == 3
    assert counted["within_one_percent"] == counted["right"] / 3
    assert {row["case"] for row in rows[1:]} == {f"noisy hosts, {ms} ms" for ms in (1, 5, 10)}
    assert all(row["values"]["ours"] > 0 for row in rows[1:])
