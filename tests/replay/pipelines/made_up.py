"""A made-up cluster whose true times and powers are known, recorded in the published format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zeus.replay.pipelines._instructions import Kind, instructions

STAGES, MICROBATCHES, BLOCKING = 4, 16, 70.38
LINKS = (0.002, 0.045, 0.003)
LOAD, TAIL = 0.006, 0.03
WEIGHT = {Kind.FORWARD: 0.04, Kind.BACKWARD: 0.09}
SIZE = (1.0, 0.95, 0.9, 1.15)
SCALE = (1.0, 1.05, 0.95, 1.02)


def seconds(kind: Kind, stage: int, clock: float) -> float:
    """Return the true time of a computation."""
    return WEIGHT[kind] * SIZE[stage] * (0.2 + 0.8 * 1740 / clock)


def watts(stage: int, clock: float) -> float:
    """Return the true power of a computation."""
    return SCALE[stage] * (150 * clock / 1000 + 5 * (clock / 1000) ** 5)


def schedule(number: int, seed: int = 1) -> list[list[float]]:
    """Return the clock of each instruction of each stage; 0 and 1 are at the highest."""
    generator = np.random.default_rng([seed, number])
    clocks = []
    for stage in range(STAGES):
        low = generator.integers(70, 90) * 15
        high = low + 15 * generator.integers(1, 14)
        own, at = [], 1740.0
        for each in instructions(stage, STAGES, MICROBATCHES):
            if number > 1 and each.kind is Kind.FORWARD:
                at = float(low)
            elif number > 1 and each.kind is Kind.BACKWARD:
                at = float(high)
            own.append(at)
        clocks.append(own)
    return clocks


def executed(clocks: list[list[float]]) -> tuple[float, list[float]]:
    """Return time and energy of each stage, by stages that take turns and meet at links."""
    position, now, busy = [0] * STAGES, [0.0] * STAGES, [0.0] * STAGES
    orders = [instructions(stage, STAGES, MICROBATCHES) for stage in range(STAGES)]

    def current(stage: int) -> Any:
        return orders[stage][position[stage]] if position[stage] < len(orders[stage]) else None

    def exchanges() -> Iterator[int]:
        for link in range(STAGES - 1):
            at = [current(link), current(link + 1)]
            if all(each and each.kind is Kind.EXCHANGE and each.index == link for each in at):
                yield link

    joules = [0.0] * STAGES
    while any(current(stage) for stage in range(STAGES)):
        for stage in range(STAGES):
            while (each := current(stage)) and each.kind is not Kind.EXCHANGE:
                clock = clocks[stage][position[stage]]
                if each.kind is Kind.LOAD:
                    now[stage] += LOAD
                elif each.kind is not Kind.END:
                    spent = seconds(each.kind, stage, clock)
                    now[stage] += spent
                    busy[stage] += spent
                    joules[stage] += spent * watts(stage, clock)
                position[stage] += 1
        for link in list(exchanges()):
            now[link] = now[link + 1] = max(now[link], now[link + 1]) + LINKS[link]
            position[link] += 1
            position[link + 1] += 1
    end = max(now) + TAIL
    return end, [j + BLOCKING * (end - b) for j, b in zip(joules, busy, strict=True)]


def write(folder: Path, number: int, clocks: list[list[float]]) -> None:
    """Write both files of a schedule."""
    end, joules = executed(clocks)
    ranks = []
    for stage, own in enumerate(clocks):
        order = list(zip(instructions(stage, STAGES, MICROBATCHES), own, strict=True))
        times = {
            kind.value: [seconds(kind, stage, clock) for each, clock in order if each.kind is kind]
            for kind in WEIGHT
        }
        loads = [LOAD] * MICROBATCHES if stage == 0 else [0.0] * MICROBATCHES
        if stage == STAGES - 1:
            loads = [0.0, LOAD] * MICROBATCHES
        # The first two iterations are slow, and the very first has one computation too many.
        ranks.append(
            {
                "rank": stage,
                "iter_time": [2 * end, 2 * end, end, end],
                "iter_energy": [2 * joules[stage]] * 2 + [joules[stage]] * 2,
                "time_breakdown": {
                    "load": [loads] * 4,
                    **{
                        name: [[9.9, *each], [2 * t for t in each], each, each]
                        for name, each in times.items()
                    },
                },
                "energy_breakdown": {},
            }
        )
    clocked = [{"rank": stage, "power_states": own} for stage, own in enumerate(clocks)]
    (folder / f"{number}.sched.json").write_text(json.dumps(clocked))
    (folder / f"{number}.prof.json").write_text(json.dumps(ranks))


def record(folder: Path, schedules: int = 12) -> Path:
    """Record a made-up A40 cluster, and return the folder."""
    folder = folder / "a40-made-up-pp4-mb16"
    folder.mkdir()
    for number in range(schedules):
        write(folder, number, schedule(number))
    return folder
