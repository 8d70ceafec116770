"""A service under its controller beside the oracle, on Azure's traces in virtual time.

    python benchmarks/serving.py [--traces FOLDER] [--trace NAME ...] [--factor N ...] [--worlds]

prints JSON; takes ten minutes of a core, with `--worlds` half an hour. As many simulated servers
as are 50 to 70 % busy at the highest clock play the trace at that clock (the default), under our
controller and under an oracle that knows the trace: the better of the best static clock and the
best clock per phase, where each change is paid for with 15 ms of lag. Bounds are multiples of the
default's 99th percentiles of TTFT and TPOT. Also: errors of the simulated server on the sweep that
it is fitted to. `--worlds` has other traffic and servers, bursts, any load, and a server that shows
nothing but its metrics.

`make bench BENCH_ARGS="--only serving"` reports the same with targets; with `--quick`, of the first
ten minutes of the conversations.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import serving_worlds
from zeus.replay.serving import Outcome, Runs, Study, study
from zeus.testing import ServingWorkload, Traffic

if TYPE_CHECKING:
    from harness import Bench
    from rows import Row

TASK = "serving"
TRACES = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
NAMES = ("conv", "code")
FACTORS = (1.1, 1.3, 2.0)
OF_ORACLE = {1.1: 0.85, 1.3: 0.9, 2.0: 0.9}  # share of the oracle's saving to reach
QUICK_SECONDS = 600.0


def traffic(folder: Path, name: str) -> Traffic:
    """One of Azure's traces."""
    return Traffic.azure(folder / "serving" / f"AzureLLMInferenceTrace_{name}.csv", name)


def sweep_errors(folder: Path) -> dict[str, list[float]]:
    """Relative errors of time and energy on the sweep that the server is fitted to."""
    from fit_serving import errors, rows

    measured = rows(folder / "serving" / "v100_mistral7b_clock_sweep.csv")
    times, energies = errors(ServingWorkload.mistral_7b_v100(), measured)
    return {"time": abs(times).tolist(), "energy": abs(energies).tolist()}


def studied(
    chosen: Traffic, factors: Sequence[float], workload: ServingWorkload | None = None
) -> Study:
    """All approaches but single static clocks."""
    return study(
        chosen,
        workload or ServingWorkload.mistral_7b_v100(),
        factors=factors,
        approaches=("default", "controller", "oracle"),
    )


def numbers(found: Study) -> dict[str, Any]:
    """Everything that is measured on one trace."""
    return {
        "requests": found.requests,
        "replicas": found.replicas,
        "busy": round(found.busy, 3),
        "missing": found.missing,
        "bounds": {
            f"{factor:g}x": {
                each.approach: _plain(each) for each in found.outcomes if each.factor == factor
            }
            for factor in dict.fromkeys(each.factor for each in found.outcomes)
        },
    }


def _plain(outcome: Outcome) -> dict[str, Any]:
    setting = outcome.setting
    return {
        "clocks, MHz": None if setting is None else [setting.prefill, setting.decode],
        "saved, %": round(100 * outcome.saved, 2),
        "of oracle": None if outcome.of_oracle is None else round(outcome.of_oracle, 3),
        "within bounds": outcome.within,
        "kept minutes, %": round(100 * outcome.kept, 1),
        "ttft p99, s": outcome.ttft_p99,
        "tpot p99, s": outcome.tpot_p99,
    }


def everywhere(factors: Sequence[float]) -> dict[str, Any]:
    """Everything that is measured without a trace."""
    found: dict[str, Any] = {
        name: numbers(studied(chosen, factors, workload))
        for name, (workload, chosen) in serving_worlds.worlds().items()
    }
    found["random worlds"] = serving_worlds.in_random_worlds(range(300, 340), factors)
    found["saved at any load, %"] = {
        name: round(100 * saved, 2) for name, saved in serving_worlds.any_load()
    }
    found["broken longer after a burst, s"] = {
        name: round(seconds, 2) for name, seconds in serving_worlds.bursts(factors)
    }
    found["by metrics alone"] = {
        f"{factor:g}x, seed {seed}": {
            what: round(value, 3)
            for what, value in serving_worlds.controlled(
                runs, runs.bounds(factor), phases=False, metrics_only=True
            ).items()
        }
        for seed in serving_worlds.SEEDS
        for runs in [
            Runs(ServingWorkload.mistral_7b_v100(), Traffic.poisson(0.4, 2400, seed=30 + seed), 1)
        ]
        for factor in factors
    }
    return found


