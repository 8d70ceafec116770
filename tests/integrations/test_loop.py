"""Loops of one's own: every way through them, and every way out."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading

import pytest
from tests.integrations.support import ENOUGH_STEPS, STEP, Limits, Recorder, run_example

from zeus.errors import RunError
from zeus.integrations.loop import epochs, paused, steps
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.testing import SimulatedNode


class TrainingError(Exception):
    pass


def test_epochs_and_steps_come_through_unchanged(node, recorder):
    seen = [
        (epoch, batch) for epoch in epochs("ab", recorder) for batch in steps(range(2), recorder)
    ]
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert recorder.story == "[()()pr][()()pr]x"


def test_steps_belong_to_the_loop_around_them(node, recorder):
    for _ in epochs(range(2), recorder):
        for _ in steps(range(1)):
            pass
    assert recorder.story == "[()pr][()pr]x"


def test_several_loops_over_steps_in_an_epoch(node, recorder):
    for _ in epochs(range(1), recorder):
        for _ in range(2):
            for _ in steps(range(2)):
                pass
    assert recorder.story == "[()()pr()()pr]x"


def test_steps_alone_are_a_run_of_one_epoch(node, recorder):
    logged: list = []
    for _ in steps(range(2), recorder, log=logged.append):
        node.sleep(1.0)
    assert recorder.story == "[()()pr]x"
    assert logged[0]["zeus/epoch_time"] == pytest.approx(2.0)


def test_evaluation_among_steps(node, recorder):
    for batch in steps(range(3), recorder):
        if batch == 1:
            with paused():
                node.sleep(1.0)
    assert recorder.story == "[()()pr()pr]x"


def test_evaluation_between_loops_is_paused_already(node, recorder):
    for _ in epochs(range(1), recorder):
        for _ in steps(range(1)):
            pass
        with paused():
            assert recorder.story == "[()p"
        assert recorder.story == "[()p"


def test_pausing_without_a_run_does_nothing(node, recorder):
    with paused(), paused(recorder):
        pass
    assert recorder.story == ""


def test_empty_loops(node, recorder):
    for _ in epochs([], recorder):
        pass
    for _ in epochs(range(1), recorder):
        for _ in steps([]):
            pass
    assert recorder.story == "x[pr]x"


def test_break_from_steps_goes_on_with_the_next_epoch(node, recorder):
    logged: list = []
    for _ in epochs(range(2), recorder, log=logged.append):
        for batch in steps(range(5)):
            if batch == 1:
                break
        assert recorder.story.endswith("[()()p")
    assert recorder.story == "[()()pr][()()pr]x"
    assert len(logged) == 2


def test_break_from_epochs_closes_and_logs_a_whole_epoch(node, recorder):
    logged: list = []
    for _ in epochs(range(5), recorder, log=logged.append):
        for _ in steps(range(1)):
            node.sleep(2.0)
        break
    assert recorder.story == "[()pr]x"
    assert [values["zeus/epoch_time"] for values in logged] == pytest.approx([2.0])


def test_an_epoch_left_half_way_is_not_logged(node, recorder):
    logged: list = []

    def train():
        for _ in epochs(range(5), recorder, log=logged.append):
            for _ in steps(range(5)):
                return

    train()
    assert recorder.story == "[()pr]x"
    assert logged == []


@pytest.mark.parametrize("error", [TrainingError, KeyboardInterrupt, SystemExit])
def test_an_exception_closes_at_once(node, recorder, error):
    """Although its traceback, which holds the frames of the loop, is still at hand."""

    def train():
        for _ in epochs(range(5), recorder):
            for batch in steps(range(5)):
                if batch == 1:
                    raise error

    with pytest.raises(error):
        train()
    assert recorder.story == "[()()pr]x"


def test_an_exception_in_evaluation_closes_too(node, recorder):
    with pytest.raises(TrainingError):  # noqa: PT012
        for _ in epochs(range(5), recorder):
            for _ in steps(range(1)):
                pass
            raise TrainingError
    assert recorder.story == "[()pr]x"


def test_an_exception_of_the_data(node, recorder):
    def batches():
        yield 0
        raise TrainingError

    with pytest.raises(TrainingError):  # noqa: PT012
        for _ in epochs(range(5), recorder):
            for _ in steps(batches()):
                pass
    assert recorder.story == "[()pr]x"


def test_an_exception_of_a_callback(node, recorder):
    class Failing(Recorder):
        def on_step_end(self):
            super().on_step_end()
            raise TrainingError

    failing = Failing()
    with pytest.raises(TrainingError):  # noqa: PT012
        for _ in epochs(range(5), recorder, failing):
            for _ in steps(range(5)):
                pass
    assert failing.story == recorder.story == "[()pr]x"


def test_a_callback_that_cannot_close_does_not_keep_others_from_it(node):
    class Failing(Recorder):
        def close(self):
            super().close()
            raise TrainingError

    ones = Failing(), Recorder(), Failing()
    with pytest.raises(TrainingError):
        for _ in epochs(range(1), *ones):
            pass
    assert [one.story for one in ones] == ["[]x"] * 3


@pytest.mark.parametrize("wrong", [ZeusMonitor, Recorder, print])
def test_what_is_no_callback_is_refused(node, wrong):
    with pytest.raises(RunError, match="must be objects of"):
        next(epochs(range(2), wrong))


def test_a_loop_that_was_never_begun_tells_nothing(node, recorder):
    epochs(range(2), recorder)
    steps(range(2), recorder)
    assert recorder.story == ""


def test_iterators_left_half_way_end_when_they_are_gone(node, recorder):
    outer = iter(epochs(range(3), recorder))
    next(outer)
    inner = iter(steps(range(3)))
    next(inner)
    assert recorder.story == "[("
    del inner
    gc.collect()
    assert recorder.story == "[()p"
    del outer
    gc.collect()
    assert recorder.story == "[()pr]x"


def test_iterators_of_a_run_that_is_over_tell_nothing(node, recorder):
    for _ in epochs(range(3), recorder):
        inner = iter(steps(range(3)))
        next(inner)
        break
    assert recorder.story == "[()]x"
    assert list(inner) == [1, 2]
    assert recorder.story == "[()]x"


def test_runs_within_runs_are_told_apart_by_their_callbacks(node):
    outer, inner = Recorder(), Recorder()
    for _ in epochs(range(1), outer):
        for _ in steps(range(1)):
            for _ in steps(range(2), inner):
                pass
        for _ in steps(range(1), outer):
            pass
    assert inner.story == "[()()pr]x"
    assert outer.story == "[()pr()pr]x"


def test_a_run_is_its_threads_own(node, recorder):
    other = Recorder()

    def train():
        for _ in steps(range(1), other):
            with paused():
                pass

    for _ in epochs(range(1), recorder):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert other.story == "[()prpr]x"
    assert recorder.story == "[]x"


def test_what_is_logged_is_training_without_pauses(node, recorder):
    logged: list = []
    monitor = ZeusMonitor()
    exact = []
    for _ in epochs(range(2), recorder, monitor=monitor, log=logged.append):
        begin = node.exact_energy()
        for _ in steps(range(3)):
            STEP.run(node.gpus)
        exact.append(node.exact_energy() - begin)
        node.sleep(100.0)  # evaluation
    for values, energy in zip(logged, exact, strict=True):
        assert values["zeus/epoch_time"] == pytest.approx(3.3, rel=0.01)
        assert values["zeus/epoch_energy"] == pytest.approx(energy, rel=0.01)
    monitor.begin_window("still there")  # it is not ours to close


def test_energy_that_is_not_known_is_absent():
    script = (
        "from zeus.integrations.loop import steps\n"
        "from zeus.optimizer import Callback\n"
        "for _ in steps(range(2), Callback(), log=lambda values: print(sorted(values))):\n"
        "    pass\n"
    )
    environment = {**os.environ, "ZEUS_SIMULATE": "", "ZEUS_POWERCAP_ROOT": os.devnull}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    assert done.stdout == "['zeus/epoch_time']\n", done.stderr


RANK_SCRIPT = """
import json, sys, time
import torch.distributed as dist
from zeus.integrations.loop import epochs, steps
from zeus.optimizer import Callback

