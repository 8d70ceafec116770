"""Write a synthetic profile of GPT-3 Large (0.76B) in four stages on A40 GPUs, as CSV to stdout.

    python write_profile.py [--power cubic|recorded] > profile.csv

Nothing of it is measured. 24 layers are divided equally; the last stage also has the output layer,
with 50257 x 1536 weights where a layer has 12 x 1536 x 1536. A layer's forward takes 6 ms at
1740 MHz, its backward twice as long; only proportions matter for what a plan saves.

`cubic` is the law of textbooks: a GPU that computes draws the blocking power and, on top, an amount
that grows with the cube of the clock, to 300 W at 1740 MHz; nine tenths of the time go with
`1 / clock`. `recorded` is close to what was fitted to recorded runs of GPT-3 2.7B on A40: power in
proportion to the clock, three tenths of the time with `1 / clock`, and no clock below 1110 MHz, as
hardly any ran.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator

LAYERS = (6, 6, 6, 6)
HIDDEN, VOCABULARY = 1536, 50257
SECONDS = {"forward": 0.006, "backward": 0.012}  # of a layer, at the highest clock
HIGHEST, STEP = 1740, 15  # MHz
LOWEST = {"cubic": 600, "recorded": 1110}  # MHz
BLOCKING, LIMIT = 70.38, 300.0  # watts


def watts(power: str, clock: int) -> float:
    """Return the power of a GPU that computes."""
    share = clock / HIGHEST
    return BLOCKING + (LIMIT - BLOCKING) * share**3 if power == "cubic" else LIMIT * share


def rows(power: str) -> Iterator[tuple[int, str, int, float, float]]:
    """Yield stage, instruction, clock, time and energy."""
    bound = {"cubic": 0.9, "recorded": 0.3}[power]  # share of the time that goes with 1 / clock
    for stage, layers in enumerate(LAYERS):
        output = VOCABULARY / (12 * HIDDEN) if stage == len(LAYERS) - 1 else 0.0
        for instruction, seconds in SECONDS.items():
            for clock in range(HIGHEST, LOWEST[power] - 1, -STEP):
                time = seconds * (layers + output) * (1 - bound + bound * HIGHEST / clock)
                yield stage, instruction, clock, time, time * watts(power, clock)


def main() -> None:
    """Write the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--power", choices=list(LOWEST), default="cubic", help="power and times")
    power = parser.parse_args().power
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["stage", "instruction", "frequency", "time", "energy"])
    table.writerows(rows(power))


if __name__ == "__main__":
    main()
