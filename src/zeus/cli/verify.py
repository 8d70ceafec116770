"""`zeus verify`: check on this machine's GPUs what Zeus knows of them from publications.

With `--json`, one object with these keys:

- `zeus`: version.
- `counts`: number of checks by verdict: `as expected`, `different`, `measured` (there is no preset
  to compare with), `not possible here`.
- `devices`: for each GPU, CPU package and its memory `kind` ("gpu", "cpu", "dram"), `index`,
  `name`, `driver` (version), `preset` (short name, or null), `load` (what ran on it, or null),
  `no_load` (why nothing did, or null), `other_processes` (number, or null), `simulated` and
  `checks`: `name`, `verdict`, `value`, `uncertainty` (19 of 20 true values are within), `unit`,
  `preset` (the value that was expected, or null), `why` (it was not possible) and `detail`.
- `problems`: devices that cannot be used, as text.

The file of `--share` has `format`, `zeus`, `system`, `simulated` and `devices` with fewer of these
keys; see `docs/verifying.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import replace

from zeus import __version__
from zeus.cli import FAILED, print_message
from zeus.cli._output import prepared
from zeus.cli._parser import UsageError, add_gpus_option, add_json_output_options
from zeus.cli._terminal import MISSING, Console, plural, sections
from zeus.device import current_node
from zeus.verify._checks import PRESENT, Check, Verdict
from zeus.verify._report import DeviceReport, Report, verify
from zeus.verify._share import shared

_COLORS = {
    Verdict.EXPECTED: "green",
    Verdict.DIFFERENT: "red",
    Verdict.MEASURED: "cyan",
    Verdict.IMPOSSIBLE: "yellow",
}
_YES_OR_NO = ("energy counter", "power meter", "power limit restored", "clock restored")
_SHARES = ("counter time share", "windows add up")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Check on this machine's GPUs what Zeus knows of their sensors and knobs: refreshes, lag "
        "and response of power and energy counter, whether measured windows add up, and ranges of "
        "power limits and clocks. It takes about a minute per GPU, runs a synthetic load "
        "where a framework can, and changes no setting without --knobs."
    )
    parser.epilog = """\
examples:
  zeus verify
  zeus verify --gpus 0 --knobs --share a100.json

exit codes:
  0  nothing is different from what was expected
  1  something is different from what was expected"""
    add_json_output_options(parser, "the report")
    add_gpus_option(parser, "check")
    parser.add_argument(
        "--knobs",
        action="store_true",
        help="also set power limit and clock for seconds, and restore them",
    )
    parser.add_argument(
        "--share", metavar="FILE", help="write a report without anything that names the machine"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, and print the report."""
    if arguments.json == arguments.share == "-":
        raise UsageError("--json and --share - print JSON on stdout; give one of them a file")
    errors = Console(sys.stderr)

    def progress(text: str) -> None:
        if errors.interactive:
            errors.print(errors.style(f"{text} ...", "dim"))

    with ExitStack() as stack:
        output = stack.enter_context(prepared(arguments.json))
        share = stack.enter_context(prepared(arguments.share))
        found = verify(current_node(), arguments.gpus, knobs=arguments.knobs, progress=progress)
        report = replace(found, zeus=__version__)
        if share is not None:
            share.write(json.dumps(shared(report), indent=2))
        if output is not None:
            output.write(json.dumps(report.to_dict(), indent=2))
        if arguments.json != "-" and arguments.share != "-":
            console = Console(sys.stdout)
            console.print(*_lines(report, console))
    differing = report.counts[Verdict.DIFFERENT]
    if differing:
        print_message(f"{plural(differing, 'check')} found something else than expected")
    return FAILED if differing else 0


def _lines(report: Report, console: Console) -> list[str]:
    counts = report.counts
    verdict = (
        f"{plural(counts[Verdict.EXPECTED], 'check')} as expected, "
        f"{counts[Verdict.DIFFERENT]} different, {counts[Verdict.IMPOSSIBLE]} not possible"
    )
    if counts[Verdict.MEASURED]:
        verdict += f", {counts[Verdict.MEASURED]} without a preset to compare with"
    color = "red" if counts[Verdict.DIFFERENT] else "green"
    problems = [f"  {problem}" for problem in report.problems]
    return sections(
        [
            [console.style(verdict, "bold", color)],
            *(_device_lines(device, console) for device in report.devices),
            [console.style("Cannot be used", "bold"), *problems] if problems else [],
        ]
    )


def _device_lines(device: DeviceReport, console: Console) -> list[str]:
    number = f"{device.kind.upper()} {device.index}"
    lines = [console.style(f"{number}  {device.name}", "bold")]
    if device.kind == "gpu":
        lines.append(f"  preset: {device.preset or 'none for this model'}")
        lines.append(f"  load: {device.load or f'none ({device.no_load})'}")
        if device.others:
            lines.append(f"  processes of others that may disturb the checks: {device.others}")
    return [*lines, *console.table([_row(check, console) for check in device.checks], indent="  ")]


def _row(check: Check, console: Console) -> tuple[str, ...]:
    verdict = console.style(check.verdict, _COLORS[check.verdict])
    why = check.why
    if check.detail and check.verdict is not Verdict.EXPECTED:
        why = f"{why}: {check.detail}" if why and why not in check.detail else check.detail
    preset = MISSING if check.preset is None else _value(check, check.preset)
    found = MISSING if check.value is None else _value(check, check.value, check.uncertainty)
    return (check.name, found, preset, verdict, why)


def _value(check: Check, value: float, uncertainty: float | None = None) -> str:
    if check.name in _YES_OR_NO:
        return "yes" if value == PRESENT else "no"
    scale, unit = (1e3, "ms") if check.unit == "s" else (1.0, check.unit)
    if check.name in _SHARES or check.name.endswith("covered"):
        scale, unit = 100.0, "%"
    text = f"{value * scale:.4g}"
    if uncertainty:
        text += f" ± {uncertainty * scale:.2g}"
    return f"{text} {unit}".strip()