def bench_serving(bench: Bench) -> Iterator[Row]:
    """A service under its controller beside the oracle, on recorded traffic in virtual time."""
    from harness import QUICK, say
    from rows import row
    from tools import OURS

    if not (TRACES / "serving").is_dir():
        say(f"no recorded traffic at {TRACES}; set ZEUS_TRACES")
        return
    for what, limits in (("time", (1.5, 5.0)), ("energy", (2.0, 6.0))):
        found = sweep_errors(TRACES)[what]
        for measure, target, value in zip(
            ("median", "worst"), limits, (statistics.median(found), max(found)), strict=True
        ):
            yield row(TASK, f"{what}, {measure}", "sweep", "%", {OURS: 100 * value}, target=target)
    quick = bench.effort == QUICK
    for name in NAMES[:1] if quick else NAMES:
        chosen = traffic(TRACES, name)
        result = studied(chosen.between(0, QUICK_SECONDS) if quick else chosen, FACTORS)
        yield from _rows(name, result, row, OURS)

    if quick:
        return
    loads, longer = dict(serving_worlds.any_load()), dict(serving_worlds.bursts(FACTORS))
    yield row(
        TASK, "energy more than the default", "worst load", "%",
        {OURS: -100 * min(loads.values())}, target=1, loads=loads,
    )  # fmt: skip
    yield row(
        TASK, "bound broken longer than the default", "worst burst", "s",
        {OURS: max(longer.values())}, target=2, bursts=longer,
    )  # fmt: skip


def _rows(name: str, result: Study, row: Any, ours: str) -> Iterator[Row]:
    for factor in FACTORS:
        mine = {each.approach: each for each in result.outcomes if each.factor == factor}
        controlled = [each for key, each in mine.items() if key.startswith("controller")]
        if not controlled:
            continue
        best = max(controlled, key=lambda each: (each.within, each.saved))
        case = f"{name}, {factor:g}x"
        more = {"outcomes": {key: _plain(each) for key, each in mine.items()}}
        yield row(
            TASK, "saving, of the oracle's", case, "ratio", {ours: best.of_oracle},
            target=OF_ORACLE[factor], at_least=True, **more,
        )  # fmt: skip
        steady = mine["oracle, minutes kept"].saved
        yield row(
            TASK, "saving, of an oracle's that keeps the minutes", case, "ratio",
            {ours: best.saved / steady if steady > 0 else None},
        )  # fmt: skip
        lost = 100 * (mine["default"].kept - best.kept)
        yield row(
            TASK, "kept minutes fewer than the default", case, "points", {ours: lost}, target=1
        )
        yield row(
            TASK, "p99 outside the bounds", case, "count", {ours: int(not best.within)}, target=0
        )


def main() -> None:
    """Measure the given traces, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="FOLDER")
    parser.add_argument("--trace", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--factor", nargs="+", type=float, default=FACTORS)
    parser.add_argument("--worlds", action="store_true", help="also what needs no trace")
    parser.add_argument("--seconds", type=float, help="of the trace, from its begin")
    arguments = parser.parse_args()
    if not (arguments.traces / "serving").is_dir():
        sys.exit(f"no recorded traffic at {arguments.traces}; set ZEUS_TRACES to where it is")
    printed: dict[str, Any] = {
        f"sweep, {what}, %": {
            "median": round(100 * statistics.median(found), 2),
            "worst": round(100 * max(found), 2),
        }
        for what, found in sweep_errors(arguments.traces).items()
    }
    for name in arguments.trace:
        chosen = traffic(arguments.traces, name)
        if arguments.seconds is not None:
            chosen = chosen.between(0, arguments.seconds)
        printed[name] = numbers(studied(chosen, arguments.factor))
    if arguments.worlds:
        printed["without a trace"] = everywhere(arguments.factor)
    print(json.dumps(printed, indent=2))


if __name__ == "__main__":
    main()
