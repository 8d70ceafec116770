"""However a training program ends, the limit from before it comes back. In real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.device.clients import SPEC, Clients, onlookers

ODD = 187.5
"""Watts that nobody would put back by mistake: neither the maximum nor the default."""

TRAINING = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalPowerLimitOptimizer

monitor = ZeusMonitor([0])
plo = GlobalPowerLimitOptimizer(
    monitor, wait_steps=0, warmup_steps=0, profile_steps=2, pl_step=75, raise_limit=True
)

def train(steps):
    plo.on_epoch_begin()
    for _ in range(steps):
        plo.on_step_begin()
        time.sleep(0.005)
        plo.on_step_end()
    plo.on_epoch_end()

plo.on_epoch_begin()
plo.on_step_begin()
time.sleep(0.005)
say("profiling")
heard()
while not plo.decided:
    train(1)
say(plo.selection.point.knob)
word = heard()
"""

ENDS = {
    "by itself": "",
    "closed": "plo.close(); plo.close()",
    "with": "plo.__exit__(None, None, None)",
    "exception": "raise RuntimeError('out of memory')",
    "exit": "sys.exit(3)",
    "interrupt": "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)",
}


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients(ZEUS_SIMULATE=SPEC, ZEUS_HELPER="0")
    yield clients
    clients.stop()


@pytest.fixture
def limit():
    """Reads the limit that is in force on the shared GPU 0, which begins at an odd value."""
    gpu = onlookers()[0]
    gpu.set_power_limit(ODD)
    return gpu.power_limit


def recovered(clients: Clients) -> float:
    """The limit after Zeus has started again on the machine."""
    watts: float = clients.ask("say(get_gpus()[0].power_limit())")
    return watts


def decided(training, limit) -> float:
    """Let it profile and choose; the limit that it chose, by chance, as its steps are all alike."""
    assert training.hear() == "profiling"
    assert limit() == 250, "the first that is tried"
    training.tell()
    chosen: float = training.hear()
    assert limit() == chosen
    return chosen


def test_programs_that_end_in_their_own_way(clients, limit):
    for name, last_words in ENDS.items():
        training = clients.start(TRAINING + last_words)
        decided(training, limit)
        training.tell()
        code = training.end()
        assert (code == 0) == (name in ("by itself", "closed", "with")), training.errors
        assert limit() == ODD, name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_is_told_to_end_amid_profiling(clients, limit, number):
    training = clients.start(TRAINING)
    assert training.hear() == "profiling"
    assert limit() == 250
    training.send(number)
    assert training.end() == -number
    assert limit() == ODD


@pytest.mark.parametrize("phase", ["profiling", "decided"])
def test_a_program_that_is_killed(clients, limit, phase):
    training = clients.start(TRAINING)
    if phase == "decided":
        held = decided(training, limit)
    else:
        assert training.hear() == "profiling"
        held = 250
    training.send(signal.SIGKILL)
    assert training.end() == -signal.SIGKILL
    assert limit() == held, "nobody is left to put it back"
    assert recovered(clients) == ODD
    assert limit() == ODD


def test_after_a_kill_the_next_training_restores_the_first_limit(clients, limit):
    killed = clients.start(TRAINING)
    assert killed.hear() == "profiling"
    killed.send(signal.SIGKILL)
    killed.end()
    training = clients.start(TRAINING)
    decided(training, limit)
    training.tell()
    assert training.end() == 0
    assert limit() == ODD


def test_two_programs_on_one_gpu(clients, limit):
    first = clients.start(TRAINING)
    decided(first, limit)
    second = clients.start(TRAINING)
    assert second.hear() == "profiling"
    first.tell()
    assert first.end() == 0
    assert limit() == 250, "the second one goes on"
    second.tell()
    second.hear()
    second.tell()
    assert second.end() == 0
    assert limit() == ODD
