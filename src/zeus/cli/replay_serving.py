"""`zeus replay serving`: traffic of a service under the default, static clocks, controller, oracle.

With `--json`, one object: `traffic`, `workload` (their names), `requests`, `seconds`, `replicas`,
`busy` (share of the time at the default), `missing` (approaches that are not available, and why)
and `outcomes`, a list of objects: `approach`, `factor` (bounds in units of the default's 99th
percentiles), `setting` (`prefill` and `decode`, MHz; null if they changed), `energy` (J), `saved`
(share of the default's energy), `of_oracle` (that in units of the oracle's, null without),
`ttft_p99` and `tpot_p99` (s), `within` (whether both are within the bounds), `kept` (share of 60-s
intervals in which both were) and `changes` (changes of the setting per replica).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zeus.cli._output import prepared
from zeus.cli._parser import UsageError, add_json_output_options, number, whole_number
from zeus.cli._replaying import publish, with_progress
from zeus.cli._terminal import MISSING, Console

if TYPE_CHECKING:
    from zeus.replay.serving import Outcome, Study
    from zeus.testing import ServingWorkload, Traffic

_APPROACHES = ("default", "static", "controller", "oracle")
_FITTED = "v100-sxm2"
_MOST = 1_000_000
_LONGEST = 31 * 86400.0  # seconds
_HEAD = ("", "clock", "energy", "saved", "of oracle", "TTFT p99", "TPOT p99", "kept")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus replay-serving TRACE [options]"
    parser.description = (
        "Replay traffic of a language-model service on simulated servers with continuous batching, "
        "in virtual time: at the highest clock (the default), at every other clock, under our "
        "controller, and under an oracle that knows the traffic and takes the best clock, or the "
        "best clock for each phase. Bounds are multiples of the default's 99th percentiles of the "
        "time to the first token (TTFT) and per further token (TPOT). Takes minutes, and no GPU. "
        "`zeus replay serving` is the same command."
    )
    parser.epilog = """\
