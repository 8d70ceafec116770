"""The paper's Listing 1, and everything that it promises, on a simulated node in virtual time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.present import present

pytest.importorskip("torch")

import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from zeus import ZeusDataLoader
from zeus.errors import RunError
from zeus.frontier import Energy
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.optimizer._stopping import Outcome
from zeus.testing import SimulatedNode, Workload

STEP = Workload("step", gpu_time=0.1)
EVALUATE = Workload("evaluate", gpu_time=0.03, activity=0.5)


@pytest.fixture
def node():
    with SimulatedNode("v100x2") as simulated:
        yield simulated


def data(samples=64):
    return TensorDataset(torch.arange(samples, dtype=torch.float32))


def train(node, loader, evaluation=None, metrics=None):
    """Listing 1 on simulated work; returns the epochs seen."""
    seen = []
    for epoch in loader.epochs():
        seen.append(epoch)
        for _ in loader:
            STEP.run(node.gpus)
        for _ in evaluation or ():
            EVALUATE.run(node.gpus)
        if metrics is not None:
            loader.report_metric(metrics[epoch])
    return seen


def test_listing_one_verbatim(node):
    train_set, eval_set, batch_size, max_epochs, target_metric = data(64), data(16), 8, 10, 0.8
    accuracies = iter([0.3, 0.5, 0.9])

    train_loader = ZeusDataLoader(train_set, batch_size, max_epochs, target_metric)
    eval_loader = ZeusDataLoader(eval_set, batch_size)

    for _epoch in train_loader.epochs():  # may early stop
        for _batch in train_loader:
            STEP.run(node.gpus)
        for _batch in eval_loader:
            EVALUATE.run(node.gpus)
        train_loader.report_metric(next(accuracies))

    assert train_loader.reached_target
    assert train_loader.outcome is Outcome.CONVERGED
    assert [record.metric for record in train_loader.history] == [0.3, 0.5, 0.9]


def test_epochs_end_without_a_target(node):
    loader = ZeusDataLoader(data(), 8, 3)
    assert train(node, loader, metrics=[1, 2, 3]) == [0, 1, 2]
    assert loader.outcome is Outcome.EXHAUSTED


def test_a_falling_metric_reaches_its_target(node):
    loader = ZeusDataLoader(data(), 8, 9, 40.0, higher_is_better=False)
    assert train(node, loader, metrics=[90.0, 60.0, 40.0]) == [0, 1, 2]
    assert loader.reached_target


def test_metrics_may_be_tensors_and_nan_reaches_nothing(node):
    loader = ZeusDataLoader(data(), 8, 3, 0.5)
    metrics = [torch.tensor(0.1), float("nan"), torch.tensor(0.6)]
    assert train(node, loader, metrics=metrics) == [0, 1, 2]
    assert loader.reached_target


def optimizer_of(loader: ZeusDataLoader) -> GlobalPowerLimitOptimizer:
    assert isinstance(loader.power_limit, GlobalPowerLimitOptimizer)
    return loader.power_limit


def chosen_limit(loader: ZeusDataLoader) -> float:
    return present(optimizer_of(loader).selection).point.knob


def test_the_limit_is_profiled_in_the_first_epochs_then_used_and_put_back(node):
    loader = ZeusDataLoader(data(2400), 8, 2)  # an epoch of 30 s and more
    limits = []
    for _epoch in loader.epochs():
        for _ in loader:
            limits.append(node.gpus[0].power_limit())
            STEP.run(node.gpus)
    chosen = chosen_limit(loader)
    assert chosen < 250
    assert limits[0] == 250
    assert set(limits[300:]) == {chosen}
    assert loader.power_limit.profiling_steps < 300
    assert [gpu.power_limit() for gpu in node.gpus] == [250, 250]


def test_train_and_eval_energy_are_accounted_apart(node):
    train_loader, eval_loader = ZeusDataLoader(data(800), 8, 1), ZeusDataLoader(data(160), 8)
    before = [node.exact_energy(gpu) for gpu in range(2)]
    began = node.clock.now()
    for _epoch in train_loader.epochs():
        for _ in train_loader:
            STEP.run(node.gpus)
        trained = [node.exact_energy(gpu) for gpu in range(2)]
        for _ in eval_loader:
            EVALUATE.run(node.gpus)
        node.sleep(1.0)  # a checkpoint: neither
    (record,) = train_loader.history
    assert record.steps == 100
    assert record.train.energy == pytest.approx(sum(trained) - sum(before), rel=0.01)
    assert record.evaluation.time == pytest.approx(20 * 0.03, rel=0.05)
    assert record.total.time == pytest.approx(node.clock.now() - began)
    assert record.total.time - record.train.time - record.evaluation.time == pytest.approx(
        1.0, rel=0.01
    )
    total = present(record.total.energy)
    assert total > present(record.train.energy) + present(record.evaluation.energy)
    cost = 0.5 * total + 0.5 * 500 * record.total.time  # two GPUs of 250 W
    assert train_loader.cost == pytest.approx(cost)


def test_evaluation_in_the_middle_of_training_is_no_part_of_it(node):
    train_loader, eval_loader = ZeusDataLoader(data(400), 8, 1), ZeusDataLoader(data(160), 8)
    for _epoch in train_loader.epochs():
        for step, _ in enumerate(train_loader):
            STEP.run(node.gpus)
            if step % 10 == 9:
                for _ in eval_loader:
                    EVALUATE.run(node.gpus)
    (record,) = train_loader.history
    assert record.evaluation.time == pytest.approx(5 * 20 * 0.03, rel=0.05)
    assert record.train.time == pytest.approx(record.total.time - record.evaluation.time, rel=1e-6)


def test_it_stops_before_the_epoch_that_would_exceed_the_threshold(node):
    unlimited = ZeusDataLoader(data(2400), 8, 4, cost_threshold=1e12)
    train(node, unlimited)
    one = present(unlimited.history[-1].cost)
    spent = sum(present(record.cost) for record in unlimited.history[:2])

    barely = ZeusDataLoader(data(2400), 8, 4, cost_threshold=spent + 0.9 * one)
    assert train(node, barely) == [0, 1]
    assert barely.outcome is Outcome.STOPPED
    assert present(barely.cost) <= spent + 0.9 * one

    enough = ZeusDataLoader(data(2400), 8, 4, cost_threshold=spent + 1.1 * one)
    assert train(node, enough) == [0, 1, 2]
    assert enough.outcome is Outcome.STOPPED


def test_an_epoch_of_profiling_is_not_taken_for_what_comes(node):
    # By energy alone the limit ends up low: the first epoch, spent on the way there, is faster.
    settings: dict[str, Any] = {"optimum_selector": Energy(), "eta_knob": 0.0}
    free = ZeusDataLoader(data(2400), 8, 2, **settings)
    train(node, free)
    first, second = (present(record.cost) for record in free.history)
    assert second > 1.02 * first
    bound = ZeusDataLoader(data(2400), 8, 2, cost_threshold=1.5 * first + 0.5 * second, **settings)
    assert train(node, bound) == [0]
    assert bound.outcome is Outcome.STOPPED


def test_observing_leaves_the_limit_alone(node):
    loader = ZeusDataLoader(data(2400), 8, 2, observe=True)
    limits = []
    for _epoch in loader.epochs():
        for _ in loader:
            limits.append(node.gpus[0].power_limit())
            STEP.run(node.gpus)
    assert set(limits[300:]) == {250}
    report = optimizer_of(loader).report()
    assert report.observing
    chosen, reference = present(report.at_chosen), present(report.at_reference)
    assert present(chosen.energy) < 0.95 * present(reference.energy)


def test_profiles_are_kept_for_the_next_run_of_the_job(node, tmp_path):
    path = tmp_path / "profiles.json"
    first = ZeusDataLoader(data(2400), 8, 1, job="nightly", profile_path=path)
    train(node, first)
    assert first.power_limit.profiling_steps > 0
    again = ZeusDataLoader(data(2400), 8, 1, job="nightly", profile_path=path)
    train(node, again)
    assert again.power_limit.profiling_steps == 0
    assert chosen_limit(again) == chosen_limit(first)
    other = ZeusDataLoader(data(2400), 16, 1, job="nightly", profile_path=path)
    train(node, other)
    assert other.power_limit.profiling_steps > 0


def test_a_run_that_is_left_puts_the_limit_back(node):
    loader = ZeusDataLoader(data(4000), 8, 5)
    for _epoch in loader.epochs():
        for step, _ in enumerate(loader):
            STEP.run(node.gpus)
            if step == 100:
                break
        break
    assert loader.outcome is Outcome.LEFT
    assert [gpu.power_limit() for gpu in node.gpus] == [250, 250]


def test_an_exception_in_training_puts_the_limit_back(node):
    loader = ZeusDataLoader(data(4000), 8, 5)

    def fail_midway():
        for _epoch in loader.epochs():
            for step, _ in enumerate(loader):
                STEP.run(node.gpus)
                if step == 100:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway()
    assert [gpu.power_limit() for gpu in node.gpus] == [250, 250]


def test_it_is_a_data_loader_in_every_other_respect(node):
    dataset = data(20)
    settings: dict[str, Any] = {
        "sampler": SequentialSampler(dataset),
        "drop_last": True,
        "num_workers": 1,  # no more than a machine with one core likes
        "persistent_workers": True,
        "collate_fn": torch.utils.data.default_collate,
    }
    ours = ZeusDataLoader(dataset, 8, 2, **settings)
    theirs = DataLoader(dataset, 8, **settings)
    assert isinstance(ours, DataLoader)
    assert len(ours) == len(theirs) == 2
    expected = [batch[0].tolist() for batch in theirs]
    for _epoch in ours.epochs():
        assert [batch[0].tolist() for batch in ours] == expected
    assert [batch[0].tolist() for batch in ZeusDataLoader(dataset, 8)] == [
        batch[0].tolist() for batch in DataLoader(dataset, 8)
    ]


def test_without_any_gpu_it_trains_and_says_that_cost_is_not_known(monkeypatch, caplog):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with SimulatedNode("v100"):
        loader = ZeusDataLoader(data(), 8, 2, 0.5, cost_threshold=1.0)
    assert not loader.power_limit.monitor.gpus
    with caplog.at_level(logging.WARNING):
        metrics = iter([0.1, 0.6])
        for _epoch in loader.epochs():
            for _ in loader:
                pass
            loader.report_metric(next(metrics))
    assert loader.reached_target
    assert loader.cost is None
    messages = [record.message for record in caplog.records]
    assert sum("cost of the run is unknown" in message for message in messages) == 1
    assert sum("is not optimized" in message for message in messages) == 1


def test_a_missing_metric_is_told(node, caplog):
    loader = ZeusDataLoader(data(), 8, 1, 0.5)
    with caplog.at_level(logging.WARNING):
        train(node, loader)
    assert "no metric was reported in epoch 0" in caplog.text
    assert loader.outcome is Outcome.EXHAUSTED


def test_rules_are_told_with_the_value(node):
    with pytest.raises(RunError, match=r"`max_epochs` must be a whole number from 1, but got 0"):
        ZeusDataLoader(data(), 8, 0)
    with pytest.raises(RunError, match=r"only a loader with `max_epochs` trains"):
        ZeusDataLoader(data(), 8, target_metric=0.5)
    with pytest.raises(RunError, match=r"`cost_threshold > 0` must hold, but got -1"):
        ZeusDataLoader(data(), 8, 1, cost_threshold=-1)
    with pytest.raises(RunError, match=r"`target_metric` must be finite"):
        ZeusDataLoader(data(), 8, 1, float("inf"))
    evaluation = ZeusDataLoader(data(), 8)
    with pytest.raises(RunError, match=r"epochs\(\) is for a loader of training data"):
        list(evaluation.epochs())
    loader = ZeusDataLoader(data(), 8, 1, monitor=ZeusMonitor(sync_execution_with=None))
    with pytest.raises(RunError, match="a metric belongs to an epoch"):
        loader.report_metric(0.5)
    for _epoch in loader.epochs():
        with pytest.raises(RunError, match="a metric must be a number, but got 'good'"):
            loader.report_metric("good")  # type: ignore[arg-type]
    with pytest.raises(RunError, match="only once"):
        next(loader.epochs())
