"""What a change of a knob costs under a hold, beside the driver's own call."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from accuracy import PARTS
from harness import Bench, Variant, say
from rows import Answer, Row, errors_of, row
from tools import OURS

#: Seconds that a driver call takes; a real one takes milliseconds to set a clock.
LATENCIES = (0.0, 1e-4, 1e-3)
TARGET = 1.3  # times the driver's call
#: By name of the answer: a call of the vendor's binding; the same in a thread of its own, which is
#: how a call that hangs becomes an error; and all of it.
WAYS = {"bare_us": "bare driver call", "guarded_us": "guarded driver call", "held_us": OURS}


def bench_holds(bench: Bench) -> Iterator[Row]:
    """What a change of a clock costs under a hold."""
    ours = [variant for variant in bench.variants() if variant.label == OURS]
    part = {**PARTS["A100"], "needs_root": False}
    for latency in LATENCIES:
        case = f"driver calls take {latency * 1e3:g} ms"
        say(f"  {case}")

        def ask(variant: Variant, _: int, latency: float = latency) -> Answer:
            changes = bench.effort.changes
            return bench.ask("holds", variant, part=part, driver_latency=latency, changes=changes)

        answers = bench.taking_turns(bench.effort.turns, ours, ask)
        given = [answer for answer in answers[OURS] if "error" not in answer]
        values = {
            label: statistics.median(answer[key] for answer in given) if given else None
            for key, label in WAYS.items()
        }
        bare = values[WAYS["bare_us"]]
        target = TARGET * bare if bare is not None else None
        yield row(
            "holds", "change of a clock", case, "µs", values, target=target, **errors_of(answers)
        )
