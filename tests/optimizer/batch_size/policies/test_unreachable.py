"""Targets that nothing reaches: one run a night, another batch size each, and a word about it."""

from __future__ import annotations

from tests.optimizer.batch_size.histories import A40, decided, spec

from zeus.optimizer.batch_size.job._attempts import usual_attempts
from zeus.optimizer.batch_size.job._events import Ended, EpochReported
from zeus.optimizer.batch_size.policies._job_state import JobState


def night(brain: JobState, outcome: str = "failed", metric: float = 0.5) -> list[int]:
    """Run a recurrence as `zeus run` would, with trials that all end alike; their batch sizes."""
    sizes: list[int] = []
    before = None
    for _ in range(usual_attempts(brain.spec)):
        begun = decided(brain, 1.0, A40, before)
        brain.apply(begun)
        sizes.append(begun.batch_size)
        for epoch in range(1, 3):
            brain.apply(
                EpochReported(
                    trial=begun.trial, at=2.0, epoch=epoch, time=1.0, energy=9.0,
                    metric=metric + 0.01 * epoch,
                )
            )  # fmt: skip
        end = Ended(trial=begun.trial, at=3.0, outcome=outcome)
        advice = brain.log.advice(end)
        brain.apply(end)
        before = begun.trial
        if outcome in ("converged", "cancelled") or advice:
            break
    return sizes


def test_attempts_back_off_until_one_reaches_the_target():
    brain = JobState(spec())
    assert [len(night(brain)) for _ in range(6)] == [5, 5, 2, 1, 1, 1]
    assert brain.trouble == (
        "target not reached by any batch size in the latest 6 recurrences; best metric 0.52"
    )
    night(brain, metric=0.85)
    assert brain.trouble.endswith("in the latest 7 recurrences; best metric 0.87")
    assert len(night(brain, "converged", 0.95)) == 1
    assert brain.trouble == ""
    assert len(night(brain)) == 5


def test_every_night_another_batch_size_has_its_turn():
    brain = JobState(spec())
    for _ in range(3):
        night(brain)
    single = [night(brain) for _ in range(10)]
    assert {len(sizes) for sizes in single} == {1}
    assert {size for sizes in single for size in sizes} == set(brain.spec.batch_sizes)


def test_also_if_the_target_was_reached_before():
    brain = JobState(spec())
    for _ in range(5):
        night(brain, "converged", 0.95)
    for _ in range(4):
        night(brain)
    single = [night(brain) for _ in range(15)]
    assert {len(sizes) for sizes in single} == {1}
    assert len({size for sizes in single for size in sizes}) > 2


def test_the_best_metric_is_the_lowest_if_lower_is_better():
    brain = JobState(spec(higher_is_better=False, target_metric=0.1))
    night(brain)
    night(brain, metric=0.3)
    assert brain.trouble.endswith("best metric 0.31")


def test_the_best_metric_has_held_as_long_as_the_target_must():
    brain = JobState(spec(patience=2))
    night(brain, metric=0.95)  # 0.96 and 0.97
    night(brain, metric=0.97)  # 0.98 and 0.99
    assert brain.trouble.endswith("best metric 0.98")
    assert JobState.restored(brain.spec, brain.snapshot()).trouble == brain.trouble


def test_nights_that_were_interrupted_do_not_count():
    brain = JobState(spec())
    for _ in range(5):
        night(brain, "cancelled")
        night(brain, "expired")
    assert brain.log.recent.nights == 0
    assert len(night(brain)) == 5


def test_what_is_missing_survives_a_snapshot():
    brain = JobState(spec())
    for _ in range(4):
        night(brain)
    restored = JobState.restored(brain.spec, brain.snapshot())
    assert restored.log.recent == brain.log.recent
    assert restored.trouble == brain.trouble
    assert night(restored) == night(brain)
