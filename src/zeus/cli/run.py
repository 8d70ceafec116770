"""`zeus run`: run recurrences of a job end to end.

With `--json`, one object with `job` (its name), `recurrences` and `exit_code`. A recurrence has
`recurrence` (its number; 0 if the server was unreachable), `outcome` (converged, failed, stopped,
cancelled, or running if it was preempted), `batch_size`, `epochs`, `metric`, `time` (s), `energy`
(J, null if unknown), `cost` (J) of its last trial, and `trials`: each with `trial`, `recurrence`,
`attempt`, `batch_size`, `role`, `reason`, `outcome`, `note`, `epochs`, `time`, `energy`, `cost`,
`metric`, `exit_code`, `signal`, `reported` (whether the program itself reported epochs) and
`warning` (what it seems to do wrong with its batch size).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from zeus.cli import FAILED as EXIT_FAILED
from zeus.cli import print_message
from zeus.cli._child import Child, StartError, inherited_files
from zeus.cli._output import prepared
from zeus.cli._parser import (
    UsageError,
    add_gpus_option,
    add_json_output_options,
    add_server_option,
    add_storage_option,
    number,
    refuse_two_stores,
    whole_number,
)
from zeus.cli._terminal import MISSING, Console, plural
from zeus.errors import JobSpecError, RunError
from zeus.monitor import ZeusMonitor
from zeus.monitor._measurement import show_energy, show_seconds
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._attempts import usual_attempts
from zeus.optimizer.batch_size.job._job_file import JobFile
from zeus.optimizer.batch_size.running._launcher import Launcher
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._trial_end import ProgramEnd, TrialEnd

#: Arguments after `--` belong to the program to run.
RUNS_A_PROGRAM = True

# After one of these signals, no further attempt is started.
_ENDING = {
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus run --job-file JOB.toml [options] -- COMMAND [ARGUMENT ...]"
    parser.description = (
        "Run a recurring training job: request a batch size, run the command with it, and retry "
        "with another one if the run is stopped early or fails, until the target is reached. "
        "{batch_size} in the command is replaced by the samples of one step of all processes "
        "together, {local_batch_size} by the share of one of them, as are {accumulation_steps} and "
        "{learning_rate_scale}; they are also in its environment, where BatchSizeOptimizer and "
        "ZeusDataLoader find their trial. A command that uses neither of these classes reports "
        "nothing: with --trust-exit-code it is measured from outside, and exit code 0 means that "
        "it has reached the target."
    )
    parser.epilog = """\
examples:
  zeus run --job-file JOB.toml -- python train.py --batch-size {batch_size}
  zeus run --job-file JOB.toml --server http://gpu1:8420 --output night.json -- torchrun train.py
  zeus run --job-file JOB.toml -- torchrun --nproc-per-node=gpu train.py --batch {local_batch_size}
  zeus run --job-file JOB.toml --recurrences 30 --storage sqlite:///jobs.db -- python train.py

exit codes:
  0      the target was reached
  that of the command, if it failed or was interrupted
  1      the target was not reached in any attempt
  127    the command was not found
  126    it was found but cannot be run
  2      the options or the job are wrong; nothing was run"""
    parser.add_argument(
        "--job-file", required=True, metavar="FILE", help="job specification (TOML)"
    )
    parser.add_argument(
        "--recurrences", type=whole_number(1), default=1, metavar="N", help="run it N times (1)"
    )
    parser.add_argument(
        "--attempts",
        type=whole_number(1),
        metavar="N",
        help="maximum trials per recurrence (default: the number of batch sizes, at least 3; 1 if "
        "there is only one batch size); fewer while no batch size reaches the target",
    )
    add_server_option(parser)
    add_storage_option(parser)
    parser.add_argument(
        "--timeout",
        type=number(0.0, 3600.0, unit="seconds", above=True),
        default=5.0,
        metavar="S",
        help="timeout for the server in seconds (5)",
    )
    parser.add_argument(
        "--replicas",
        type=whole_number(1),
        metavar="N",
        help="data-parallel replicas that share each batch (default: one per GPU)",
    )
    parser.add_argument(
        "--max-local-batch-size",
        type=whole_number(1),
        metavar="N",
        help="maximum samples of one replica at once; larger shares accumulate gradients",
    )
    parser.add_argument(
        "--run-id",
        metavar="NAME",
        help="name of this run; started again under it after an interruption, its trial goes on",
    )
    parser.add_argument(
        "--trust-exit-code",
        action="store_true",
        help="exit code 0 of a command that reports nothing means that it reached the target",
    )
    add_gpus_option(parser, "measure")
    add_json_output_options(parser, "the results")
    parser.add_argument("--quiet", action="store_true", help="print only errors")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the job, then print the report."""
    if not arguments.program:
        raise UsageError(
            "there is no command to run; write it after `--`, as in "
            "`zeus run --job-file JOB.toml -- python train.py --batch-size {batch_size}`"
        )
    files = inherited_files()
    file, location = _job(arguments)
    console = Console(sys.stderr)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(prepared(arguments.json))
        monitor = stack.enter_context(ZeusMonitor(arguments.gpus, [], sync_execution_with=None))

        def start(words: Sequence[str], environment: Mapping[str, str]) -> ProgramEnd:
            child = Child(words, files, environment, output_to_stderr=arguments.json == "-")
            ended = child.run()
            interrupted = bool(_ENDING.intersection(child.signals))
            preempted = signal.SIGTERM in child.signals and signal.SIGINT not in child.signals
            return ProgramEnd(ended.exit_code, ended.signal, interrupted, preempted)

        try:
            launcher = Launcher(
                file.spec,
                location,
                monitor,
                arguments.program,
                start,
                attempts=arguments.attempts or usual_attempts(file.spec),
                begun=lambda decision: None if arguments.quiet else _announce(console, decision),
                ended=lambda trial: None if arguments.quiet else _report(console, trial),
                replicas=arguments.replicas or file.replicas,
                max_local_batch_size=arguments.max_local_batch_size or file.max_local_batch_size,
                trust_exit_code=arguments.trust_exit_code,
                tags=file.tags,
                run_id=arguments.run_id,
            )
        except RunError as error:
            raise UsageError(str(error)) from error
        recurrences, code = _recur(launcher, file, arguments)
        if output is not None:
            record = {
                "job": file.spec.name,
                "recurrences": [_record(trials) for trials in recurrences],
                "exit_code": code,
            }
            output.write(json.dumps(record, indent=1))
    if len(recurrences) > 1 and not arguments.quiet:
        console.print_table(_rows(recurrences), right=(0, 2, 3, 4))
    return code


