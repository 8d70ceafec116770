"""Placeholders: what is filled in, what stays as it is, and what is a mistake."""

from __future__ import annotations

import pytest

from zeus.errors import RunError
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._share import BatchShare
from zeus.optimizer.batch_size.running._placeholders import (
    KNOWN,
    SHARES,
    SIZES,
    check_placeholders,
    filled,
    used,
    values_of,
)

DECISION = Decision(
    trial="7-3", job="nightly", recurrence=2, attempt=1, batch_size=64, optimize_power=True,
    power_limit=None, learning_rate_scale=1.4142135623730951, threshold=None, expected_epochs=None,
    role="explore", reason="", lease=600.0,
)  # fmt: skip
VALUES = values_of(DECISION, BatchShare.of(64, 4, 10))


def test_every_known_placeholder_has_a_value():
    assert set(VALUES) == set(KNOWN) >= {*SIZES, *SHARES}


@pytest.mark.parametrize(
    ("word", "done"),
    [
        ("{batch_size}", "64"),
        ("--batch-size={batch_size}", "--batch-size=64"),
        ("{local_batch_size}x{accumulation_steps}x{replicas}", "8x2x4"),
        ("{learning_rate_scale}", "1.4142135623730951"),
        ("{job}-{recurrence}-{attempt}-{trial}", "nightly-2-1-7-3"),
        ("{}", "{}"),
        ("{x} {batch of} {{batch_size}}", "{x} {batch of} {64}"),
        ("${HOME}", "${HOME}"),
        ("", ""),
    ],
)
def test_words_are_filled_in(word, done):
    words = ["train", "-b", "{batch_size}", word]
    check_placeholders(words)
    assert filled(words, VALUES) == ["train", "-b", "64", done]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--batch-size={batchsize}"], "{batchsize} (perhaps {batch_size})"),
        (["{batch-size}"], "{batch-size} (perhaps {batch_size})"),
        (["{batch_size}", "--lr={learningrate_scale}"], "(perhaps {learning_rate_scale})"),
        (["cd there && train -b {Batch_Size}"], "{Batch_Size} (perhaps {batch_size})"),
        (["-b", "{bs}"], "{bs}"),
        (["-b={bs}"], "{bs}"),
    ],
)
def test_an_unknown_placeholder_is_a_mistake(words, wrong):
    with pytest.raises(RunError) as found:
        check_placeholders(["train", *words])
    assert str(found.value).startswith(
        "a placeholder in the command must be one of {batch_size}, {local_batch_size}, "
    )
    assert str(found.value).endswith(f"but got {wrong}") or wrong in str(found.value)


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", "ls | awk '{print}'"],
        ["echo", "${BATCH_SIZE}", "{}", "{1..3}"],
        ["train", "-b", "{batch_size}", "{whatever}"],
        ["train", '{"json": {"a": 1}}'],
    ],
)
def test_braces_have_other_uses(words):
    check_placeholders(words)


def test_which_placeholders_are_used():
    assert used(["train", "--b={local_batch_size}"], SIZES)
    assert used(["train", "--b={local_batch_size}"], SHARES)
    assert not used(["train", "{batch_size}"], SHARES)
    assert not used(["train", "batch_size"], SIZES)
