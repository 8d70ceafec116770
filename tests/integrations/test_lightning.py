"""The `Trainer` of Lightning, with a model of two layers."""

from __future__ import annotations

import csv
import importlib
import logging
import signal
import sys
import threading
from typing import Any, cast

import pytest
from tests.integrations.support import ENOUGH_STEPS, STEP, Limits, Recorder, run_example
from tests.integrations.trackers import running

import zeus.integrations

pytest.importorskip("lightning")

import torch
from lightning import pytorch as lightning
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from zeus.errors import RunError
from zeus.integrations.lightning import ZeusCallback

pytestmark = [
    pytest.mark.usefixtures("node"),
    # Lightning asks PyTorch in a way that is going out of use.
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\):FutureWarning"),
    # Advice on data, of which there is hardly any here.
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than"),
    pytest.mark.filterwarnings("ignore:The `srun` command is available on your system"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
]


class TrainingError(Exception):
    pass


def make_model(package=lightning, before_batch=lambda: None):
    Module: Any = package.LightningModule

    class Model(Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))

        def training_step(self, batch):
            before_batch()
            return self.layers(batch).square().mean()

        def validation_step(self, batch):
            self.log("loss", self.layers(batch).square().mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Model()


def make_trainer(*callbacks, package=lightning, logger=False, **options):
    checkpoints = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    return package.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=logger,
        enable_checkpointing=checkpoints,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 2, "num_sanity_val_steps": 0, **options},
    )


def loader(batches=4):
    return torch.utils.data.DataLoader(cast(Any, torch.ones(batches, 4)), batch_size=1)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setattr(logging.getLogger(f"{name}.utilities.rank_zero"), "disabled", True)


def test_epochs_and_steps(recorder):
    make_trainer(ZeusCallback(recorder)).fit(make_model(), loader())
    assert recorder.story == "[()()()()][()()()()]x"
    assert recorder.threads == {threading.get_ident()}


def test_a_step_is_one_step_of_the_optimizer(recorder):
    trainer = make_trainer(ZeusCallback(recorder), accumulate_grad_batches=2)
    trainer.fit(make_model(), loader(5))
    assert trainer.global_step == recorder.story.count("()")
    assert recorder.story == "[()()()][()()()]x"


def test_validation_within_an_epoch_is_a_pause(recorder):
    trainer = make_trainer(ZeusCallback(recorder), val_check_interval=2, num_sanity_val_steps=2)
    trainer.validate(make_model(), loader(), verbose=False)
    trainer.fit(make_model(), loader(5), loader(1))
    assert recorder.story == "[()()pr()()pr()][()()pr()()pr()]x"


def test_validation_at_the_end_of_an_epoch_is_a_pause(recorder):
    make_trainer(ZeusCallback(recorder)).fit(make_model(), loader(2), loader(1))
    assert recorder.story == "[()()pr][()()pr]x"


def test_validation_in_the_middle_of_a_step_ends_it(recorder):
    trainer = make_trainer(
        ZeusCallback(recorder), max_epochs=1, accumulate_grad_batches=4, val_check_interval=2
    )
    trainer.fit(make_model(), loader(8), loader(1))
    assert recorder.story == "[()pr" + "pr" + "()pr" + "pr]x"


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_checkpoints_within_an_epoch_are_pauses_and_training_resumes_from_them(recorder, tmp_path):
    def checkpoints():
        return ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3)

    trainer = make_trainer(ZeusCallback(recorder), checkpoints(), max_epochs=1)
    trainer.fit(make_model(), loader(4))
    assert recorder.story == "[()()()pr()]x"

    resumed = Recorder()
    trainer = make_trainer(ZeusCallback(resumed), checkpoints())
    trainer.fit(make_model(), loader(4), ckpt_path=tmp_path / "step=3.ckpt")
    assert resumed.story == "[()][()()pr()()]x"


def test_early_stopping(recorder):
    stopping = EarlyStopping("loss", patience=1, min_delta=1e9)
    make_trainer(ZeusCallback(recorder), stopping, max_epochs=9).fit(
        make_model(), loader(1), loader(1)
    )
    assert recorder.story == "[()pr][()pr]x"


def test_a_limit_of_steps(recorder):
    make_trainer(ZeusCallback(recorder), max_steps=3, max_epochs=-1).fit(make_model(), loader(2))
    assert recorder.story == "[()()][()]x"


def test_a_model_that_skips_the_rest_of_an_epoch(recorder):
    model = make_model()
    model.on_train_batch_start = lambda _batch, index: -1 if index == 1 else None
    make_trainer(ZeusCallback(recorder), max_epochs=1).fit(model, loader(4))
    assert recorder.story == "[()()]x"


