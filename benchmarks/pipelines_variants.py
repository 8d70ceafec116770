"""Profiles made from recorded ones: other stages, noise, other clocks.

A seed decides by how much stages differ, in which order they are, how noisy each time and energy
is, and which clocks there are. Constants of the solver were chosen with variants of other seeds;
what is reported is of those of `HELD_OUT`.
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

HELD_OUT = range(100, 112)
UNEVEN = (0.02, 0.15)  # by how much stages are shorter than the recorded ones, at most
NOISE = 0.003  # standard deviation of the logarithm of each time and energy, at most
STEPS = (1, 2)  # of the recorded clocks, each or every second
SKIPPED = 4  # highest clocks that may be missing, fewer than


def write_variant(recorded: Path, path: Path, seed: int) -> None:
    """Write a profile of as many stages as the recorded one has."""
    with recorded.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    chance = random.Random(f"{recorded.stem} {seed}")
    stages = 1 + max(int(row["stage"]) for row in rows)
    order = list(range(stages))
    if chance.random() < 0.5:
        chance.shuffle(order)
    uneven, noise = chance.uniform(*UNEVEN), chance.uniform(0, NOISE)
    clocks = sorted({float(row["frequency"]) for row in rows}, reverse=True)
    step = chance.choice(STEPS)
    kept = set(clocks[chance.randrange(SKIPPED) :: step])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for stage in range(stages):
            part = chance.uniform(1 - uneven, 1)
            for row in rows:
                if int(row["stage"]) != order[stage] or float(row["frequency"]) not in kept:
                    continue
                changed = {
                    key: part * float(row[key]) * math.exp(chance.gauss(0, noise))
                    for key in ("time", "energy")
                }
                writer.writerow(row | changed | {"stage": stage})
