"""Operations without slack, and changes of clocks, of small graphs by hand and of real plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.optimizer.pipeline_frequency.graphs import pipelines

from zeus.optimizer.pipeline_frequency import Option, Pipeline
from zeus.optimizer.pipeline_frequency._slack import clock_changes, critical_operations


def test_the_longest_path_has_no_slack_and_all_else_has():
    pipeline = Pipeline(2, 50.0)
    first = pipeline.add("a", [Option(1000, 1.0, 1.0)], device=0)
    long = pipeline.add("b", [Option(1000, 3.0, 1.0)], device=0, after=[first])
    pipeline.add("c", [Option(1000, 2.0, 1.0)], device=1, after=[first])
    last = pipeline.add("d", [Option(1000, 1.0, 1.0)], device=1, after=[long])
    execution = pipeline.at_highest_frequency()
    assert critical_operations(execution) == {first, long, last}
    # Waiting for another pipeline makes nothing less critical.
    assert critical_operations(execution.lasting(100.0)) == {first, long, last}


@given(pipelines())
def test_only_what_has_no_slack_makes_the_iteration_longer(pipeline):
    execution = pipeline.at_highest_frequency()
    critical = critical_operations(execution)
    more = 1e-3 * execution.time
    for number, option in enumerate(execution.options):
        options = list(execution.options)
        options[number] = replace(option, time=option.time + more)
        longer = pipeline.execute(options).time - execution.time
        if number in critical:
            assert longer == pytest.approx(more, rel=0.01)
        else:
            assert longer < more * (1 - 1e-6)


def test_changes_are_counted_around_the_iteration():
    pipeline = Pipeline(3, 50.0)
    for clock in (1000, 900, 900, 1000):
        pipeline.add("a", [Option(clock, 1.0, 1.0)], device=0)
    for other in (1000, None, 900):
        pipeline.add("a", [Option(other, 1.0, 1.0)], device=1)
    pipeline.add("a", [Option(1000, 1.0, 1.0)], device=2)
    # To 900 and back; to 900, and back in the next iteration; never.
    assert clock_changes(pipeline.at_highest_frequency()) == (2, 2, 0)
