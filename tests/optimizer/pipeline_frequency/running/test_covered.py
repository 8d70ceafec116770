"""Another process's hold above a rank's own: nothing is measured under a clock that is not set."""

from __future__ import annotations

import logging

import pytest
from tests.device.clients import Clients
from tests.optimizer.pipeline_frequency.running.rig import Training

from zeus.optimizer.pipeline_frequency.api._commands import ShowProfile
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store

OTHER = 1290  # MHz
QUICK = {"clock_stride": 120}


def train(tmp_path, name: str, disturb: bool) -> tuple[list, list]:
    """What a rank files, and how far it got while another hold was there."""
    store = Store(f"sqlite:///{tmp_path}/{name}.db")
    api = Pipelines(store)
    training = Training((1.0,), microbatches=2)
    training.connect(api, **QUICK)
    training.until("measuring")
    training.iterate(3)
    progress = []
    if disturb:
        learning = training.optimizers[0]._learning
        assert learning is not None
        with training.node.gpus[0].hold(graphics_clock=(210, OTHER)):
            progress.append(learning.profiler.steps)
            training.iterate(30)
            progress.append(learning.profiler.steps)
            assert training.optimizers[0].state == "measuring"
    training.until("following")
    training.close()
    profile = api.do(ShowProfile(job="test"))
    store.close()
    return profile, progress


def test_measuring_rests_while_another_hold_lies_above_and_goes_on_by_itself(tmp_path, caplog):
    usual, _ = train(tmp_path, "usual", disturb=False)
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING, "zeus"):
        found, progress = train(tmp_path, "disturbed", disturb=True)
    assert progress[0] == progress[1], "what ran at the other's clock was not measured"
    assert [(row["instruction"], row["frequency"]) for row in found] == [
        (row["instruction"], row["frequency"]) for row in usual
    ]
    for row, other in zip(found, usual, strict=True):
        assert row["time"] == pytest.approx(other["time"], rel=1e-6)
        assert row["energy"] == pytest.approx(other["energy"], rel=5e-3)
    (said,) = caplog.messages
    assert "rank 0 cannot set the graphics clock of" in said
    assert f"holds it at {OTHER} MHz" in said


TRAINING = """
from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.store import Store
from zeus.optimizer.pipeline_frequency.api._commands import ShowProfile
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines

api = Pipelines(Store(os.environ["ZEUS_STORAGE"]))
optimizer = PipelineFrequencyOptimizer(
    0, 0, 0, 0, 0, 1, 1, 1, 1, "http://127.0.0.1:1", job="test", warm_up_steps=2,
    clock_stride=240, sync_execution_with=None, api=api,
)

def train():
    optimizer.on_step_begin()
    for name in ("forward", "backward"):
        with optimizer.instruction(name):
            time.sleep(0.1)
    optimizer.on_step_end()
    assert optimizer.trouble == "", optimizer.trouble

while optimizer.state != "measuring":
    train()
say("measuring")
heard()
for _ in range(3):
    train()  # the first may have begun before
before = optimizer._learning.profiler.steps
for _ in range(15):
    train()
say([optimizer.state, optimizer._learning.profiler.steps - before])
heard()
while optimizer.clocks is None:
    train()
say(sorted({row["frequency"] for row in api.do(ShowProfile(job="test"))}))
optimizer.close()
"""

OTHER_PROCESS = """
(gpu,) = get_gpus()
with gpu.hold(graphics_clock=(210, 1290)):
    say(os.getpid())
    heard()
"""


@pytest.mark.real_time
def test_a_rank_beside_another_process_that_holds_the_clock(tmp_path):
    clients = Clients(
        ZEUS_SIMULATE="a100",
        ZEUS_SIMULATE_SENSORS="live-power",
        ZEUS_HELPER="0",
        ZEUS_STORAGE=f"sqlite:///{tmp_path}/jobs.db",
    )
    try:
        training = clients.start(TRAINING)
        assert training.hear() == "measuring"
        other = clients.start(OTHER_PROCESS)
        process = other.hear()
        training.tell()
        assert training.hear() == ["measuring", 0], "nothing was measured at the other's clock"
        other.tell()
        assert other.end() == 0
        training.tell()
        assert len(training.hear()) > 1, "it went on by itself"
        assert training.end() == 0
        said = [line for line in training.errors.splitlines() if "cannot set" in line]
        assert len(said) == 1
        assert f"process {process} holds it at 1290 MHz" in said[0]
    finally:
        clients.stop()