dist.init_process_group("gloo")
logged = []
for _ in epochs(range(2), Callback(), log=logged.append):
    for _ in steps(range(2)):
        time.sleep(0.2 if dist.get_rank() else 0.05)
with open(f"{sys.argv[1]}/{dist.get_rank()}.json", "w") as file:
    json.dump(logged, file)
dist.destroy_process_group()
"""


def test_of_several_processes_the_first_one_logs_for_all(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(RANK_SCRIPT)
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            script, tmp_path,
        ],
        env={**os.environ, "ZEUS_SIMULATE": "v100x2", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert [values["zeus/epoch_time"] > 0.4 for values in first] == [True, True]  # the slower's
    assert second == []


def test_the_monitor_of_a_callback_is_used():
    """It measures another node than this machine, on which nothing takes any time."""
    node = SimulatedNode("a40")
    logged: list = []
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(node=node))
    for _ in steps(range(2), optimizer, log=logged.append):
        node.sleep(5.0)
    assert logged[0]["zeus/epoch_time"] == pytest.approx(10.0)


def test_without_callbacks_the_power_limit_is_optimized(node):
    limits = Limits(node)
    for _ in epochs(range(2)):
        for _ in steps(range(ENOUGH_STEPS)):
            limits.work()
    limits.assert_lowered_and_restored()


def test_without_callbacks_every_run_has_an_optimizer_of_its_own(node):
    for _ in range(2):
        limits = Limits(node)
        for _ in steps(range(ENOUGH_STEPS)):
            limits.work()
        limits.assert_lowered_and_restored()


def test_an_exception_restores_the_limit(node):
    limits = Limits(node)
    with pytest.raises(TrainingError):  # noqa: PT012
        for _ in epochs(range(2)):
            for _ in steps(range(ENOUGH_STEPS)):
                limits.work()
            raise TrainingError
    limits.assert_lowered_and_restored()


def test_the_example_in_the_document(node, capsys):
    run_example("Any loop")
    assert "zeus/epoch_energy" in capsys.readouterr().out
