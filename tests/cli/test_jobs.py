"""`zeus jobs`: what is kept, for people and for programs, in a store or on a server."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import sys
from functools import partial
from typing import Any

import pytest
from tests.cli.support import ZEUS, environment, one_error_line, zeus_here
from tests.optimizer.batch_size.clients import job, opened
from tests.server.child import serving

from zeus.optimizer._stopping import word_of
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    EndTrial,
    ListTrials,
    PutProfile,
    PutSize,
    ReportEpoch,
)
from zeus.server.pages._outcomes import outcome


@pytest.fixture
def zeus(capfd):
    """The command, in this process."""

    return partial(zeus_here, capfd)


@pytest.fixture
def storage(tmp_path):
    """A store with a job that has run, one that has not, and one with a strange name."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with opened(url) as jobs:
        for name in ("nightly", "never", "=cmd() %41 é"):
            shared = "search" if name == "never" else None
            sizes = (16, 32, 64, 128)
            jobs.do(CreateJob(spec=job(name, batch_sizes=sizes, profile_key=shared)))
        for number in range(3):
            decision = jobs.do(
                Decide(job="nightly", gpu="V100", max_power=250, request=str(number))
            )
            for epoch in (1, 2):
                metric = 0.1 if epoch == 1 else 0.95
                jobs.do(
                    ReportEpoch(
                        trial=decision.trial,
                        epoch=epoch,
                        time=10,
                        energy=1500,
                        metric=metric,
                        power_limit=175,
                    )
                )
        running = jobs.do(Decide(job="nightly", gpu="V100", max_power=250))
        jobs.do(
            EndTrial(trial=running.trial, outcome="failed", note="=HYPERLINK() was\nout of memory")
        )
        jobs.do(Decide(job="nightly", gpu="V100", max_power=250))
        jobs.do(
            PutProfile(job="nightly", gpu="V100", batch_size=32, epoch_cost=2000, power_limit=175)
        )
        for size in (16, 64, 128):  # not all of them have run an epoch
            jobs.do(PutSize(job="nightly", gpu="V100", batch_size=size, epoch_cost=4000))
    return url


@pytest.fixture(params=["storage", "server"])
def place(request, storage):
    """Options that lead there."""
    if request.param == "storage":
        yield ("--storage", storage)
        return
    with serving(storage) as server:
        yield ("--server", server.url)


