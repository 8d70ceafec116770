"""Energy of single requests beside the truth of a simulated server, in virtual time, as JSON.

For each kind of sensor, load and size of prompt pieces: the sum over requests against the exact
energy, how many true energies lie within the stated uncertainty, and the errors of single requests.

    python benchmarks/request_shares.py [--seconds 120] [--seeds 3] [--jitter 0 1 7]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics

from request_world import ServingWorld
from zeus.testing._traffic import Traffic

SENSORS = ("a100", "a40", "v100")
LOADS = ((0.3, None), (1.5, None), (4.0, None), (8.0, None), (1.5, 512), (4.0, 512), (3.0, 256))


def measured(sensors, rate, chunk, *, seconds, seed, jitter):
    traffic = list(Traffic.poisson(rate, seconds, seed=seed, prompt=400))
    world = ServingWorld(traffic, sensors, max_num_seqs=64, chunk=chunk, jitter=jitter)
    divided, idle = world.monitor.requests.energy()
    pairs = list(world.pairs())
    requests = math.fsum(found.joules or 0.0 for found, _ in pairs)
    errors = world.errors()
    return {
        "sensors": sensors,
        "requests_per_second": rate,
        "prompt_piece": chunk,
        "jitter_ms": round(jitter * 1e3, 6),
        "seed": seed,
        "requests": len(pairs),
        "sum_error_percent": 100 * (requests / world.exact_requests - 1),
        "not_conserved_joules": requests + idle - divided,
        "covered": world.coverage(),
        "covered_as_stated_at_the_end": world.coverage(stated=True),
        "median_error_percent": 100 * statistics.median(errors),
        "p95_error_percent": 100 * errors[int(0.95 * len(errors))],
        "median_uncertainty_percent": 100
        * statistics.median(found.uncertainty / true for found, true in pairs),
    }


def summary(rows, jitter):
    rows = [row for row in rows if row["jitter_ms"] == jitter]
    whole = [row["covered"] for row in rows if row["prompt_piece"] is None]
    return {
        "sum_error_percent": max(abs(row["sum_error_percent"]) for row in rows),
        "least_covered": min(row["covered"] for row in rows),
        "least_covered_with_whole_prompts": min(whole),
        "mean_covered": statistics.mean(row["covered"] for row in rows),
        "least_covered_as_stated": min(row["covered_as_stated_at_the_end"] for row in rows),
        "median_error_percent": statistics.median(row["median_error_percent"] for row in rows),
        "not_conserved_joules": max(abs(row["not_conserved_joules"]) for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--jitter",
        type=float,
        nargs="*",
        default=[0.0, 1.0, 7.0],
        metavar="MS",
        help="how late tokens are seen, as a root mean square; a step takes 25 to 40 ms",
    )
    chosen = parser.parse_args()
    rows = [
        measured(sensors, rate, chunk, seconds=chosen.seconds, seed=seed, jitter=jitter / 1e3)
        for sensors in SENSORS
        for rate, chunk in LOADS
        for jitter in chosen.jitter
        for seed in range(10, 10 + chosen.seeds)
    ]
    worst = {f"{jitter:g} ms": summary(rows, jitter) for jitter in chosen.jitter}
    print(json.dumps({"worst": worst, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
