"""The `Trainer` of Transformers, with a tiny model made on the spot."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.integrations.support import ENOUGH_STEPS, STEP, Limits, Recorder, run_example
from tests.integrations.trackers import running

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from zeus.errors import RunError
from zeus.frontier import Energy
from zeus.integrations.transformers import ZeusCallback
from zeus.monitor import ZeusMonitor

BATCH_SIZE = 2
TOKENS = torch.tensor([1, 2, 3, 4])
CONFIG = GPT2Config(
    n_layer=2, n_embd=8, n_head=2, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0
)


class TrainingError(Exception):
    pass


@pytest.fixture
def make_trainer(tmp_path, monkeypatch, node):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(logging.getLogger("transformers"), "disabled", True)

    def make(*callbacks, batches=4, before_batch=None, **arguments):
        model = GPT2LMHeadModel(CONFIG)

        def before_forward(model, _, inputs):
            if model.training and before_batch is not None:
                before_batch(inputs["input_ids"])

        model.register_forward_pre_hook(before_forward, with_kwargs=True)
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=BATCH_SIZE,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            **{"save_strategy": "no", "logging_strategy": "no", **arguments},
        )
        data = [{"input_ids": TOKENS, "labels": TOKENS}] * (BATCH_SIZE * batches)
        return Trainer(
            model, arguments, train_dataset=data, eval_dataset=data[:2], callbacks=list(callbacks)
        )

    return make


def failing_at(count: int):
    """Fails before the given batch, counted from 1."""
    left = [count]

    def before_batch(_):
        left[0] -= 1
        if left[0] == 0:
            raise TrainingError

    return before_batch


def test_epochs_and_steps(make_trainer, recorder):
    make_trainer(ZeusCallback(recorder), num_train_epochs=2).train()
    assert recorder.story == "[()()()()][()()()()]x"
    assert recorder.threads == {threading.get_ident()}


def test_a_step_is_one_step_of_the_optimizer(make_trainer, recorder):
    trainer = make_trainer(
        ZeusCallback(recorder), batches=5, num_train_epochs=2, gradient_accumulation_steps=2
    )
    trainer.train()
    assert trainer.state.global_step == recorder.story.count("()")
    assert recorder.story == "[()()()][()()()]x"


def test_evaluation_within_an_epoch_is_a_pause(make_trainer, recorder):
    make_trainer(
        ZeusCallback(recorder), num_train_epochs=2, eval_strategy="steps", eval_steps=3
    ).train()
    assert recorder.story == "[()()()pr()][()()pr()()pr]x"


def test_evaluation_between_epochs_is_not_part_of_any(make_trainer, recorder):
    trainer = make_trainer(ZeusCallback(recorder), num_train_epochs=2, eval_strategy="epoch")
    trainer.evaluate()
    trainer.train()
    trainer.evaluate()
    assert recorder.story == "[()()()()][()()()()]x"


def test_evaluation_that_a_later_callback_asks_for(make_trainer, recorder):
    class Asking(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_evaluate = state.global_step == 2

    make_trainer(ZeusCallback(recorder), Asking(), num_train_epochs=1).train()
    assert recorder.story == "[()()pr()()]x"


def test_checkpoints_within_an_epoch_are_pauses_and_training_resumes_from_them(
    make_trainer, recorder, tmp_path
):
    make_trainer(
        ZeusCallback(recorder), num_train_epochs=1, save_strategy="steps", save_steps=3
    ).train()
    assert recorder.story == "[()()()pr()pr]x"

    resumed = Recorder()
    trainer = make_trainer(ZeusCallback(resumed), num_train_epochs=2)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert resumed.story == "[()][()()()()]x"


def test_early_stopping(make_trainer, recorder):
    class Stopping(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 2

    make_trainer(ZeusCallback(recorder), Stopping(), num_train_epochs=5).train()
    assert recorder.story == "[()()]x"


@pytest.mark.parametrize("error", [TrainingError, KeyboardInterrupt])
def test_an_exception_closes_soon(make_trainer, recorder, error):
    def before_batch(_):
        if len(recorder.story) > 5:
            raise error

    trainer = make_trainer(ZeusCallback(recorder), before_batch=before_batch)
    with pytest.raises(error):
        trainer.train()
    assert recorder.closed.wait(60)
    assert recorder.story == "[()()(x"


def test_an_exception_closes_at_once_in_a_with_block(make_trainer, recorder):
    with pytest.raises(TrainingError), ZeusCallback(recorder) as callback:
        make_trainer(callback, before_batch=failing_at(2)).train()
    assert recorder.story == "[()(x"
    assert recorder.threads == {threading.get_ident()}


def test_training_again_after_an_exception(make_trainer, recorder):
    trainer = make_trainer(ZeusCallback(recorder), before_batch=failing_at(2), num_train_epochs=1)
    with pytest.raises(TrainingError):
        trainer.train()
    trainer.train()
    # Whether the end of the first was noticed before the second began is a matter of timing.
    assert recorder.story in ("[()()][()()()()]x", "[()(x[()()()()]x")


def test_a_second_try_with_a_smaller_batch_is_the_same_run(make_trainer, recorder):
    def before_batch(inputs):
        if len(inputs) > 1:
            raise RuntimeError("CUDA out of memory.")

    make_trainer(
        ZeusCallback(recorder),
        before_batch=before_batch,
        num_train_epochs=1,
        auto_find_batch_size=True,
    ).train()
    assert recorder.story == "[()][" + 8 * "()" + "]x"


@pytest.mark.parametrize("when", ["at construction", "later"])
def test_epochs_are_logged_beside_what_the_trainer_logs(make_trainer, node, recorder, when):
    callback = ZeusCallback(recorder)
    trainer = make_trainer(
        *([callback] if when == "at construction" else []),
        before_batch=lambda _: node.sleep(2.0),
        num_train_epochs=2,
        logging_strategy="epoch",
    )
    if when == "later":
        trainer.add_callback(callback)
    trainer.train()
    history = trainer.state.log_history
    ours = [entry for entry in history if "zeus/epoch_time" in entry]
    assert [entry["zeus/epoch_time"] for entry in ours] == pytest.approx([8.0, 8.0])
    assert [entry["zeus/epoch_energy"] > 0 for entry in ours] == [True, True]
    assert [entry["step"] for entry in ours] == [4, 8]
    assert sum("loss" in entry for entry in history) == 2


def test_one_line_optimizes_the_power_limit(make_trainer, node):
    limits = Limits(node)
    make_trainer(
        ZeusCallback(),
        batches=ENOUGH_STEPS,
        before_batch=lambda _: limits.work(),
        num_train_epochs=1,
    ).train()
    limits.assert_lowered_and_restored()


def test_an_exception_restores_the_limit(make_trainer, node):
    limits = Limits(node)

    def before_batch(_):
        limits.work()
        if len(limits.seen) == ENOUGH_STEPS:
            raise TrainingError

    trainer = make_trainer(ZeusCallback(), batches=ENOUGH_STEPS, before_batch=before_batch)
    with pytest.raises(TrainingError):
        trainer.train()
    limits.wait_until_restored()
    limits.assert_lowered_and_restored()


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
def test_the_example_in_the_document(node, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    run_example("Transformers")
    assert "zeus/epoch_energy" in capsys.readouterr().out


def test_a_recurring_job_trains_with_the_share_that_it_decided(make_trainer, shared_batch):
    make_trainer(ZeusCallback(shared_batch), gradient_accumulation_steps=2, max_steps=2).train()
    wrong = make_trainer(ZeusCallback(shared_batch), gradient_accumulation_steps=1, max_steps=2)
    with pytest.raises(RunError, match=r"2 \* 2` for each process, but .* trains with 2 samples"):
        wrong.train()


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_steps_in_mlflow_are_the_trainers_also_when_it_resumes(
    make_trainer, tmp_path, monkeypatch, node
):
    with running("mlflow", tmp_path, monkeypatch) as tool:
        exact = node.exact_energy()
        options = {"batches": 7, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
        tracker = tool.make(every=1)
        callback = ZeusCallback(Recorder(), tracker=tracker)
        work = {"before_batch": lambda _: STEP.run(node.gpus)}
        trainer = make_trainer(callback, save_strategy="steps", save_steps=6, **work, **options)
        trainer.train()
        exact = node.exact_energy() - exact
        logged = tool.read()
        callback = ZeusCallback(Recorder(), tracker=tracker)
        trainer = make_trainer(callback, **work, **options)
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
        resumed = tool.read()
    assert trainer.state.global_step == 8
    steps = list(range(1, 9))
    assert [step for step, _ in logged["zeus/step_energy"]] == steps
    assert sum(value for _, value in logged["zeus/step_energy"]) == pytest.approx(exact, rel=0.01)
    assert logged["zeus/run_energy"][-1] == (8, pytest.approx(exact, rel=0.01))
    # Of four batches each, except the last step of an epoch.
    samples = [
        energy / by_sample
        for (_, energy), (_, by_sample) in zip(
            logged["zeus/step_energy"], logged["zeus/energy_per_sample"], strict=True
        )
    ]
    assert samples == pytest.approx([4, 4, 4, 2] * 2)
    assert [step for step, _ in logged["zeus/epoch_energy"]] == [4, 8]
    again = [step for step, _ in resumed["zeus/step_energy"]]
    assert sorted(again) == sorted([*steps, 7, 8])


def test_the_callback_of_zeus_0_16(make_trainer, node):
    with pytest.warns(DeprecationWarning, match="zeus.integrations.transformers.ZeusCallback"):
        from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
    limits = Limits(node)
    callback = HFGlobalPowerLimitOptimizer(
        ZeusMonitor(), Energy(), wait_steps=1, warmup_steps=1, profile_steps=2
    )
    assert isinstance(callback, TrainerCallback)
    make_trainer(callback, batches=ENOUGH_STEPS, before_batch=lambda _: limits.work()).train()
    assert callback.optimizer.decided
    limits.assert_lowered_and_restored()