def test_everything_can_be_seen_exported_and_deleted(zeus, place, tmp_path):
    done = zeus("jobs", "list", *place)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.split()[:4] == ["job", "status", "energy", "saved"]
    assert [row.split()[0] for row in rows[:3]] == ["=cmd()", "never", "nightly"]
    assert rows[1].split()[:6] == ["never", "new", "-", "-", "-", "-"]
    status, energy = rows[2].split()[1:3]
    assert (status, energy) == ("running", "0")  # always the default, at the limit that it had
    assert "measured" in rows[2]
    assert "32 -> " in rows[2]  # to whichever the policy has chosen
    # The latest run is another recurrence, and runs.
    assert (
        "  nightly: the latest run failed before the end of the first epoch: =HYPE" in done.stdout
    )
    assert rows[-1].startswith("Looked in ")
    assert rows[-2].startswith("3 jobs: 0 J (0.0 %) of energy saved, 0 ms (0.0 %) of time")

    listed = json.loads(zeus("jobs", "list", "--json", *place).stdout)
    assert [each["name"] for each in listed] == ["=cmd() %41 é", "never", "nightly"]

    shown = zeus("jobs", "show", "nightly", "--trials", "2", *place).stdout
    assert "nightly\n  needs a person: the latest run failed" in shown
    assert "  recurrences 5, trials 5, running 1\n" in shown
    assert "target: metric >= 0.9 within 8 epochs" in shown
    assert "175 W" in shown
    assert "=HYPERLINK() was?out of memory" in shown
    assert "and 3 earlier ones" in shown
    (failed,) = [row for row in shown.splitlines() if " failed  " in row]
    attempt, epochs, time, energy = (failed.split()[at] for at in (1, 5, 6, 7))
    assert (attempt, epochs) == ("1", "0"), "people count from one"
    assert (time, energy) == ("-", "-"), "nothing was told of it, which is not 0 J"
    record = json.loads(zeus("jobs", "show", "nightly", "--json", *place).stdout)
    assert [trial["number"] for trial in record["latest"]] == [5, 4, 3, 2, 1]
    assert record["profiles"][0]["power_limit"] == 175
    states = {size["batch_size"]: size["state"] for size in record["sizes"]}
    assert states[32] == "trained"
    steps = [row.split() for row in shown.splitlines() if "steps only" in row]
    measured = [["V100", "1", str(size)] for size in states if states[size] == "measured"]
    assert [row[:3] for row in steps] == measured != []
    assert all("≈" in row for row in steps)
    assert "profiles shared" not in shown
    never = zeus("jobs", "show", "never", *place).stdout
    assert "No trials yet." in never
    assert "  power profiles shared by jobs with the key search\n" in never

    exported = json.loads(zeus("jobs", "export", "nightly", *place).stdout)
    assert set(exported) == {"job", "trials", "profiles", "log"}
    assert [trial["state"] for trial in exported["trials"]] == [
        *["converged"] * 3, "failed", "running",
    ]  # fmt: skip
    assert [event["sequence"] for event in exported["log"]] == list(
        range(1, len(exported["log"]) + 1)
    )

    path = tmp_path / "trials.csv"
    done = zeus("jobs", "export", "nightly", "--format", "csv", "--output", str(path), *place)
    assert (done.returncode, done.stdout) == (0, "")
    rows = list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
    assert [row["batch_size"] for row in rows[:1]] == ["32"]
    assert float(rows[0]["energy"]) == 3000.0
    # Nothing that a spreadsheet would run.
    assert rows[3]["note"] == "'=HYPERLINK() was\nout of memory"

    refused = zeus("jobs", "delete", "=cmd() %41 é", *place)
    assert refused.returncode == 2
    assert "give --yes" in one_error_line(refused)
    done = zeus("jobs", "delete", "=cmd() %41 é", "--yes", *place)
    assert (done.returncode, done.stderr) == (0, "")
    again = zeus("jobs", "delete", "=cmd() %41 é", "--yes", *place)
    assert again.returncode == 1
    assert "there is no job" in one_error_line(again)
    assert "=cmd" not in zeus("jobs", "list", *place).stdout


