"""`zeus measure`: run a program and print the time and energy it took.

With `--json`, the measurement (from `Measurement.to_dict`; `Measurement.from_dict` reads it) and
`command` (a list of words), `exit_code`, `signal` (its name, or null) and `started_at` (ISO 8601,
UTC).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
from typing import Any

from zeus.cli import FAILED, print_message
from zeus.cli._child import Child, ExitStatus, StartError, inherited_files
from zeus.cli._output import PreparedFile, prepared
from zeus.cli._parser import UsageError, add_gpus_option, add_json_output_options, indices
from zeus.cli._terminal import Console
from zeus.monitor import Measurement, ZeusMonitor

#: Arguments after `--` belong to the program to run.
RUNS_A_PROGRAM = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus measure [options] -- COMMAND [ARGUMENT ...]"
    parser.description = (
        "Run a command and print its time and energy on stderr. Its input, output and exit code "
        "are unchanged, and signals are forwarded to it; only with --json its output goes to "
        "stderr. Energy is that of whole devices, including other processes that use them "
        "meanwhile."
    )
    parser.epilog = """\
examples:
  zeus measure -- python train.py --epochs 3
  zeus measure --gpus 0,1 --output energy.json -- ./train.sh

exit codes:
  that of the command, or
  128+N  it was killed by signal N
  127    it was not found
  126    it was found but cannot be run
  2      the options of `zeus measure` are wrong; nothing was run
  1      the measurement could not be made or written"""
    add_json_output_options(parser, "the measurement")
    add_gpus_option(parser, "measure")
    parser.add_argument(
        "--cpus", type=indices, metavar="N,N", help="CPUs to measure, or `none` (default: all)"
    )
    parser.add_argument("--quiet", action="store_true", help="print no report")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then print the report."""
    if not arguments.program:
        raise UsageError(
            "there is no command to measure; write it after `--`, as in "
            "`zeus measure -- python train.py`"
        )
    files = inherited_files()
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(prepared(arguments.json))
        monitor = stack.enter_context(
            ZeusMonitor(arguments.gpus, arguments.cpus, sync_execution_with=None)
        )
        started_at = datetime.datetime.now(datetime.UTC)
        monitor.begin_window("measure")
        try:
            ended = Child(arguments.program, files, output_to_stderr=arguments.json == "-").run()
        except StartError as error:
            print_message(f"{error}")
            return error.code
        measurement = monitor.end_window("measure")
        monitor.settle()  # wait a tenth of a second for the last readings
        record = {
            "command": arguments.program,
            "exit_code": ended.exit_code,
            "signal": ended.signal,
            "started_at": started_at.isoformat(),
        }
        code = ended.exit_code
        if output is not None and not _written(output, record, measurement):
            code = code or FAILED
        if not arguments.quiet:
            _print_report(measurement, ended)
        return code


def _written(output: PreparedFile, record: dict[str, Any], measurement: Measurement) -> bool:
    try:
        output.write(json.dumps(record | measurement.to_dict()))
    except OSError as error:
        # The exit code of the program takes precedence over this error.
        print_message(f"the measurement could not be written: {error.strerror}")
        return False
    return True


def _print_report(measurement: Measurement, ended: ExitStatus) -> None:
    console = Console(sys.stderr)
    if ended.signal is not None:
        title = f"killed by {ended.signal}: "
    else:
        title = f"exit code {ended.exit_code}: " if ended.exit_code else ""
    lines = [console.style(f"zeus: {title}{measurement.summary()}", "bold")]
    if measurement.readings:
        lines += console.table(measurement.rows(), right=(1, 2), indent="  ")
    else:
        lines.append("  No device measures energy here; `zeus env` shows why.")
    with contextlib.suppress(OSError):  # stderr was closed
        console.print(*lines)
