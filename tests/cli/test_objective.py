"""`zeus objective`: what an operator asks of a running pipeline job."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import one_error_line, zeus_here


def objective(capfd, server, *options):
    return zeus_here(capfd, "objective", "gpt3", *options, "--server", server.url)


def test_an_objective_is_set_shown_and_reset(capfd, server):
    waits = "(waits for ranks 1, 2, 3, 4, 5, 6, 7 to register)"
    assert objective(capfd, server).stdout == f"gpt3: as fast as possible {waits}.\n"
    done = objective(capfd, server, "--max-slowdown", "1.05", "--peak-power", "700")
    asked = "at most 1.05 times the time of the highest clocks, never above 700 W"
    assert done.stdout == f"gpt3: {asked} {waits}.\n"
    stored = json.loads(objective(capfd, server, "--json").stdout)["objective"]
    assert stored == {"max_slowdown": 1.05, "peak_power": 700.0}
    swing = objective(capfd, server, "--power-swing", "250").stdout
    assert "as fast as possible, with a power that swings by at most 250 W" in swing
    for option, said in (
        ("--deadline", "at most 2 s per iteration"),
        ("--energy-budget", "at most 2 J per iteration"),
        ("--power-cap", "at most 2 W on average"),
        ("--power-budget", "at most 2 W on average"),
    ):
        assert said in objective(capfd, server, option, "2").stdout
    assert "as fast as possible" in objective(capfd, server, "--fastest").stdout
    assert json.loads(objective(capfd, server, "--json").stdout)["objective"] == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-slowdown", "0.9"), "max_slowdown"),
        (("--deadline", "-1"), "deadline"),
        (("--max-slowdown", "1.1", "--deadline", "2"), "not allowed with"),
        (("--peak-power", "nan"), "peak_power"),
        (("--power-swing", "0"), "power_swing"),
    ],
)
def test_wrong_objectives_are_refused(capfd, server, options, said):
    done = objective(capfd, server, *options)
    assert done.returncode == 2
    assert said in one_error_line(done)


def test_a_job_that_is_not_there(capfd, server):
    done = zeus_here(capfd, "objective", "nobody", "--fastest", "--server", server.url)
    assert done.returncode == 1
    assert "there is no pipeline job 'nobody'" in one_error_line(done)
