"""A run with a target: what its epochs cost, and when it is over. In virtual time."""

from __future__ import annotations

import logging
import math

import pytest

from zeus.errors import RunError
from zeus.frontier import Point
from zeus.monitor import ZeusMonitor
from zeus.optimizer._stopping import Outcome, Stop
from zeus.optimizer.training._step_optimizer import StepOptimizer
from zeus.optimizer.training._training_run import Target, TrainingRun
from zeus.testing import SimulatedNode, Workload

STEP = Workload("step", gpu_time=1.0)
EVALUATE = Workload("evaluation", gpu_time=0.5, activity=0.5)


class Watching(StepOptimizer):
    """Changes nothing, and remembers what it heard."""

    def __init__(self):
        self.story = ""
        self.profiled = 0
        self.expected = None

    profiling_steps = property(lambda self: self.profiled)
    expected_step = property(lambda self: self.expected)

    def on_epoch_begin(self):
        self.story += "["

    def on_step_begin(self):
        self.story += "("

    def on_step_end(self):
        self.story += ")"

    def on_epoch_end(self):
        self.story += "]"

    def pause(self):
        self.story += "p"

    def resume(self):
        self.story += "r"

    def close(self):
        self.story += "x"


@pytest.fixture
def node():
    return SimulatedNode("v100x2")


def run_on(node, **options):
    monitor = ZeusMonitor(node=node, cpu_indices=[], sync_execution_with=None)
    return TrainingRun(monitor, Watching(), **{"max_epochs": 5, **options})


def train(node, run, metrics=(), steps=4):
    """Train as long as the run goes on; the numbers of its epochs."""
    reported = iter(metrics)
    seen = []
    for number in run.epochs():
        seen.append(number)
        for _ in run.steps(range(steps)):
            STEP.run(node.gpus)
        for _ in run.evaluation(range(2)):
            EVALUATE.run(node.gpus)
        metric = next(reported, None)
        if metric is not None:
            run.report_metric(metric)
    return seen


# --- when it is over ------------------------------------------------------------------------------


def test_the_target_ends_it(node):
    run = run_on(node, target=Target(0.9))
    assert train(node, run, [0.1, 0.5, 0.9, 0.99]) == [0, 1, 2]
    assert run.outcome is Outcome.CONVERGED
    assert run.reached_target
    assert [record.metric for record in run.history] == [0.1, 0.5, 0.9]


@pytest.mark.parametrize(
    ("target", "metrics", "epochs"),
    [
        (Target(0.5, higher_is_better=False), [3.0, 1.0, 0.5], 3),
        (Target(0.9), [math.nan, math.inf], 2),
        (Target(0.9), [0.1, 0.95, 0.2], 2),
    ],
)
def test_metrics_and_targets(node, target, metrics, epochs):
    run = run_on(node, target=target)
    assert len(train(node, run, metrics)) == epochs
    assert run.outcome is Outcome.CONVERGED


@pytest.mark.parametrize(
    ("patience", "metrics", "epochs"),
    [
        (1, [0.1, 0.95, 0.1, 0.1, 0.1], 2),
        (2, [0.95, 0.1, 0.95, 0.96, 0.1], 4),
        (2, [0.95, None, 0.95, 0.1, 0.1], 3),  # no evaluation, no change
        (3, [0.95, 0.95, 0.1, 0.95, 0.95], 5),
    ],
)
def test_a_target_must_hold_in_as_many_evaluations_as_the_user_says(
    node, patience, metrics, epochs
):
    run = run_on(node, target=Target(0.9, patience=patience))
    assert len(train(node, run, metrics)) == epochs
    assert run.reached_target == (patience < 3)


def test_patience_is_a_whole_number(node):
    with pytest.raises(RunError, match="`patience >= 1` must hold, but got 0"):
        run_on(node, target=Target(0.9, patience=0))


def test_epochs_run_out(node):
    run = run_on(node, max_epochs=3, target=Target(0.9))
    assert train(node, run, [0.1, 0.2, 0.3]) == [0, 1, 2]
    assert run.outcome is Outcome.EXHAUSTED


def test_without_a_metric_the_target_is_unchecked_and_that_is_said(node, caplog):
    run = run_on(node, max_epochs=2, target=Target(0.9))
    with caplog.at_level(logging.WARNING):
        train(node, run)
    assert run.outcome is Outcome.EXHAUSTED
    assert caplog.text.count("no metric was reported") == 2


def test_who_leaves_the_loop_ends_the_run(node):
    run = run_on(node)
    for _ in run.epochs():
        break
    assert run.outcome is Outcome.LEFT
    assert run.history == []
    assert run.optimizer.story == "x"
    run.finish()
    assert run.optimizer.story == "x"


@pytest.mark.parametrize(("batches", "steps"), [(0, 0), (1, 1), (3, 1), (7, 3), (9, 3)])
def test_batches_whose_gradients_are_accumulated_are_one_step(node, batches, steps):
    run = run_on(node, max_epochs=1)
    for _ in run.epochs():
        assert list(run.steps(range(batches), 3)) == list(range(batches))
    assert run.history[0].steps == steps


def test_another_judge_has_the_last_word(node):
    run = run_on(node, target=Target(0.9), judge=lambda run: Stop(Outcome.STOPPED, "enough"))
    assert train(node, run, [0.95]) == [0]
    assert run.outcome is Outcome.STOPPED


# --- what it costs --------------------------------------------------------------------------------


