"""Out of memory is monotone: in the batch, in the memory, and until a run proves otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.batch_size.histories import decided, spec

from zeus.optimizer.batch_size.job._events import Decided, Ended, EpochReported, GpuModel
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import JobState, Setup
from zeus.optimizer.batch_size.policies._memory import GpuMemory, MemoryEvidence

GB = 2**30
SMALL, MIDDLE, LARGE = (
    GpuMemory("small", 16 * GB),
    GpuMemory("middle", 32 * GB),
    GpuMemory("large", 80 * GB),
)


def trial(gpu: GpuMemory, batch_size: int, **changes: Any) -> Decided:
    values = {
        "trial": 1,
        "at": 1.0,
        "request": "r",
        "recurrence": 1,
        "gpu": gpu.name,
        "max_power": 300.0,
        "memory": gpu.memory,
        "batch_size": batch_size,
        "role": Role.EXPLORE,
        **changes,
    }
    return Decided(**values)


def evidence(ran: dict[GpuMemory, int], failed: dict[GpuMemory, int]) -> MemoryEvidence:
    found = MemoryEvidence()
    for gpu, size in ran.items():
        found.note_epoch(trial(gpu, size))
    for gpu, size in failed.items():
        found.note_failure(trial(gpu, size))
    return found


def test_what_did_not_fit_excludes_what_is_larger_there_and_where_there_is_less_memory():
    found = evidence({MIDDLE: 64}, {MIDDLE: 256})
    for gpu in (MIDDLE, SMALL):
        assert [found.too_large(gpu, size) for size in (64, 128, 256, 512)] == [
            False, False, True, True,
        ]  # fmt: skip
    assert not found.too_large(LARGE, 512)
    assert not found.too_large(GpuMemory("of unknown memory", None), 512)


def test_the_same_model_is_the_same_memory_even_if_unknown():
    unknown = GpuMemory("middle", None)
    assert evidence({unknown: 64}, {unknown: 256}).too_large(unknown, 256)
    assert not evidence({unknown: 64}, {unknown: 256}).too_large(SMALL, 256)


def test_a_program_that_always_crashes_has_another_problem():
    found = evidence({}, {MIDDLE: 64})
    assert not found.too_large(MIDDLE, 64)
    # Nor is it memory if it runs elsewhere, and there nothing.
    found.note_epoch(trial(LARGE, 16))
    assert not found.too_large(MIDDLE, 64)
    found.note_epoch(trial(MIDDLE, 16))
    assert found.too_large(MIDDLE, 64)


def test_a_run_that_proves_otherwise_takes_the_evidence_back():
    found = evidence({MIDDLE: 64}, {MIDDLE: 256, LARGE: 512})
    found.note_epoch(trial(MIDDLE, 256))  # it was something else
    assert not found.too_large(MIDDLE, 256)
    assert not found.too_large(MIDDLE, 1024)
    # A failure of what has run before is not a matter of memory.
    assert not found.note_failure(trial(MIDDLE, 128))
    assert not found.too_large(MIDDLE, 512)
    assert found.note_failure(trial(MIDDLE, 512))
    assert found.too_large(SMALL, 512)


def test_what_ran_on_less_memory_fits():
    found = evidence({SMALL: 256, MIDDLE: 64}, {MIDDLE: 128})
    assert not found.too_large(MIDDLE, 256)


def test_the_share_counts_not_the_batch():
    found = evidence({SMALL: 64}, {SMALL: 256})
    four = trial(SMALL, 512, gpus=4, max_power=1200.0)
    assert four.local_batch_size == 128
    assert not found.too_large(SMALL, four.local_batch_size)
    # Where several GPUs share a replica, each holds less of it: that is another thing.
    found.note_failure(trial(SMALL, 64, gpus=4, replicas=2, max_power=1200.0))
    assert GpuMemory.of("small", 4, 2, 16 * GB).split == 2
    assert not found.too_large(SMALL, 64)


def test_steps_that_were_measured_count_until_a_trial_needs_more_memory():
    found = MemoryEvidence()
    for size in (32, 64, 128, 256):
        found.note_steps(trial(MIDDLE, size))
    found.note_failure(trial(MIDDLE, 512))
    assert [found.too_large(MIDDLE, size) for size in (256, 512, 1024)] == [False, True, True]
    # The optimizer of the training has a state, which the measured steps had not.
    assert found.note_failure(trial(MIDDLE, 128))
    assert [found.too_large(MIDDLE, size) for size in (64, 128, 256)] == [False, True, True]
    found.note_epoch(trial(MIDDLE, 128))
    assert not found.too_large(MIDDLE, 256)
    # Steps take back what was said against their size, too.
    found.note_failure(trial(LARGE, 256))
    found.note_steps(trial(SMALL, 256))
    assert not found.failed
    assert MemoryEvidence.from_lists(found.to_lists()) == found


sizes = st.sampled_from([16, 32, 64, 128, 256, 512])
happenings = st.sampled_from(["epoch", "failure", "steps"])
runs = st.lists(st.tuples(st.sampled_from([SMALL, MIDDLE, LARGE]), sizes, happenings))


@settings(max_examples=100)
@given(runs)
def test_exclusion_is_monotone_whatever_has_happened(history):
    found = MemoryEvidence()
    for gpu, size, happened in history:
        getattr(found, f"note_{happened}")(trial(gpu, size))
    every = (16, 32, 64, 128, 256, 512, 1024)
    excluded = {gpu: [found.too_large(gpu, n) for n in every] for gpu in (SMALL, MIDDLE, LARGE)}
    for marks in excluded.values():
        assert marks == sorted(marks)  # no larger one is allowed
    for gpu, size in found.ran.items():
        assert not found.too_large(gpu, size)
    assert MemoryEvidence.from_lists(found.to_lists()) == found


# --- in decisions -------------------------------------------------------------------------------

GPU = GpuModel("small", 1)


def live(brain: JobState, batch_size: int | None, gpu: GpuModel = GPU, **setup: Any) -> int:
    """Begin a trial, with a batch size of the test's choice if any; it is run, or crashes."""
    begun = decided(brain, 1.0, gpu, **setup)
    if batch_size is not None:
        values = {**vars(begun), "batch_size": batch_size}
        begun = Decided(**values)
    brain.apply(begun)
    fits = begun.local_batch_size < 128
    if fits:
        brain.apply(
            EpochReported(trial=begun.trial, at=2.0, epoch=1, time=9.0, energy=99.0, metric=1.0)
        )
    brain.apply(Ended(trial=begun.trial, at=3.0, outcome="converged" if fits else "failed"))
    return begun.batch_size