examples:
  zeus replay-serving AzureLLMInferenceTrace_conv.csv
  zeus replay serving AzureLLMInferenceTrace_code.csv --factor 1.3 --approach controller,oracle
  zeus replay serving poisson:2:600 --gpu h100 --parameters 70e9 --gpus 4 --json
  zeus replay serving bursts:1:5:900 --replicas 2 --static"""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="CSV with TIMESTAMP, ContextTokens and GeneratedTokens as Azure publishes it, or "
        "random traffic: poisson:RATE:SECONDS or bursts:RATE:BURST_RATE:SECONDS",
    )
    parser.add_argument(
        "--approach",
        type=_approaches,
        default=("default", "controller", "oracle"),
        metavar="NAME,NAME",
        help=f"of {', '.join(_APPROACHES)} (default: all but static)",
    )
    parser.add_argument("--static", action="store_true", help="list every clock, too")
    parser.add_argument(
        "--factor",
        type=_factors,
        default=(1.1, 1.3, 2.0),
        metavar="N,N",
        help="bounds in units of the default's percentiles (1.1,1.3,2)",
    )
    parser.add_argument(
        "--gpu",
        default=_FITTED,
        metavar="NAME",
        help=f"{_FITTED} (default: Mistral 7B, fitted to measurements), or a simulated GPU such as "
        "a100, with figures that follow from its published ones",
    )
    parser.add_argument(
        "--parameters",
        type=number(1e6, 1e13),
        default=7e9,
        metavar="N",
        help="parameters of the model on a simulated GPU (7e9)",
    )
    parser.add_argument(
        "--gpus", type=whole_number(1, 64), default=1, metavar="N", help="GPUs per server (1)"
    )
    parser.add_argument(
        "--replicas",
        type=whole_number(1, 10_000),
        metavar="N",
        help="servers (default: as many as are 60 %% busy at the highest clock)",
    )
    parser.add_argument(
        "--scale",
        type=number(1e-6, 1e6),
        default=1.0,
        metavar="N",
        help="let requests arrive N times as often (1)",
    )
    parser.add_argument(
        "--seconds", type=number(1.0, 1e9), metavar="N", help="replay the first N seconds only"
    )
    parser.add_argument(
        "--interval",
        type=number(0.01, 3600),
        default=1.0,
        metavar="S",
        help="seconds between the controller's decisions (1)",
    )
    parser.add_argument(
        "--lag",
        type=number(0, 1),
        default=0.015,
        metavar="S",
        help="seconds from setting a clock to having it (0.015)",
    )
    parser.add_argument(
        "--max-num-seqs",
        type=whole_number(1, _MOST),
        default=256,
        metavar="N",
        help="requests that a server processes at once (256)",
    )
    parser.add_argument(
        "--chunk",
        type=whole_number(2, _MOST),
        metavar="N",
        help="process prompts in chunks, in steps of N tokens (default: in steps of their own)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0, 2**53), default=0, metavar="N", help="of random traffic (0)"
    )
    add_json_output_options(parser, "the results")


def run(arguments: argparse.Namespace) -> int:
    """Replay the traffic, then print the table."""
    from zeus.replay.serving import study  # noqa: PLC0415  (not for --help)

    approaches = tuple(arguments.approach)
    if arguments.static and "static" not in approaches:
        approaches = (*approaches, "static")
    with prepared(arguments.json) as output:
        workload = _workload(arguments)
        traffic = _traffic(arguments)
        if not len(traffic):
            raise UsageError(f"{arguments.trace} has no request in the time that is replayed")
        for _, report in with_progress([traffic.name]):
            found = study(
                traffic,
                workload,
                replicas=arguments.replicas,
                factors=arguments.factor,
                approaches=approaches,
                interval=arguments.interval,
                options={
                    "lag": arguments.lag,
                    "max_num_seqs": arguments.max_num_seqs,
                    "chunk": arguments.chunk,
                },
                progress=report,
            )
        publish(output, arguments.json, lambda console: _report(console, found), found.to_dict())
    return 0


def _approaches(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    wrong = [name for name in names if name not in _APPROACHES]
    if wrong:
        raise argparse.ArgumentTypeError(
            f"must be of {', '.join(_APPROACHES)}, but got {', '.join(map(repr, wrong))}"
        )
    return names


def _factors(text: str) -> tuple[float, ...]:
    parsed: Callable[[str], Any] = number(1, 100)
    return tuple(parsed(part) for part in text.split(","))


def _workload(arguments: argparse.Namespace) -> ServingWorkload:
    from zeus.testing import ServingWorkload  # noqa: PLC0415

    if arguments.gpu == _FITTED:
        return ServingWorkload.mistral_7b_v100()
    return ServingWorkload.on(arguments.gpu, parameters=arguments.parameters, gpus=arguments.gpus)


def _traffic(arguments: argparse.Namespace) -> Traffic:
    from zeus.testing import Traffic  # noqa: PLC0415

    kind, *values = arguments.trace.split(":")
    random = {"poisson": 2, "bursts": 3}
    if kind in random and values:
        try:
            numbers = [float(value) for value in values]
        except ValueError:
            numbers = []
        if len(numbers) != random[kind]:
            form = "RATE:SECONDS" if kind == "poisson" else "RATE:BURST_RATE:SECONDS"
            raise UsageError(f"TRACE must be {kind}:{form}, but got {arguments.trace!r}")
        if numbers[0] * numbers[-1] > _MOST * 10:
            raise UsageError(f"TRACE must be at most 10 million requests, got {arguments.trace!r}")
        make = getattr(Traffic, kind)
        traffic: Traffic = make(*numbers, seed=arguments.seed)
    else:
        traffic = Traffic.azure(arguments.trace)
    if arguments.scale != 1:
        traffic = traffic.scaled(arguments.scale)
    if arguments.seconds is not None:
        traffic = traffic.between(0, arguments.seconds)
    if traffic.seconds > _LONGEST:
        days = traffic.seconds / 86400
        raise UsageError(f"TRACE must span at most 31 days, but spans {days:.0f} (see --seconds)")
    return traffic


def _report(console: Console, study: Study) -> list[str]:
    rows: list[Sequence[str]] = [_HEAD]
    for factor in dict.fromkeys(each.factor for each in study.outcomes):
        rows.append([f"bounds {factor:g} x default"])
        rows += [_row(each) for each in study.outcomes if each.factor == factor]
    lines = [
        f"{study.traffic}: {study.requests} requests in {study.seconds:.0f} s; "
        f"{study.replicas} x {study.workload}, {100 * study.busy:.0f} % busy at the default",
        "",
        *console.table(rows, right=range(1, len(_HEAD)), heading=True),
        "",
        "Clock: MHz, prefill / decode. Kept: 60-s intervals with both p99 within the bounds.",
        "!: over the whole traffic, a p99 is not within its bound. Energy includes idle power.",
    ]
    return lines + [f"Without {name}: {why}." for name, why in study.missing.items()]


def _row(outcome: Outcome) -> list[str]:
    setting = outcome.setting
    clock = f"{outcome.changes:.0f} changes"
    if setting is not None:
        clock = f"{setting.prefill:g} / {setting.decode:g}"
    return [
        outcome.approach + ("" if outcome.within else " !"),
        clock,
        f"{outcome.energy / 1e6:.3f} MJ",
        f"{100 * outcome.saved:.1f} %",
        MISSING if outcome.of_oracle is None else f"{outcome.of_oracle:.2f}",
        _seconds(outcome.ttft_p99),
        _seconds(outcome.tpot_p99),
        f"{100 * outcome.kept:.1f} %",
    ]


def _seconds(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f} s" if value >= 1 else f"{1e3 * value:.1f} ms"
