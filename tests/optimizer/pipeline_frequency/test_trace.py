"""Traces say what the plan does: every operation, and the power of every rank."""

from __future__ import annotations

from itertools import pairwise

import pytest

from zeus.optimizer.pipeline_frequency import build, solve
from zeus.optimizer.pipeline_frequency._trace import to_trace


@pytest.fixture
def pipeline(profile):
    return build(
        profile, "1f1b", 4, 80.0, communication=0.01, data_loading=0.02, name="<three> & co"
    )


@pytest.fixture
def solution(pipeline):
    return solve(pipeline, 30)


def test_a_trace_has_every_operation_and_the_power_of_every_rank(pipeline, solution):
    plan = solution.plans[2].execute()
    trace = to_trace({"before": pipeline.at_highest_frequency(), "after": plan})
    events = trace["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"before", "after"}
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
    assert len(spans) == len(pipeline.operations)
    for span, start, option in zip(spans, plan.starts, plan.options, strict=True):
        assert span["ts"] == pytest.approx(1e6 * start)
        assert span["dur"] == pytest.approx(1e6 * option.time)
        assert span["args"]["frequency (MHz)"] == option.frequency
    # Nothing on one track overlaps.
    for lane in {span["tid"] for span in spans}:
        track = sorted((s["ts"], s["ts"] + s["dur"]) for s in spans if s["tid"] == lane)
        if lane < pipeline.devices:
            assert all(one[1] <= two[0] + 1e-6 for one, two in pairwise(track))
    # The curves of power hold the energy of the whole iteration.
    total = 0.0
    for device in range(pipeline.devices):
        name = f"power of rank {device} (W)"
        curve = [(e["ts"], e["args"]["W"]) for e in events if e["name"] == name and e["pid"] == 2]
        assert curve[-1] == (pytest.approx(1e6 * plan.time), 0.0)
        total += sum((b[0] - a[0]) / 1e6 * a[1] for a, b in pairwise(curve))
    assert total == pytest.approx(plan.energy)
    name = "power of all GPUs (W)"
    curve = [(e["ts"], e["args"]["W"]) for e in events if e["name"] == name and e["pid"] == 2]
    assert sum((b[0] - a[0]) / 1e6 * a[1] for a, b in pairwise(curve)) == pytest.approx(plan.energy)