@pytest.mark.parametrize("policy", ["zeus", "grid"])
def test_larger_batch_sizes_than_one_that_did_not_fit_are_not_tried(policy):
    job = spec(policy=policy, batch_sizes=(16, 32, 64, 128, 256, 512), exploration_budget=None)
    brain = JobState(job)
    chosen = [live(brain, 64, memory=16 * GB), live(brain, 256, memory=16 * GB)]
    chosen += [live(brain, None, memory=16 * GB) for _ in range(40)]
    assert 512 not in chosen
    assert chosen.count(256) == 1
    assert chosen.count(128) <= 1
    standing = {each.batch_size: each.standing for each in brain.beliefs(GPU)}
    assert standing[512] == standing[256] == ArmStatus.UNFIT
    assert standing[64] == ArmStatus.PROVEN


def test_more_gpus_make_the_share_smaller_and_the_batch_size_possible():
    job = spec(batch_sizes=(64, 128, 256), default_batch_size=256)
    brain = JobState(job)
    live(brain, 64, memory=16 * GB)
    live(brain, 256, memory=16 * GB)
    four = GpuModel("small", 4)
    assert brain.decide(GPU, setup=Setup(1, 16 * GB)).batch_size < 256
    for setup in (Setup(4, 16 * GB), Setup(None, 16 * GB)):
        sizes = brain._allowed_sizes(four, setup)
        assert sizes == [64, 128, 256]
    # So do accumulated gradients.
    assert brain._allowed_sizes(GPU, Setup(1, 16 * GB, 64)) == [64, 128, 256]
    # A smaller GPU inherits, a larger one does not; a run without a choice is as it is.
    other = GpuModel("other", 1)
    assert brain._allowed_sizes(other, Setup(1, 12 * GB)) == [64, 128]
    assert brain._allowed_sizes(other, Setup(1, 24 * GB)) == [64, 128, 256]
    assert brain.decide(other, default=True, setup=Setup(1, 12 * GB)).batch_size == 256


def test_if_nothing_fits_nothing_is_left_out():
    brain = JobState(spec(batch_sizes=(128, 256), default_batch_size=128))
    brain._memory.note_epoch(trial(GpuMemory("small", 16 * GB), 8))
    brain._memory.note_failure(trial(GpuMemory("small", 16 * GB), 16))
    assert brain._allowed_sizes(GPU, Setup(1, 16 * GB)) == [128, 256]


def test_evidence_survives_snapshots_and_replays():
    job = spec(batch_sizes=(64, 128, 256))
    brain, events = JobState(job), []
    apply = brain.apply

    def recorded(event: Any) -> Any:
        events.append(event)
        return apply(event)

    brain.apply = recorded  # type: ignore[method-assign]
    for size in (64, 256, 128, None, None):
        live(brain, size, memory=16 * GB)
    snapshot = brain.snapshot()
    again, restored = JobState.of(job, events), JobState.restored(job, snapshot)
    for other in (again, restored):
        assert other._memory == brain._memory
        assert other.beliefs(GPU) == brain.beliefs(GPU)
        assert other.next(GPU) == brain.next(GPU)
        assert other.snapshot() == snapshot
    assert {each.standing for each in brain.beliefs(GPU)[1:]} == {ArmStatus.UNFIT}