def test_parts_of_an_epoch_are_told_apart_and_add_up(node):
    run = run_on(node, max_epochs=1)
    began, before = node.clock.now(), sum(node.exact_energy(gpu) for gpu in range(2))
    for _ in run.epochs():
        for _ in run.steps(range(4)):
            STEP.run(node.gpus)
        for _ in run.evaluation(range(2)):
            EVALUATE.run(node.gpus)
        node.sleep(3.0)  # neither
    (record,) = run.history
    assert record.steps == 4
    assert record.train.time == pytest.approx(4.0)
    assert record.evaluation.time == pytest.approx(1.0)
    assert record.total.time == pytest.approx(node.clock.now() - began) == pytest.approx(8.0)
    joules = sum(node.exact_energy(gpu) for gpu in range(2)) - before
    assert record.total.energy == pytest.approx(joules, rel=0.02)
    assert record.train.energy + record.evaluation.energy < record.total.energy


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_the_cost_is_that_of_the_paper(node, eta):
    run = run_on(node, max_epochs=2, eta_knob=eta)
    train(node, run)
    for record in run.history:
        weighed = eta * record.total.energy + (1 - eta) * 500.0 * record.total.time
        assert record.cost == pytest.approx(weighed)
    assert run.cost == pytest.approx(sum(record.cost for record in run.history))


def test_it_stops_before_the_epoch_that_would_cost_too_much(node):
    free = run_on(node, max_epochs=1)
    train(node, free)
    for factor, epochs in ((2.5, 2), (3.01, 3), (0.5, 1)):
        run = run_on(node, cost_threshold=factor * free.cost)
        assert len(train(node, run)) == epochs
        assert run.outcome is Outcome.STOPPED
        assert epochs == 1 or run.cost <= run.cost_threshold


def test_an_epoch_of_profiling_does_not_count_for_those_to_come(node):
    predicted = []

    def judge(run):
        predicted.append(run.predicted_cost())
        return run.own_stop()

    run = run_on(node, max_epochs=2, judge=judge)
    for _ in run.epochs():
        run.optimizer.profiled = 4  # all steps of the first epoch
        run.optimizer.expected = Point(175, time=0.5, energy=100.0)
        for _ in run.steps(range(4)):
            STEP.run(node.gpus)
        node.sleep(1.0)
    first, second = run.history
    outside = first.total.energy - first.train.energy
    expected = 0.5 * (outside + 4 * 100.0) + 0.5 * 500.0 * (1.0 + 4 * 0.5)
    assert predicted == [pytest.approx(expected), second.cost]


def test_without_gpus_the_cost_is_unknown_and_stops_nothing(caplog):
    node = SimulatedNode("v100")
    monitor = ZeusMonitor([], [], node=node, sync_execution_with=None)
    run = TrainingRun(monitor, Watching(), max_epochs=3, cost_threshold=1e-9)
    with caplog.at_level(logging.WARNING):
        for _ in run.epochs():
            node.sleep(1.0)
    assert run.outcome is Outcome.EXHAUSTED
    assert run.cost is run.history[0].cost is run.predicted_cost() is None
    assert "the cost of the run is unknown" in caplog.text


def test_what_was_left_amid_an_epoch_is_known_too(node):
    run = run_on(node)
    assert (run.unfinished.time, run.unfinished.energy) == (0.0, 0.0)
    for number in run.epochs():
        node.sleep(3.0)
        if number == 1:
            break
    assert len(run.history) == 1
    assert run.unfinished.time == pytest.approx(3.0)
    assert run.unfinished.energy == pytest.approx(run.history[0].total.energy, rel=0.05)


# --- events ---------------------------------------------------------------------------------------


def test_the_optimizer_hears_of_training_only(node):
    run = run_on(node, max_epochs=2)
    train(node, run, steps=2)
    assert run.optimizer.story == "[()()][()()]x"


def test_evaluation_amid_training_is_a_pause(node):
    run = run_on(node, max_epochs=1)
    for _ in run.epochs():
        for batch in run.steps(range(3)):
            STEP.run(node.gpus)
            if batch == 1:
                for _ in run.evaluation(range(1)):
                    EVALUATE.run(node.gpus)
    assert run.optimizer.story == "[()(pr)()]x"
    (record,) = run.history
    assert (record.train.time, record.evaluation.time) == pytest.approx((3.0, 0.5))


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_epochs": 0}, "`max_epochs` must be a whole number from 1, but got 0"),
        ({"max_epochs": 1.5}, "but got 1.5"),
        ({"eta_knob": 1.1}, "`0 <= eta_knob <= 1` must hold, but got 1.1"),
        ({"eta_knob": math.nan}, "but got nan"),
        ({"cost_threshold": 0}, "`cost_threshold > 0` must hold, but got 0"),
        ({"target": Target(math.inf)}, "`target_metric` must be finite, but got inf"),
    ],
)
def test_wrong_values_are_told(node, options, told):
    with pytest.raises(RunError, match=told):
        run_on(node, **options)


def test_a_run_is_run_once(node):
    run = run_on(node, max_epochs=1)
    train(node, run)
    with pytest.raises(RunError, match="only once"):
        next(run.epochs())


def test_a_metric_belongs_to_an_epoch_and_is_a_number(node):
    run = run_on(node)
    with pytest.raises(RunError, match="inside `epochs"):
        run.report_metric(0.5)
    run.begin()
    with pytest.raises(RunError, match="must be a number, but got 'good'"):
        run.report_metric("good")
    run.report_metric(0.1)
    run.report_metric(0.2)
    run.end_epoch()
    assert run.history[0].metric == 0.2, "of several the last"