def test_long_lists_come_whole(zeus, tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with opened(url) as jobs:
        jobs.execute([CreateJob(spec=job(f"job {number:03}")) for number in range(103)])
        asked: dict[str, Any] = {"job": "job 000", "gpu": "V100", "max_power": 250.0}
        given = jobs.execute([Decide(**asked, request=str(n)) for n in range(205)])
        jobs.execute([EndTrial(trial=each.trial, outcome="cancelled") for each in given])
    assert len(json.loads(zeus("jobs", "list", "--json", "--storage", url).stdout)) == 103
    exported = json.loads(zeus("jobs", "export", "job 000", "--storage", url).stdout)
    assert [trial["number"] for trial in exported["trials"]] == list(range(1, 206))
    assert len(exported["log"]) == 410


@pytest.mark.parametrize(("answer", "kept"), [("y", False), ("n", True), ("", True)])
def test_delete_asks_at_a_terminal(zeus, storage, answer, kept):
    pid, terminal = pty.fork()
    if pid == 0:
        words = [*ZEUS, "jobs", "delete", "nightly", "--storage", storage]
        os.execve(sys.executable, words, environment())
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed with the process
        while some := os.read(terminal, 4096):
            shown += some
            if shown.endswith(b"[y/N] "):
                os.write(terminal, f"{answer}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "Delete job 'nightly' with 5 trials, 1 of them running" in shown.decode()
    listed = json.loads(zeus("jobs", "list", "--json", "--storage", storage).stdout)
    assert ("nightly" in [job["name"] for job in listed]) is kept


def test_table_csv_and_page_agree(zeus, storage):
    place = ("--storage", storage)
    exported = zeus("jobs", "export", "nightly", "--format", "csv", *place).stdout
    rows = list(csv.DictReader(io.StringIO(exported)))
    table = zeus("jobs", "show", "nightly", *place).stdout
    with opened(storage) as jobs:
        trials = jobs.do(ListTrials(job="nightly"))
    assert len(rows) == len(trials) == 5
    for row, trial in zip(rows, reversed(trials), strict=True):
        assert row["attempt"] == str(trial.attempt + 1)
        assert row["state"] == word_of(trial.state)
        line = (
            f"{trial.recurrence} {row['attempt']} {trial.batch_size} {trial.role} {row['state']} "
        )
        assert line in re.sub(" +", " ", table)
        assert row["state"] in str(outcome(trial.state))  # the page's


def test_an_empty_store_has_no_jobs(zeus, tmp_path):
    done = zeus("jobs", "list", "--storage", f"sqlite:///{tmp_path}/new.db")
    assert (done.returncode, done.stdout) == (
        0,
        f"No jobs.\nLooked in sqlite:///{tmp_path}/new.db.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show"], 2, "`zeus jobs show` needs the NAME of a job"),
        (["list", "nightly"], 2, "`zeus jobs list` takes no NAME, but got 'nightly'"),
        (["list", "--format", "csv"], 2, "--format is for `zeus jobs export`"),
        (["export", "a", "--json"], 2, "--json is for"),
        (["show", "a", "--trials", "0"], 2, "at least 1"),
        (["shwo", "a"], 2, "but got 'shwo'; did you mean `show`?"),
        (["list", "--server", "http://a", "--storage", "sqlite:///b"], 2, "--server or --storage"),
        (["list", "--server", "http://127.0.0.1:9"], 1, "cannot be reached"),
    ],
)
def test_wrong_use(zeus, arguments, code, said):
    done = zeus("jobs", *arguments)
    assert done.returncode == code
    assert said in one_error_line(done)


def test_lists_are_sorted_filtered_and_tagged(zeus, place):
    def listed(*options):
        done = zeus("jobs", "list", "--json", *options, *place)
        assert (done.returncode, done.stderr) == (0, "")
        return [job["name"] for job in json.loads(done.stdout)]

    done = zeus("jobs", "tag", "nightly", "vision", "a tag", *place)
    assert (done.returncode, done.stdout) == (0, "Tags of job 'nightly': a tag, vision.\n")
    assert listed("--tag", "vision") == listed("--trouble") == ["nightly"]
    assert listed("--state", "new") == ["=cmd() %41 é", "never"]
    assert listed("--sort", "trials", "--most", "1") == ["nightly"]
    assert listed("--sort", "name", "--reverse")[0] == "nightly"
    assert listed("--name", "NEV") == ["never"]
    assert listed("--gpu", "V100", "--days", "1") == ["nightly"]
    assert "No job matches." in zeus("jobs", "list", "--tag", "none", *place).stdout
    shown = zeus("jobs", "show", "nightly", *place).stdout
    assert "  tags a tag, vision\n" in shown
    assert "  saved: energy 0 J (0.0 %)" in shown
    assert "measured, against the default batch size, 32: 1 run at the power limits chosen" in shown
    assert "the default batch size" in shown  # why the first was decided
    assert "  saved: unknown, no run has" in zeus("jobs", "show", "never", *place).stdout
    assert "none" in zeus("jobs", "tag", "nightly", *place).stdout
    assert listed("--tag", "vision") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "nightly", "--sort", "saved"), "--sort is for `zeus jobs list`"),
        (("show", "nightly", "extra"), "`zeus jobs show` takes no TAG, but got 'extra'"),
        (("list", "--sort", "save"), "must be one of name, saved, .*did you mean `saved`"),
        (("tag", "nightly", "a", "a"), "`tags` must differ from each other"),
        (("tag",), "needs the NAME of a job"),
    ],
)
def test_what_a_list_does_not_take(zeus, storage, words, said):
    line = one_error_line(zeus("jobs", *words, "--storage", storage))
    assert re.search(said, line)
