"""The watch over functions that are left by exceptions."""

from __future__ import annotations

import sys
import threading

import pytest

from zeus.integrations import _watch
from zeus.integrations._watch import Watch, calling_method

LOOKS = 4 * _watch._INTERVAL


class TrainingError(Exception):
    pass


@pytest.fixture
def left():
    return threading.Event()


def test_a_function_that_runs_is_left_alone(left):
    def train():
        watch = Watch(sys._getframe(), lambda _: left.set())
        assert not left.wait(LOOKS)
        return watch

    train()
    assert left.wait(60)


def test_an_exception_is_noticed_although_its_traceback_holds_the_function(left):
    def train():
        Watch(sys._getframe(), lambda _: left.set())
        raise TrainingError

    with pytest.raises(TrainingError) as caught:
        train()
    assert caught.traceback
    assert left.wait(60)


def test_nothing_is_told_after_stopping(left):
    def train():
        Watch(sys._getframe(), lambda _: left.set()).stop()

    train()
    assert not left.wait(LOOKS)


def test_a_function_of_a_thread_that_has_ended(left):
    def train():
        Watch(sys._getframe(), lambda _: left.set())

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert left.wait(60)


def test_the_outermost_method_is_found():
    class Trainer:
        def train(self):
            return self.inner(sys._getframe())

        def inner(self, frame):
            return frame, calling_method(self)

    outermost, found = Trainer().train()
    assert found is outermost
    assert calling_method(object()) is None
