"""A run of events in any order: callbacks hear them in the one order that they are promised."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integrations.support import STEP, Recorder

from zeus.errors import MissingExtraError, RunError
from zeus.integrations._run import Run, needs
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback
from zeus.testing import SimulatedNode

# Epochs of steps, with pauses between these; the last of either may be left open by `close`.
_EPOCH = r"\[(\(\)|pr)*\]"
_CUT = r"\[(\(\)|pr)*[(p]?"
PROMISED = re.compile(rf"(({_EPOCH})*({_CUT})?x)*({_EPOCH})*({_CUT})?")

EVENTS = ("begin", "epoch_begin", "step_begin", "step_end", "pause", "resume", "epoch_end", "close")


def a_run(*callbacks, node=None):
    node = node or SimulatedNode("v100")
    return Run(callbacks, ZeusMonitor(node=node, sync_execution_with=None))


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_whatever_a_framework_reports_callbacks_hear_what_they_are_promised(events):
    recorder = Recorder()
    run = a_run(recorder)
    for event in events:
        getattr(run, event)()
    assert PROMISED.fullmatch(recorder.story), recorder.story
    run.close()
    assert not run.open
    assert PROMISED.fullmatch(recorder.story), recorder.story
    if "begin" in events:
        assert recorder.story.endswith("x")
    else:
        assert recorder.story == ""


@pytest.mark.parametrize(
    ("events", "story"),
    [
        ("begin epoch_begin step_begin step_end epoch_end close", "[()]x"),
        ("begin step_begin step_end close", "[()x"),  # resumed in the midst of an epoch
        ("begin epoch_begin epoch_begin close", "[][x"),  # whose end nobody told
        ("begin epoch_begin step_begin step_begin step_end close", "[()x"),  # parts of a batch
        ("begin epoch_begin step_begin pause step_begin close", "[()pr(x"),
        ("begin epoch_begin pause epoch_end close", "[pr]x"),
        ("begin pause resume epoch_end step_end close", "x"),
        ("begin begin epoch_begin close close", "[x"),
        ("begin close epoch_begin begin epoch_begin close", "x[x"),  # another run
    ],
)
def test_events_that_are_missing_or_too_many(events, story):
    recorder = Recorder()
    run = a_run(recorder)
    for event in events.split():
        getattr(run, event)()
    assert recorder.story == story


def test_a_pause_tells_whether_there_was_training():
    run = a_run(Recorder())
    run.begin()
    assert not run.pause()
    run.epoch_begin()
    assert run.pause()
    assert not run.pause()


# --- time and energy ------------------------------------------------------------------------------


def test_an_epoch_is_measured_without_its_pauses():
    node = SimulatedNode("v100")
    run = a_run(Recorder(), node=node)
    run.begin()
    run.epoch_begin()
    before = node.exact_energy(0)
    for _ in range(10):
        run.step_begin()
        STEP.run(node.gpus)
        run.step_end()
    joules = node.exact_energy(0) - before
    run.pause()
    node.sleep(100.0)  # evaluation
    values = run.epoch_end()
    assert values["zeus/epoch_time"] == pytest.approx(11.0)
    assert values["zeus/epoch_energy"] == pytest.approx(joules, rel=0.02)
    run.close()


def test_nothing_is_reported_of_an_epoch_that_was_not_to_be():
    run = a_run(Recorder())
    assert run.epoch_end() == {}
    run.begin()
    assert run.epoch_end() == {}
    run.epoch_begin()
    assert run.epoch_end(report=False) == {}


def test_the_monitor_of_a_callback_is_the_runs():
    node = SimulatedNode("a40")

    class Measuring(Recorder):
        monitor = ZeusMonitor(node=node, sync_execution_with=None)

    run = Run([Recorder(), Measuring()], None)
    run.begin()
    run.epoch_begin()
    node.sleep(7.0)
    assert run.epoch_end()["zeus/epoch_time"] == pytest.approx(7.0)
    run.close()
    Measuring.monitor.begin_window("still there")  # it was not the run's to close


# --- ends -----------------------------------------------------------------------------------------


def test_callbacks_are_closed_in_their_order_also_if_one_fails():
    order = []

    class Closing(Callback):
        def __init__(self, name, error=None):
            self.name, self.error = name, error

        def close(self):
            order.append(self.name)
            if self.error:
                raise self.error

    run = a_run(Closing("first"), Closing("second", ArithmeticError("no")), Closing("third"))
    run.begin()
    with pytest.raises(ArithmeticError):
        run.close()
    assert order == ["first", "second", "third"]
    run.close()
    assert len(order) == 3


def test_what_is_no_callback_is_told_at_once():
    wrong: list[Any] = [ZeusMonitor(node=SimulatedNode("v100"))]
    with pytest.raises(RunError, match=r"must be objects of zeus\.optimizer\.Callback"):
        Run(wrong, None)


def test_a_framework_that_is_not_installed_is_told_with_the_line_that_mends_it():
    with pytest.raises(MissingExtraError, match=r"zeus-energy\[keras\]"), needs("keras", "keras"):
        raise ModuleNotFoundError(name="keras")
    with pytest.raises(ModuleNotFoundError) as other, needs("keras", "keras"):
        raise ModuleNotFoundError(name="h5py")  # keras is there
    assert not isinstance(other.value, MissingExtraError)