def _job(arguments: argparse.Namespace) -> tuple[JobFile, Location]:
    try:
        file = JobFile.read(arguments.job_file)
    except JobSpecError as error:
        raise UsageError(str(error)) from error
    refuse_two_stores(arguments)
    server, storage = arguments.server, arguments.storage
    if not server and not storage:
        server, storage = file.server, file.storage
    return file, Location.of(server, storage, timeout=arguments.timeout)


def _recur(
    launcher: Launcher, file: JobFile, arguments: argparse.Namespace
) -> tuple[list[list[TrialEnd]], int]:
    """Run recurrences until one misses the target; return them and the exit code."""
    recurrences: list[list[TrialEnd]] = []
    for _ in range(arguments.recurrences):
        try:
            trials = launcher.recur()
        except StartError as error:
            print_message(f"{error}")
            return recurrences, error.code
        recurrences.append(trials)
        last = trials[-1]
        if last.outcome != Outcome.CONVERGED:
            _explain(file, trials)
            return recurrences, last.exit_code or EXIT_FAILED
        if last.exit_code:
            print_message(f"the target was reached, but the command ended with {_end(last)}")
            return recurrences, last.exit_code
    return recurrences, 0


# --- messages -------------------------------------------------------------------------------------


def _announce(console: Console, decision: Decision) -> None:
    where = f"recurrence {decision.recurrence}" if decision.recurrence else "not numbered yet"
    again = f", attempt {decision.attempt + 1}" if decision.attempt else ""
    with contextlib.suppress(OSError):  # stderr was closed
        console.print(
            f"zeus: {decision.job}, {where}{again}: batch size {decision.batch_size}, "
            f"{decision.reason}"
        )


def _report(console: Console, trial: TrialEnd) -> None:
    if trial.warning:
        print_message(f"warning: {trial.warning}")
    energy = "energy unknown" if trial.energy is None else show_energy(trial.energy)
    metric = "" if trial.metric is None else f", metric {trial.metric:.6g}"
    with contextlib.suppress(OSError):
        console.print(
            f"zeus: {trial.outcome} ({trial.note}): {_epochs(trial)}, "
            f"{show_seconds(trial.time)}, {energy}{metric}"
        )


def _epochs(trial: TrialEnd) -> str:
    if not trial.reported:
        return "measured from outside"
    return plural(trial.epochs, "epoch")


def _end(trial: TrialEnd) -> str:
    return str(ProgramEnd(trial.exit_code, trial.signal))


def _explain(file: JobFile, trials: Sequence[TrialEnd]) -> None:
    """Print why the target was not reached."""
    spec, last = file.spec, trials[-1]
    if last.outcome == Outcome.CANCELLED:
        print_message(f"job {spec.name!r}: {last.note}; this trial is not counted")
        return
    if last.outcome == Outcome.RUNNING:
        print_message(f"job {spec.name!r}: {last.note}")
        return
    known = [trial for trial in trials if trial.metric is not None]
    best = ""
    if known:
        choose = max if spec.higher_is_better else min
        top = choose(known, key=lambda trial: trial.metric or 0.0)
        best = f"; the best was {top.metric:.6g} with batch size {top.batch_size}"
    tried = ", ".join(f"{trial.batch_size} ({trial.note})" for trial in trials)
    print_message(
        f"job {spec.name!r} did not reach its target {spec.target_metric:g} in "
        f"{plural(len(trials), 'attempt')}{best}. Batch sizes tried: "
        f"{tried}. If no run can reach it, change `target_metric`, `max_epochs` or `batch_sizes`, "
        "under a new `name`: results of a job apply to one specification only"
    )


def _rows(recurrences: Sequence[Sequence[TrialEnd]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("recurrence", "batch sizes", "epochs", "time", "energy", "outcome")
    ]
    for position, trials in enumerate(recurrences, 1):
        energies = [trial.energy for trial in trials]
        unknown = None in energies
        rows.append(
            (
                str(trials[-1].recurrence or position),
                " ".join(str(trial.batch_size) for trial in trials),
                str(sum(trial.epochs for trial in trials)),
                show_seconds(sum(trial.time for trial in trials)),
                MISSING if unknown else show_energy(sum(energy or 0.0 for energy in energies)),
                trials[-1].outcome,
            )
        )
    return rows


def _record(trials: Sequence[TrialEnd]) -> dict[str, Any]:
    last = trials[-1].to_dict()
    kept = ("recurrence", "outcome", "batch_size", "epochs", "metric", "time", "energy", "cost")
    return {name: last[name] for name in kept} | {"trials": [trial.to_dict() for trial in trials]}
