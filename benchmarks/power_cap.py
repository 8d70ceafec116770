"""Plans under a cap on the power of all GPUs, beside the linear program with that cap.

Recorded profiles of GPT-3 175B on A100 and BLOOM on A40, eight stages under 1F1B: a cap of 90 % of
the peak without a plan, with and without a swing of half of that without a plan (warm-up and
cool-down counted), and with times that vary by 5 %. The linear program is that of
`tests/optimizer/pipeline_frequency/power_lp.py`: operations may mix their options, and averages
over windows keep the cap, so that no plan is faster. Stands alone:
`python benchmarks/power_cap.py`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from typing import Any

from pipelines import RECORDED, traces
from tools import ROOT

sys.path.insert(0, str(ROOT))

from tests.optimizer.pipeline_frequency.power_lp import least_time

from zeus.optimizer.pipeline_frequency import (
    Pipeline,
    Plan,
    Profile,
    TotalPower,
    build,
    solve_capped,
    total_power,
)

CAP, SWING, VARIATION, TRIES = 0.9, 0.5, 0.05, 200


def varied(pipeline: Pipeline, plan: Plan) -> list[TotalPower]:
    """Return the power of iterations in which times vary."""
    chance = random.Random(1)
    powers = []
    for _ in range(TRIES):
        options = []
        for option in plan.options:
            factor = chance.uniform(1 - VARIATION, 1 + VARIATION)
            options.append(
                replace(option, time=factor * option.time, energy=factor * option.energy)
            )
        powers.append(total_power(pipeline.execute(options, plan.not_before)))
    return powers


def cases(microbatches: int) -> Any:
    """Yield the figures of each recorded profile, bound and margin."""
    for recorded in RECORDED:
        profile = Profile.read(recorded.profile)
        pipeline = build(profile, "1f1b", microbatches, recorded.blocking_power)
        before = pipeline.at_highest_frequency()
        power = total_power(before)
        cap, half = CAP * power.peak, SWING * power.swing
        bound = least_time(pipeline, cap)
        both = least_time(pipeline, cap, half)
        for swing, margin in ((None, 0.0), (None, VARIATION), (half, 0.0), (half, VARIATION)):
            began = time.process_time()
            plan = solve_capped(pipeline, cap, swing, margin=margin).plans[0]
            took = time.process_time() - began
            after = total_power(plan.execute())
            powers = varied(pipeline, plan)
            above = sum(each.peak > cap * (1 + 1e-9) for each in powers)
            swings = sorted(each.swing for each in powers)
            yield {
                "case": recorded.case(microbatches),
                "swing halved": swing is not None,
                "margin": margin,
                "time, of the linear program with the cap": plan.time / bound,
                "time, of the linear program with both": plan.time / (both if swing else bound),
                "time, of that without a plan": plan.time / before.time,
                "energy, of that without a plan": plan.energy / before.energy,
                "peak, of that without a plan": after.peak / power.peak,
                "swing, of that without a plan": after.swing / power.swing,
                "iterations above the cap, times vary": above / TRIES,
                "swing, times vary, p95": swings[int(0.95 * TRIES)] / power.swing,
                "operations delayed": sum(map(bool, plan.not_before)),
                "seconds to plan": took,
            }


if __name__ == "__main__":
    if not traces().is_dir():
        sys.exit(f"no recorded profiles at {traces()}; set ZEUS_TRACES to where they are")
    for size in [int(given) for given in sys.argv[1:]] or [12]:
        for case in cases(size):
            print(json.dumps(case), flush=True)
