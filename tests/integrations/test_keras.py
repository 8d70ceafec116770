"""`fit` of Keras, on its PyTorch back end, with a model of two layers."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from tests.integrations.support import ENOUGH_STEPS, STEP, Limits, Recorder, run_example
from tests.integrations.trackers import running

os.environ["KERAS_BACKEND"] = "torch"  # read when Keras is first imported
keras = pytest.importorskip("keras")
Sequential: Any = keras.Sequential
Callback: Any = keras.callbacks.Callback
numpy = pytest.importorskip("numpy")

from zeus.integrations.keras import ZeusCallback  # noqa: E402

pytestmark = pytest.mark.usefixtures("node")


class TrainingError(Exception):
    pass


def make_model(before_batch=lambda: None, **options):
    class Model(Sequential):
        def train_step(self, data):
            before_batch()
            return super().train_step(data)

    model = Model([keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01, **options), loss="mse")
    return model


def data(batches=4):
    return numpy.ones((batches, 4)), numpy.ones((batches, 1))


def fit(model, *callbacks, batches=4, **options):
    return model.fit(
        *data(batches),
        batch_size=1,
        verbose=0,
        callbacks=list(callbacks),
        **{"epochs": 2, **options},
    )


def test_epochs_and_steps(recorder):
    fit(make_model(), ZeusCallback(recorder))
    assert recorder.story == "[()()()()][()()()()]x"
    assert recorder.threads == {threading.get_ident()}


def test_a_step_is_one_step_of_the_optimizer(recorder):
    model = make_model(gradient_accumulation_steps=2)
    fit(model, ZeusCallback(recorder))
    assert int(model.optimizer.iterations) == recorder.story.count("()")
    assert recorder.story == "[()()][()()]x"


def test_a_step_that_an_epoch_leaves_open_ends_with_it(recorder):
    fit(make_model(gradient_accumulation_steps=2), ZeusCallback(recorder), batches=3)
    assert recorder.story == "[()()][()()]x"


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"
)
def test_validation_is_a_pause(recorder):
    model = make_model()
    callback = ZeusCallback(recorder)
    model.evaluate(*data(), verbose=0, callbacks=[callback])
    fit(model, callback, batches=2, validation_data=data(2))
    model.predict(data()[0], verbose=0, callbacks=[callback])
    assert recorder.story == "[()()pr][()()pr]x"


def test_early_stopping(recorder):
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=1)
    fit(make_model(), ZeusCallback(recorder), stopping, epochs=9, batches=1)
    assert recorder.story == "[()][()]x"


def test_stopping_within_an_epoch(recorder):
    model = make_model()

    class Stopping(Callback):
        def on_train_batch_end(self, batch, logs=None):
            model.stop_training = batch == 1

    fit(model, ZeusCallback(recorder), Stopping())
    assert recorder.story == "[()()]x"


def test_training_resumed_at_an_epoch(recorder):
    fit(make_model(), ZeusCallback(recorder), epochs=5, initial_epoch=4, batches=2)
    assert recorder.story == "[()()]x"


@pytest.mark.parametrize("error", [TrainingError, KeyboardInterrupt])
def test_an_exception_closes_soon(recorder, error):
    def before_batch():
        if len(recorder.story) > 5:
            raise error

    with pytest.raises(error):
        fit(make_model(before_batch), ZeusCallback(recorder))
    assert recorder.closed.wait(60)
    assert recorder.story == "[()()(x"


def test_an_exception_closes_at_once_in_a_with_block(recorder):
    def before_batch():
        raise TrainingError

    with pytest.raises(TrainingError), ZeusCallback(recorder) as callback:
        fit(make_model(before_batch), callback)
    assert recorder.story == "[(x"
    assert recorder.threads == {threading.get_ident()}


def test_epochs_are_in_the_history(recorder, node):
    model = make_model(before_batch=lambda: node.sleep(2.0))
    history = fit(model, ZeusCallback(recorder), validation_data=data(2)).history
    assert history["zeus/epoch_time"] == pytest.approx([8.0, 8.0])
    assert all(energy > 0 for energy in history["zeus/epoch_energy"])
    assert len(history["loss"]) == len(history["val_loss"]) == 2


def test_one_line_optimizes_the_power_limit_every_time(node):
    callback = ZeusCallback()
    for _ in range(2):
        limits = Limits(node)
        fit(make_model(limits.work), callback, batches=ENOUGH_STEPS, epochs=1)
        limits.assert_lowered_and_restored()


def test_an_exception_restores_the_limit(node):
    limits = Limits(node)

    def before_batch():
        limits.work()
        if len(limits.seen) == ENOUGH_STEPS:
            raise TrainingError

    with pytest.raises(TrainingError):
        fit(make_model(before_batch), ZeusCallback(), batches=ENOUGH_STEPS)
    limits.wait_until_restored()
    limits.assert_lowered_and_restored()


def test_the_example_in_the_document(capsys):
    run_example("Keras")
    assert "zeus/epoch_energy" in capsys.readouterr().out


def test_steps_in_wandb_are_the_optimizers_also_when_it_resumes(tmp_path, monkeypatch, node):
    model = make_model(lambda: STEP.run(node.gpus), gradient_accumulation_steps=2)
    with running("wandb", tmp_path, monkeypatch) as tool:
        exact = node.exact_energy()
        for _ in range(2):  # the second `fit` continues
            fit(model, ZeusCallback(Recorder(), tracker=tool.make(every=1, samples=2)), epochs=1)
        exact = node.exact_energy() - exact
        tool.end()
        logged = tool.read()
    assert int(model.optimizer.iterations) == 4
    assert [step for step, _ in logged["zeus/step_energy"]] == [1, 2, 3, 4]
    assert [step for step, _ in logged["zeus/epoch_energy"]] == [2, 4]
    energies = [value for _, value in logged["zeus/epoch_energy"]]
    assert sum(energies) == pytest.approx(exact, rel=0.01)
    assert [value for _, value in logged["zeus/epoch_energy_per_sample"]] == pytest.approx(
        [energy / 4 for energy in energies]
    )