@pytest.mark.parametrize("stage", ["training", "validation"])
def test_an_exception_closes_at_once(recorder, stage):
    def fail(*_):
        if len(recorder.story) > 5:
            raise TrainingError

    model = make_model(before_batch=fail if stage == "training" else lambda: None)
    if stage == "validation":
        model.validation_step = fail
    with pytest.raises(TrainingError):
        make_trainer(ZeusCallback(recorder)).fit(model, loader(3), loader(1))
    assert recorder.story == {"training": "[()()(x", "validation": "[()()()px"}[stage]


def test_an_interrupt_closes_at_once(recorder):
    def interrupt():
        raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            make_trainer(ZeusCallback(recorder)).fit(make_model(before_batch=interrupt), loader())
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning has put another one there
    assert recorder.story == "[(x"


def test_epochs_are_logged(recorder, node, tmp_path):
    trainer = make_trainer(ZeusCallback(recorder), logger=CSVLogger(tmp_path))
    trainer.fit(make_model(before_batch=lambda: node.sleep(2.0)), loader(3), loader(1))
    assert trainer.callback_metrics["zeus/epoch_time"] == pytest.approx(6.0)
    (log,) = tmp_path.rglob("metrics.csv")
    rows = [row for row in csv.DictReader(log.read_text().splitlines()) if row["zeus/epoch_time"]]
    assert [float(row["zeus/epoch_time"]) for row in rows] == pytest.approx([6.0, 6.0])
    assert all(float(row["zeus/epoch_energy"]) > 0 for row in rows)


def test_one_line_optimizes_the_power_limit(node):
    limits = Limits(node)
    make_trainer(ZeusCallback()).fit(make_model(before_batch=limits.work), loader(ENOUGH_STEPS))
    limits.assert_lowered_and_restored()


def test_an_exception_restores_the_limit(node):
    limits = Limits(node)

    def before_batch():
        limits.work()
        if len(limits.seen) == ENOUGH_STEPS:
            raise TrainingError

    with pytest.raises(TrainingError):
        make_trainer(ZeusCallback()).fit(make_model(before_batch=before_batch), loader(100))
    limits.assert_lowered_and_restored()


def test_the_package_pytorch_lightning(recorder, monkeypatch):
    """What a program has imported counts, although the other is installed too."""
    package = pytest.importorskip("pytorch_lightning")
    monkeypatch.delattr(zeus.integrations, "lightning")
    monkeypatch.delitem(sys.modules, "zeus.integrations.lightning")
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    theirs = importlib.import_module("zeus.integrations.lightning").ZeusCallback
    assert issubclass(theirs, package.Callback)
    assert not issubclass(theirs, lightning.Callback)
    trainer = make_trainer(theirs(recorder), package=package, max_epochs=1)
    trainer.fit(make_model(package), loader(2))
    assert recorder.story == "[()()]x"
    assert trainer.callback_metrics["zeus/epoch_time"] == 0.0


def test_the_example_in_the_document(capsys):
    run_example("Lightning")
    assert "zeus/epoch_energy" in capsys.readouterr().out


@pytest.mark.parametrize(("accumulated", "right"), [(2, True), (1, False)])
def test_a_recurring_job_trains_with_the_share_that_it_decided(shared_batch, accumulated, right):
    data = torch.utils.data.DataLoader(cast(Any, torch.ones(8, 4)), batch_size=2)
    trainer = make_trainer(
        ZeusCallback(shared_batch), accumulate_grad_batches=accumulated, max_epochs=1
    )
    if right:
        trainer.fit(make_model(), data)
        return
    with pytest.raises(RunError, match=r"2 \* 2` for each process, but .* trains with 2 samples"):
        trainer.fit(make_model(), data)


def test_steps_in_tensorboard_are_the_trainers_also_when_it_resumes(tmp_path, monkeypatch, node):
    exact = node.exact_energy()
    with running("tensorboard", tmp_path, monkeypatch) as tool:
        for epochs, checkpoint in ((1, None), (2, tmp_path / "resume.ckpt")):
            callback = ZeusCallback(Recorder(), tracker=tool.make(every=1))
            trainer = make_trainer(callback, accumulate_grad_batches=2, max_epochs=epochs)
            model = make_model(before_batch=lambda: STEP.run(node.gpus))
            trainer.fit(model, loader(5), ckpt_path=checkpoint)
            trainer.save_checkpoint(tmp_path / "resume.ckpt")
        exact = node.exact_energy() - exact
        logged = tool.read()
    assert trainer.global_step == 6
    assert [step for step, _ in logged["zeus/epoch_energy"]] == [3, 6]
    assert sum(value for _, value in logged["zeus/epoch_energy"]) == pytest.approx(exact, rel=0.01)
    # The last step of an epoch is one batch, and ends with the epoch.
    assert [step for step, _ in logged["zeus/step_energy"]] == [1, 2, 3, 4, 5, 6]
    samples = [
        energy / by_sample
        for (_, energy), (_, by_sample) in zip(
            logged["zeus/step_energy"], logged["zeus/energy_per_sample"], strict=True
        )
    ]
    assert samples == pytest.approx([2, 2, 1, 2, 2, 1])
