"""Jobs and histories for tests: what policies decide, and outcomes that are made up."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    Event,
    GpuModel,
    Profiled,
    Resumed,
    SizeMeasured,
)
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._job_state import JobState, Setup

A40 = GpuModel("NVIDIA A40", 1)
V100 = GpuModel("Tesla V100", 4)


def spec(name: str = "nightly", **changes: Any) -> JobSpec:
    """A job with five batch sizes."""
    values: dict[str, Any] = {
        "batch_sizes": (16, 32, 64, 128, 256),
        "default_batch_size": 64,
        "target_metric": 0.9,
        "max_epochs": 20,
        "policy": "zeus",
        "seed": 7,
        **changes,
    }
    if values["policy"] == "grid":
        values.setdefault("power_limits", (100.0, 200.0, 300.0))
    return JobSpec(name=name, **values)


def decided(
    brain: JobState,
    at: float,
    gpu: GpuModel = A40,
    retry_of: int | None = None,
    max_power: float = 300.0,
    *,
    replicas: int | None = None,
    memory: int | None = None,
    max_local_batch_size: int | None = None,
) -> Decided:
    """The decision that comes next, as a store would log it."""
    before = None if retry_of is None else brain.log.retried(retry_of).decided
    attempt = 0 if before is None else before.attempt + 1
    setup = Setup(replicas, memory, max_local_batch_size)
    choice = brain.decide(gpu, attempt, setup=setup)
    return Decided(
        trial=brain.log.trials + 1,
        at=at,
        request=f"request {brain.log.trials + 1}",
        recurrence=brain.log.recurrences + 1 if before is None else before.recurrence,
        attempt=attempt,
        retry_of=retry_of,
        gpu=gpu.name,
        gpus=gpu.number,
        max_power=max_power * gpu.number,
        **setup._asdict(),
        **vars(choice),
    )


def random_history(job: JobSpec, seed: int, length: int) -> list[Event]:
    """A log of so many events in which everything happens that may, trials overlapping."""
    chance = random.Random(seed)
    events: list[Event] = []
    brain = JobState(job)
    needed: dict[int, int] = {}
    clock = itertools.count(1_700_000_000.0, 60.0)

    def take(event: Event) -> None:
        brain.apply(event)
        events.append(event)

    while len(events) < length:
        log, at = brain.log, next(clock)
        gpu = chance.choice([A40, V100])
        dice = chance.random()
        retryable = {n: trial.ended for n, trial in log.over.items() if trial.ended is not None}
        if not log.open or (dice < 0.2 and len(log.open) < 4):
            again = chance.choice(list(retryable)) if retryable and chance.random() < 0.5 else None
            take(decided(brain, at, gpu, again))
            batch_size = log.open[log.trials].decided.batch_size
            needed[log.trials] = chance.choice([4, 6, 8, 40]) + batch_size // 64
        elif dice < 0.25:
            lapsed = [n for n, ended in retryable.items() if ended.outcome == "expired"]
            if lapsed:
                take(Resumed(trial=chance.choice(lapsed), at=at))
        elif dice < 0.3:
            take(
                Profiled(
                    trial=0,
                    at=at,
                    gpu=gpu.name,
                    gpus=gpu.number,
                    batch_size=chance.choice(job.batch_sizes),
                    epoch_cost=chance.uniform(100, 1000),
                    load=chance.uniform(0.3, 1),
                )
            )
        elif dice < 0.32:
            take(
                SizeMeasured(
                    at=at,
                    gpu=gpu.name,
                    gpus=gpu.number,
                    batch_size=chance.choice(job.batch_sizes),
                    epoch_cost=chance.choice([None, chance.uniform(100, 1000)]),
                    load=chance.uniform(0.3, 1),
                )
            )
        elif dice < 0.35:
            outcome = chance.choice(["expired", "cancelled", "failed"])
            take(Ended(trial=chance.choice(list(log.open)), at=at, outcome=outcome))
        else:
            for event in _epoch(brain, chance, needed, chance.choice(list(log.open)), at):
                take(event)
    return events


def _epoch(
    brain: JobState, chance: random.Random, needed: dict[int, int], number: int, at: float
) -> Iterator[Event]:
    trial = brain.log.open[number]
    stop = brain.must_stop(number)
    if stop is not None:
        yield Ended(trial=number, at=at, outcome=stop.outcome, note=stop.reason)
        return
    epoch = trial.epochs + 1
    yield EpochReported(
        trial=number,
        at=at,
        epoch=epoch,
        time=chance.uniform(0.8, 1.2) * 64 / trial.decided.batch_size + 0.5,
        energy=chance.choice([None, chance.uniform(100, 400)]),
        metric=0.95 if epoch >= needed[number] else 0.5,
        power_limit=chance.choice([None, 200.0]),
    )
