"""`zeus jobs`: list, show, tag, export and delete recurring jobs.

With `--json`, `list` prints a list of objects with `name`, `spec` (the keys of `JobSpec`),
`created`, `updated` (seconds since 1970), `recurrences`, `trials`, `running`, `tags`, `state`,
`gpu`, `gpus` and `batch_size` of the latest trial, `energy`, `time`, `cost`, `wasted` and
`unmeasured` of those that have ended, `saved_energy`, `saved_time` and `saved_cost` with the
`default_...` that they are compared with (null if unknown), `basis` ("measured" or "predicted"),
`comparison` (what it rests on, in words), `trouble` and `damage`. `show` prints one of these with
`latest`, its latest trials, `profiles`, and `sizes`: `batch_size`, `state`, `epoch_cost` and
`measure` of each batch size on the GPUs of the latest trial. `export` writes `job`, `trials` (the
first one first), `profiles` and `log` (every event) as JSON, or the trials as CSV. A trial has
`trial`, `number`, `recurrence`, `attempt`, `state`, `gpu`, `gpus`, `max_power`, `batch_size`,
`role`, `threshold`, `began`, `ended`, `epochs`, `time`, `energy`, `cost`, `metric`, `note`, `best`
and `reason`.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from zeus.cli._job_list import OPTIONS, print_list, saved
from zeus.cli._job_list import add_options as add_list_options
from zeus.cli._output import PreparedFile
from zeus.cli._parser import (
    UsageError,
    add_action,
    add_json_option,
    add_server_option,
    add_storage_option,
    refuse_two_stores,
    whole_number,
)
from zeus.cli._terminal import MISSING, Console, clean, plural
from zeus.errors import DamagedJobError
from zeus.monitor._measurement import show_energy, show_joules, show_seconds
from zeus.optimizer._stopping import word_of
from zeus.optimizer.batch_size.api._answers import JobInfo, ProfileInfo, SizeInfo, TrialInfo
from zeus.optimizer.batch_size.api._api import JobsApi
from zeus.optimizer.batch_size.api._commands import (
    DeleteJob,
    ListSizes,
    ListTrials,
    ShowJob,
    ShowLog,
    ShowProfiles,
    TagJob,
)
from zeus.optimizer.batch_size.running._location import Location

_PAGE = 100
_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus jobs list|show|tag|export|delete [NAME] [TAG ...] [options]"
    parser.description = (
        "List recurring jobs with what they saved, show one with its latest trials, set its tags, "
        "export all data of a job, or delete it."
    )
    parser.epilog = """\
