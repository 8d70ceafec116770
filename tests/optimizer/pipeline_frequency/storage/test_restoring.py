"""Real processes that follow a plan: clocks change beside them, and come back whatever the end.

Once on the simulated node, once on NVIDIA's own binding and a driver library of ours.
"""

from __future__ import annotations

import signal
import statistics
import time

import pytest
from tests.device.clients import LONG_ENOUGH, Clients
from tests.optimizer.pipeline_frequency.job.reports import measured, registering, registration

from simulated_drivers import GpuSpec, SimulatedNvml
from zeus.clock import MonotonicClock
from zeus.device import _simulated as simulated
from zeus.device._base import ClockRange
from zeus.optimizer.pipeline_frequency.api._commands import (
    PutMeasurements,
    PutSequence,
    ReportStraggler,
)
from zeus.optimizer.pipeline_frequency.job._messages import Instruction, Straggler
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store

ODD = (615, 1395)
"""MHz that nobody would put back by mistake."""
STEP = [Instruction("forward"), Instruction("backward")]

TRAINING = """
from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.store import Store
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines

optimizer = PipelineFrequencyOptimizer(
    1, 1, 0, 0, 0, 2, 1, 1, 2, "http://127.0.0.1:1", job="test", warm_up_steps=2,
    api=Pipelines(Store(os.environ["ZEUS_STORAGE"])),
)

def train():
    optimizer.on_step_begin()
    for name in ("forward", "backward"):
        with optimizer.instruction(name):
            time.sleep(0.002)
    optimizer.on_step_end()

def follow():
    while optimizer.clocks is None:
        train()
        assert optimizer.trouble == "", optimizer.trouble
    train()
"""

FOLLOW = (
    TRAINING
    + """
follow()
say(optimizer.clocks)
heard()
"""
)


@pytest.fixture
def storage(tmp_path):
    """Of a job whose other pipeline has told all, and takes so long that this one has time."""
    where = f"sqlite:///{tmp_path}/jobs.db"
    store = Store(where)
    api = Pipelines(store)
    api.do(registering("test", registration(0, (2, 1, 1))))
    api.do(PutSequence(job="test", rank=0, session="session 0", instructions=STEP))
    api.do(PutMeasurements(job="test", rank=0, session="session 0", **measured(STEP).to_dict()))
    api.do(ReportStraggler(job="test", straggler=Straggler(0, slowdown=1.25)))
    store.close()
    return where


def eventually(lock, wanted):
    """Clocks are set by a thread of their own, which needs its moment."""
    deadline = time.monotonic() + LONG_ENOUGH
    while lock() != wanted:
        assert time.monotonic() < deadline, f"{lock()} is not {wanted}"
        time.sleep(0.005)


# --- on the simulated node ------------------------------------------------------------------------


@pytest.fixture
def clients(storage):
    clients = Clients(
        ZEUS_SIMULATE="a100",
        ZEUS_SIMULATE_SENSORS="live-power",
        ZEUS_HELPER="0",
        ZEUS_STORAGE=storage,
    )
    yield clients
    clients.stop()


@pytest.fixture
def lock():
    """Reads the lock of the shared GPU, which begins at an odd one."""
    (gpu,) = simulated.build("a100", MonotonicClock(), None, "live-power")
    gpu.lock_graphics_clock(ClockRange(*ODD))

    def read():
        found = gpu.locked_graphics_clock()
        return None if found is None else (found.minimum, found.maximum)

    return read


@pytest.mark.parametrize(
    ("last_words", "code"),
    [("", 0), ("optimizer.close()", 0), ("raise RuntimeError('out of memory')", 1)],
)
def test_a_training_run_that_ends_in_its_own_way(clients, lock, last_words, code):
    training = clients.start(FOLLOW + last_words)
    clocks = training.hear()
    assert max(clocks) < 1395
    eventually(lock, (210, clocks[0]))
    training.tell()
    assert training.end() == code, training.errors
    assert lock() == ODD


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_training_run_that_is_told_to_end(clients, lock, number):
    training = clients.start(FOLLOW)
    clock = training.hear()[0]
    eventually(lock, (210, clock))
    training.send(number)
    assert training.end() == -number
    assert lock() == ODD


def test_a_training_run_that_is_killed(clients, lock):
    training = clients.start(FOLLOW)
    clock = training.hear()[0]
    eventually(lock, (210, clock))
    training.send(signal.SIGKILL)
    assert training.end() == -signal.SIGKILL
    assert lock() == (210, clock), "nobody is left to put it back"
    clients.ask("say(len(get_gpus()))")  # Zeus starts again on the machine
    assert lock() == ODD


# --- on NVIDIA's binding --------------------------------------------------------------------------

