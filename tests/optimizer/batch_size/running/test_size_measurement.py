"""Batch sizes are measured once, before the first decision: what is learned, kept and left out."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.optimizer.batch_size.clients import free_port, job, opened, step, train, watch
from tests.present import present
from tests.server.child import Server

from zeus.errors import JobConflictError, RunError
from zeus.optimizer import BatchSizeOptimizer
from zeus.optimizer.batch_size.api._commands import ListSizes, ShowLog, ShowProfiles
from zeus.optimizer.batch_size.running._size_measurement import out_of_memory
from zeus.testing import SimulatedNode

SAMPLES = 96_000


class OutOfMemoryError(RuntimeError):
    """As PyTorch has one."""


class Model:
    """A model to throw away, on a node; what does not fit fails."""

    def __init__(self, node, most=10**9, error=OutOfMemoryError):
        self.node = node
        self.most = most
        self.error = error
        self.calls: Counter[int] = Counter()

    def __call__(self, size):
        self.calls[size] += 1
        if size > self.most:
            raise self.error("no room")
        step(size).run(self.node.gpus)


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def node():
    with SimulatedNode("v100") as simulated:
        yield simulated


def make(node, storage, spec=None, **options):
    return BatchSizeOptimizer(watch(node), job=spec or job(), storage=storage, **options)


def log(storage, name="nightly"):
    with opened(storage) as jobs:
        return jobs.do(ShowLog(job=name))


def measured(storage, name="nightly"):
    """Costs of an epoch by batch size in the order of their measurement."""
    found = [event for event in log(storage, name) if event["kind"] == "measured"]
    return {event["batch_size"]: event["epoch_cost"] for event in found}


def true_cost(node, size, eta=0.5):
    """What an epoch costs, by the exact energy of twenty steps."""
    began, before = node.clock.now(), node.exact_energy(0)
    for _ in range(20):
        step(size).run(node.gpus)
    time, energy = node.clock.now() - began, node.exact_energy(0) - before
    return (eta * energy + (1 - eta) * 250 * time) / 20 * SAMPLES / size


# --- a first night --------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_every_batch_size_is_measured_from_the_default_outward(node, storage, eta):
    model, spec = Model(node), job(eta_knob=eta)
    with make(node, storage, spec) as optimizer:
        found = optimizer.measure_batch_sizes(model, SAMPLES)
        assert optimizer.get_batch_size() in spec.batch_sizes
    assert list(found) == [32, 16, 64]
    assert found == measured(storage)
    for size, cost in found.items():
        assert cost == pytest.approx(true_cost(node, size, eta), rel=0.03)
    (event, *_) = log(storage)
    assert (event["gpu"], event["gpus"]) == ("Tesla V100-PCIE-32GB (simulated)", 1)
    assert (event["memory"], event["replicas"]) == (32 * 2**30, 1)
    assert 0 < event["load"] <= 1


def test_it_takes_seconds_and_leaves_the_power_limit_alone(node, storage):
    limits = set()

    def watched(size):
        step(size).run(node.gpus)
        limits.add(node.gpus[0].power_limit())

    began = node.clock.now()
    with make(node, storage) as optimizer:
        optimizer.measure_batch_sizes(watched, SAMPLES, seconds=10.0)
    # Steps before it and a step that is not over when its time is come with it.
    assert 3 * 10.0 < node.clock.now() - began < 3 * 20.0
    assert limits == {250.0}


def test_it_takes_a_small_part_of_an_epoch_however_short_that_is(node, storage):
    began = node.clock.now()
    with make(node, storage) as optimizer:
        optimizer.measure_batch_sizes(Model(node), 9600, seconds=1000.0)
    # An epoch of the default has 300 steps of 0.84 s.
    assert 3 * 12.6 < node.clock.now() - began < 3 * 20.0


def test_the_line_may_stay_in_the_script(node, storage):
    for number in range(3):
        model = Model(node)
        optimizer = make(node, storage)
        found = optimizer.measure_batch_sizes(model, SAMPLES)
        assert bool(found) == bool(model.calls) == (number == 0)
        train(node, optimizer)
    assert len(measured(storage)) == 3
    # Other GPUs are another thing.
    with SimulatedNode("v100x2") as two:
        model = Model(two)
        with make(two, storage) as optimizer:
            assert len(optimizer.measure_batch_sizes(model, SAMPLES)) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"exploration_budget": 0},
        {"batch_sizes": (32,)},
        {"policy": "default"},
    ],
)
def test_nothing_is_measured_if_there_is_nothing_to_choose(node, storage, changes):
    model = Model(node)
    with make(node, storage, job(**changes)) as optimizer:
        assert optimizer.measure_batch_sizes(model, SAMPLES) == {}
        assert optimizer.get_batch_size() == 32
    assert not model.calls


def test_a_measured_batch_size_still_gets_its_power_limits_profiled(node, storage):
    optimizer = make(node, storage, job(eta_knob=1.0))
    found = optimizer.measure_batch_sizes(Model(node), 960)  # as many as are trained on
    train(node, optimizer)
    assert optimizer.power_limit.profiling_steps > 0
    with opened(storage) as jobs:
        (profile,) = jobs.do(ShowProfiles(job="nightly"))
        sizes = jobs.do(ListSizes(job="nightly", gpu=profile.gpu))
    assert profile.batch_size == optimizer.get_batch_size()
    # The others are expected to gain as much by lower limits.
    saved = present(profile.epoch_cost) / present(found[profile.batch_size])
    assert saved < 0.8
    for size in sizes:
        trained = size.batch_size == profile.batch_size
        assert size.state == ("trained" if trained else "measured")
        full = present(found[size.batch_size])
        assert size.epoch_cost == pytest.approx(saved * full, rel=0.03)


def test_a_batch_size_without_hope_is_measured_for_a_moment(node, storage):
    spec = job(batch_sizes=(1, 32, 64))
    model = Model(node)
    with make(node, storage, spec) as optimizer:
        found = optimizer.measure_batch_sizes(model, SAMPLES, seconds=20.0)
    # A step has 0.2 s of waiting, however small: an epoch of these takes eight times as long.
    assert present(found[1]) > 4 * present(found[32])
    assert found[1] == pytest.approx(true_cost(node, 1), rel=0.1)
    assert model.calls[1] * 0.22 < 10.0 < model.calls[32] * 0.84


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OutOfMemoryError, MemoryError])
def test_what_does_not_fit_is_left_out_and_larger_ones_are_not_tried(node, storage, error):
    spec = job(batch_sizes=(16, 32, 64, 128))
    model = Model(node, most=32, error=error)
    with make(node, storage, spec) as optimizer:
        found = optimizer.measure_batch_sizes(model, SAMPLES)
    assert {size: cost is not None for size, cost in found.items()} == {
        32: True, 16: True, 64: False, 128: False,
    }  # fmt: skip
    assert (model.calls[64], model.calls[128]) == (1, 0)
    with opened(storage) as jobs:
        here = ListSizes(job="nightly", gpu="Tesla V100-PCIE-32GB (simulated)", memory=32 * 2**30)
        states = {size.batch_size: size.state for size in jobs.do(here)}
    assert states == {16: "measured", 32: "measured", 64: "unfit", 128: "unfit"}
    again = Model(node)
    chosen = []
    for _ in range(6):
        optimizer = make(node, storage, spec)
        assert optimizer.measure_batch_sizes(again, SAMPLES) == {}
        train(node, optimizer, needed=dict.fromkeys(spec.batch_sizes, 2))
        chosen.append(optimizer.get_batch_size())
    assert max(chosen) <= 32


def test_if_the_default_does_not_fit_smaller_ones_are_measured(node, storage):
    model = Model(node, most=16)
    with make(node, storage) as optimizer:
        found = optimizer.measure_batch_sizes(model, SAMPLES)
        assert optimizer.get_batch_size() == 16
    assert found[32] is None
    assert found[64] is None
    assert present(found[16]) > 0


def test_if_nothing_fits_the_default_is_tried(node, storage):
    with make(node, storage) as optimizer:
        found = optimizer.measure_batch_sizes(Model(node, most=1), SAMPLES)
        assert found == {32: None, 16: None, 64: None}
        assert optimizer.get_batch_size() == 32


def test_errors_of_frameworks_are_recognized():
    exhausted = type("ResourceExhaustedError", (Exception,), {})
    for error in (
        MemoryError(),
        OutOfMemoryError(),
        exhausted(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
    ):
        assert out_of_memory(error)
    for other in (None, RuntimeError("shapes differ"), ValueError("RESOURCE_EXHAUSTED")):
        assert not out_of_memory(other)


def test_any_other_error_is_raised_and_nothing_is_lost(node, storage):
    model = Model(node, most=32, error=ValueError)
    with make(node, storage) as optimizer:
        with pytest.raises(ValueError, match="no room"):
            optimizer.measure_batch_sizes(model, SAMPLES)
        # What is missing is measured by the next call.
        assert list(measured(storage)) == [32, 16]
        assert list(optimizer.measure_batch_sizes(Model(node), SAMPLES)) == [64]
    assert list(measured(storage)) == [32, 16, 64]


# --- shares ---------------------------------------------------------------------------------------


def test_steps_are_those_of_a_local_batch_and_equal_ones_are_measured_once(node, storage):
    model = Model(node)
    with make(node, storage, max_local_batch_size=16) as optimizer:
        found = optimizer.measure_batch_sizes(model, SAMPLES)
    assert set(model.calls) == {16}
    # As many local batches make an epoch.
    assert found[16] == found[32] == found[64]
    assert present(found[16]) == pytest.approx(true_cost(node, 16), rel=0.03)


def test_only_what_replicas_can_share_is_measured(node, storage):
    spec = job(batch_sizes=(18, 32, 64), default_batch_size=32)
    model = Model(node)
    with make(node, storage, spec, replicas=4) as optimizer:
        found = optimizer.measure_batch_sizes(model, SAMPLES)
        assert optimizer.get_batch_size() in (32, 64)
    assert set(found) == {32, 64}
    assert set(model.calls) == {8, 16}


# --- mistakes -------------------------------------------------------------------------------------


def test_mistakes_are_named(node, storage, monkeypatch):
    optimizer = make(node, storage)
    with pytest.raises(RunError, match="`seconds > 0` must hold, but got 0"):
        optimizer.measure_batch_sizes(Model(node), SAMPLES, seconds=0)
    with pytest.raises(RunError, match="`samples >= 1` must hold, but got 0"):
        optimizer.measure_batch_sizes(Model(node), 0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match=r"initialize torch.distributed .* rank 0 of 2"):
        optimizer.measure_batch_sizes(Model(node), SAMPLES)
    monkeypatch.delenv("WORLD_SIZE")
    optimizer.on_train_begin()
    with pytest.raises(RunError, match="before training begins"):
        optimizer.measure_batch_sizes(Model(node), SAMPLES)
    optimizer.close()
    with (
        make(node, storage, job(beta=5.0)) as another,
        pytest.raises(JobConflictError, match=r"beta is 2.0, not 5.0"),
    ):
        another.measure_batch_sizes(Model(node), SAMPLES)


# --- a server -------------------------------------------------------------------------------------


def kept():
    return sorted(Path(os.environ["ZEUS_STATE_DIR"]).glob("undelivered/*.json"))


def test_without_the_server_nothing_is_measured_and_training_goes_on(node):
    model = Model(node)
    optimizer = BatchSizeOptimizer(watch(node), f"http://127.0.0.1:{free_port()}", job())
    assert optimizer.measure_batch_sizes(model, SAMPLES) == {}
    assert optimizer.get_batch_size() == 32
    assert not model.calls
    optimizer.suspend()


def test_what_a_server_misses_is_delivered_later(node, storage):
    server = Server(storage)
    model = Model(node)

    def interrupted(size):
        if size == 16 and server.process.poll() is None:
            server.stop(signal.SIGKILL)
        model(size)

    first = BatchSizeOptimizer(watch(node), server.url, job(), token=server.token, timeout=60.0)
    found = first.measure_batch_sizes(interrupted, SAMPLES)
    assert set(found) == {16, 32, 64}
    assert list(measured(storage)) == [32]
    assert len(kept()) == 1
    server = Server(storage, port=server.port)
    try:
        # The decision of this very run uses it already.
        assert first.get_batch_size() in found
        assert kept() == []
        assert measured(storage) == found
        first.close()
    finally:
        assert server.stop() == ""
    kinds = [event["kind"] for event in log(storage)]
    assert kinds[:4] == ["measured", "measured", "measured", "decided"]