examples:
  zeus jobs list --sort saved
  zeus jobs list --trouble --tag vision
  zeus jobs show digits --trials 50
  zeus jobs tag digits vision nightly
  zeus jobs export digits --format csv --output trials.csv
  zeus jobs delete digits --server http://gpu1:8420"""
    add_action(parser, "list", "show", "tag", "export", "delete")
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the job; not for `list`")
    parser.add_argument(
        "tags", nargs="*", metavar="TAG", help="tag: all tags of the job from now on; none if none"
    )
    add_server_option(parser)
    add_storage_option(parser)
    parser.add_argument(
        "--trials", type=whole_number(1), metavar="N", help=f"show: number of trials ({_SHOWN})"
    )
    parser.add_argument(
        "--format", choices=("json", "csv"), help="export: file format (default: json)"
    )
    parser.add_argument("--output", metavar="FILE", help="export: FILE to write (default: stdout)")
    parser.add_argument("--yes", action="store_true", help="delete: do not ask")
    add_json_option(parser)
    add_list_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the action."""
    _check(arguments)
    location = Location.of(arguments.server, arguments.storage, timeout=30.0)
    actions = {
        "list": print_list,
        "show": _show,
        "tag": _tag,
        "export": _export,
        "delete": _delete,
    }
    console = Console(sys.stdout)
    with contextlib.closing(location.open()) as api:
        actions[arguments.action](api, arguments, console)
    if arguments.action == "list" and not arguments.json:
        console.print(f"Looked in {location}.")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action == "list" and arguments.name is not None:
        raise UsageError(
            f"`zeus jobs list` takes no NAME, but got {arguments.name!r}; "
            "use `zeus jobs show NAME` for one job"
        )
    if action != "list" and arguments.name is None:
        raise UsageError(f"`zeus jobs {action}` needs the NAME of a job; see `zeus jobs list`")
    refuse_two_stores(arguments)
    if arguments.tags and action != "tag":
        raise UsageError(f"`zeus jobs {action}` takes no TAG, but got {arguments.tags[0]!r}")
    only = {"--trials": "show", "--format": "export", "--output": "export"}
    only |= dict.fromkeys(OPTIONS, "list")
    for option, where in only.items():
        value = getattr(arguments, "text" if option == "--name" else option[2:])
        if value is not None and action != where:
            raise UsageError(f"{option} is for `zeus jobs {where}`")
    if arguments.json and action not in ("list", "show"):
        raise UsageError("--json is for `zeus jobs list` and `show`")
    if arguments.yes and action != "delete":
        raise UsageError("--yes is for `zeus jobs delete`")


# --- actions --------------------------------------------------------------------------------------


def _show(api: JobsApi, arguments: argparse.Namespace, console: Console) -> None:
    job = api.do(ShowJob(job=arguments.name))
    most = arguments.trials or _SHOWN
    trials = _latest_trials(api, job.name, most)
    profiles = api.do(ShowProfiles(job=job.name))
    sizes = api.do(ListSizes(job=job.name, gpu=job.gpu, gpus=job.gpus)) if job.gpu else []
    if arguments.json:
        record = {
            **job.to_dict(),
            "latest": [trial.to_dict() for trial in trials],
            "profiles": [profile.to_dict() for profile in profiles],
            "sizes": [size.to_dict() for size in sizes],
        }
        console.print_json(record)
        return
    console.print(*_summary(job), "")
    measured = [size for size in sizes if size.state == "measured"]
    if profiles or measured:
        rows = [*_profile_rows(profiles), *_measured_rows(job, measured)]
        console.print_table(rows, right=(1, 2, 3, 4))
        console.print("")
    if not trials:
        console.print("No trials yet.")
        return
    console.print_table(_trial_rows(trials), right=(0, 1, 2, 5, 6, 7))
    if job.trials > len(trials):
        console.print(f"and {job.trials - len(trials)} earlier ones (--trials N shows more)")


def _export(api: JobsApi, arguments: argparse.Namespace, _: Console) -> None:
    with contextlib.closing(PreparedFile(arguments.output or "-")) as output:
        job = api.do(ShowJob(job=arguments.name))
        trials = _latest_trials(api, job.name, None)[::-1]
        if arguments.format == "csv":
            output.write(_csv(trials).removesuffix("\n"))
            return
        record = {
            "job": job.to_dict(),
            "trials": [trial.to_dict() for trial in trials],
            "profiles": [profile.to_dict() for profile in api.do(ShowProfiles(job=job.name))],
            "log": list(_events(api, job.name)),
        }
        output.write(json.dumps(record, indent=1))


def _tag(api: JobsApi, arguments: argparse.Namespace, console: Console) -> None:
    job = api.do(TagJob(job=arguments.name, tags=tuple(arguments.tags)))
    tags = ", ".join(map(clean, job.tags)) or "none"
    console.print(f"Tags of job {clean(job.name)!r}: {tags}.")


def _delete(api: JobsApi, arguments: argparse.Namespace, console: Console) -> None:
    if not arguments.yes and not _confirmed(api, arguments.name):
        console.print(f"Job {arguments.name!r} is kept.")
        return
    api.do(DeleteJob(job=arguments.name))
    console.print(f"Job {arguments.name!r} is deleted.")


def _confirmed(api: JobsApi, name: str) -> bool:
    """Ask whether a job is to be deleted; only a person at a terminal can answer."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("`zeus jobs delete` asks at a terminal only: give --yes elsewhere")
    try:
        job = api.do(ShowJob(job=name))
        running = f", {job.running} of them running" if job.running else ""
        lost = f"{plural(job.trials, 'trial')}{running}, and all profiles"
    except DamagedJobError:
        lost = "a record that cannot be read"
    print(f"Delete job {name!r} with {lost}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --- pagination -----------------------------------------------------------------------------------


def _latest_trials(api: JobsApi, job: str, most: int | None) -> list[TrialInfo]:
    """Return at most `most` trials, the latest first; all for `None`."""
    found: list[TrialInfo] = []
    before: int | None = None
    while most is None or len(found) < most:
        wanted = _PAGE if most is None else min(_PAGE, most - len(found))
        page = api.do(ListTrials(job=job, before=before, most=wanted))
        found += page
        if len(page) < wanted:
            break
        before = page[-1].number
    return found


def _events(api: JobsApi, job: str) -> Iterator[dict[str, Any]]:
    after = 0
    while page := api.do(ShowLog(job=job, after=after, most=_PAGE)):
        yield from page
        after = page[-1]["sequence"]


# --- text -----------------------------------------------------------------------------------------


def _summary(job: JobInfo) -> list[str]:
    spec = job.spec
    sign = ">=" if spec["higher_is_better"] else "<="
    sizes = ", ".join(map(str, spec["batch_sizes"]))
    key = clean(spec.get("profile_key") or "")  # absent from older servers
    about = [clean(job.name)]
    if job.trouble:
        about.append(f"  needs a person: {clean(job.trouble)}")
    if job.tags:
        about.append(f"  tags {', '.join(map(clean, job.tags))}")
    energy, seconds, cost = saved(job)
    words = clean(job.comparison)
    if job.basis:
        about.append(f"  saved: energy {energy}, time {seconds}, cost {cost}")
        about.append(f"    {job.basis}, {words}")
    else:
        about.append(f"  saved: unknown, {words}")
    return [
        *about,
        f"  recurrences {job.recurrences}, trials {job.trials}, running {job.running}",
        f"  batch sizes {sizes}; default {spec['default_batch_size']}",
        f"  target: metric {sign} {spec['target_metric']:g} within {spec['max_epochs']} epochs",
        f"  policy {spec['policy']}, eta {spec['eta_knob']:g}, beta {spec['beta']}, "
        f"window {spec['window']}, learning rate rule {spec['learning_rate_rule']}",
        *([f"  power profiles shared by jobs with the key {key}"] if key else ()),
    ]


def _profile_rows(profiles: Sequence[ProfileInfo]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("profiled on", "GPUs", "batch size", "power limit", "epoch cost")
    ]
    for each in sorted(profiles, key=lambda profile: (profile.gpu, profile.batch_size)):
        limit = MISSING if each.power_limit is None else f"{each.power_limit:g} W"
        cost = MISSING if each.epoch_cost is None else show_joules(each.epoch_cost)
        rows.append((clean(each.gpu), str(each.gpus), str(each.batch_size), limit, cost))
    return rows


def _measured_rows(job: JobInfo, sizes: Sequence[SizeInfo]) -> list[tuple[str, ...]]:
    """Return rows as of profiles for batch sizes of which only steps were measured."""
    return [
        (
            clean(job.gpu),
            str(job.gpus),
            str(size.batch_size),
            "steps only",
            MISSING if size.epoch_cost is None else f"≈ {show_joules(size.epoch_cost)}",
        )
        for size in sizes
    ]


def _trial_rows(trials: Sequence[TrialInfo]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("recurrence", "attempt", "batch size", "role", "outcome", "epochs", "time", "energy",
         "decided because", "ended because")
    ]  # fmt: skip
    for trial in trials:
        reported = trial.epochs > 0 or trial.time > 0  # an abandoned trial has no data
        rows.append(
            (
                str(trial.recurrence),
                str(trial.attempt + 1),  # as `zeus run` counts them
                str(trial.batch_size),
                trial.role,
                word_of(trial.state),
                str(trial.epochs),
                show_seconds(trial.time) if reported else MISSING,
                MISSING if not reported or trial.energy is None else show_energy(trial.energy),
                clean(trial.reason),
                clean(trial.note),
            )
        )
    return rows


def _csv(trials: Sequence[TrialInfo]) -> str:
    text = io.StringIO()
    names = [field.name for field in fields(TrialInfo)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        shown = trial.to_dict() | {"attempt": trial.attempt + 1, "state": word_of(trial.state)}
        writer.writerow({name: _cell(value) for name, value in shown.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    # Spreadsheets run text that begins like this as a formula.
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return value