WALK = (
    TRAINING
    + """
from simulated_drivers import SimulatedNvml

simulation = SimulatedNvml.from_environment()
follow()
plan = optimizer.clocks
seen, early = [], 0

def locked():
    return simulation.clocks(0).locked_graphics

def wait_for_change(before):
    global early
    early += locked() == before
    deadline = time.monotonic() + 60
    while locked() == before and time.monotonic() < deadline:
        time.sleep(0.01)
    seen.append(locked())

while len(seen) < 12:
    optimizer.on_step_begin()
    if optimizer._phase._what != "planned":  # a reference, at one clock
        for name in ("forward", "backward"):
            with optimizer.instruction(name):
                pass
        optimizer.on_step_end()
        continue
    optimizer.on_instruction_begin("forward")
    before = locked()
    optimizer.on_instruction_end("forward")
    wait_for_change(before)
    optimizer.on_instruction_begin("backward")
    before = locked()
    optimizer.on_instruction_end("backward")
    optimizer.on_step_end()
    wait_for_change(before)
say({"plan": plan, "seen": seen, "early": early})
heard()
"""
)


@pytest.mark.real_time
def test_on_the_driver_clocks_change_beside_the_training_thread(tmp_path, nvml_library, storage):
    store = Store(storage)
    api = Pipelines(store)
    # Forward and backward are to run at different clocks: the clock changes at every instruction.
    options = dict(measured(STEP).options)
    forward, _ = options
    options[forward] = options[forward][:1]
    api.do(
        PutSequence(
            job="test",
            rank=0,
            session="session 0",
            instructions=[*STEP, Instruction("communication")],
        )
    )
    api.do(PutSequence(job="test", rank=0, session="session 0", instructions=STEP))
    api.do(
        PutMeasurements(
            job="test",
            rank=0,
            session="session 0",
            **type(measured(STEP))(options, 80.0, 1).to_dict(),
        )
    )
    store.close()
    gpu = GpuSpec(sensors="live-power", name="NVIDIA A100-SXM4-80GB", needs_root=False)
    with SimulatedNvml.create(tmp_path / "nvml", [gpu]) as simulation:
        simulation.set_driver_latency(0.1)  # a driver that takes its time
        clients = Clients(
            **simulation.environment(nvml_library), ZEUS_HELPER="0", ZEUS_STORAGE=storage
        )
        training = clients.start(WALK)
        said = training.hear()
        training.tell()
        assert training.end() == 0, training.errors
        first, second = said["plan"]
        assert first == 1410 > second
        # Each is set once the instruction before it begins or has ended,
        assert {tuple(lock) for lock in said["seen"][2::2]} == {(210, second)}
        assert {tuple(lock) for lock in said["seen"][3::2]} == {(210, first)}
        # and the training thread goes on before the driver has taken it.
        assert said["early"] > 6
        assert simulation.clocks(0).locked_graphics is None
        clients.stop()


# --- the walk, in real time -----------------------------------------------------------------------

MEASURE = """
from zeus.device._node import current_node
from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.store import Store
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.testing import Workload
from zeus.testing._workload import simulated_driver

api = Pipelines(Store(os.environ["ZEUS_STORAGE"]))
gpu = current_node().gpus[0]
driver = simulated_driver(gpu)
driver.set_load(0.0)
optimizer = PipelineFrequencyOptimizer(
    0, 0, 0, 0, 0, 1, 1, 1, 1, "http://127.0.0.1:1", job="alone", warm_up_steps=2,
    api=api, clock_stride=300,
)
work = {"forward": Workload("forward", 0.03, compute_bound=0.8),
        "backward": Workload("backward", 0.06, compute_bound=0.8)}
truth = {}
while optimizer.clocks is None and optimizer.trouble == "":
    optimizer.on_step_begin()
    for name in ("forward", "backward") * 3:
        with optimizer.instruction(name):
            lock = gpu.locked_graphics_clock()
            before, began = driver.exact_energy(), time.monotonic()
            work[name].run(gpu)
            taken = time.monotonic() - began, driver.exact_energy() - before
        if lock is not None and gpu.locked_graphics_clock() == lock:
            truth.setdefault(f"{name} {lock.maximum}", []).append(taken)
        time.sleep(0.02)
    optimizer.on_step_end()
measured = api._read("alone").ranks[0].measured.to_dict() if not optimizer.trouble else None
say({"trouble": optimizer.trouble, "measured": measured, "truth": truth})
"""


@pytest.mark.real_time
def test_beside_a_training_thread_instructions_are_measured_as_they_are(tmp_path):
    storage = f"sqlite:///{tmp_path}/alone.db"
    clients = Clients(
        ZEUS_SIMULATE="a100", ZEUS_SIMULATE_SENSORS="live-power", ZEUS_STORAGE=storage
    )
    said = clients.ask(MEASURE)
    clients.stop()
    assert said["trouble"] == ""
    for kind in said["measured"]["options"]:
        assert len(kind["clocks"]) >= 2
        for clock, seconds, joules in zip(
            kind["clocks"], kind["times"], kind["energies"], strict=True
        ):
            taken = said["truth"][f"{kind['name']} {clock}"]
            assert seconds == pytest.approx(statistics.median(t for t, _ in taken), rel=0.15)
            assert joules == pytest.approx(statistics.median(e for _, e in taken), rel=0.15)
        assert kind["times"] == sorted(kind["times"])
    assert said["measured"]["blocking_power"] == pytest.approx(83.0, rel=0.3)
