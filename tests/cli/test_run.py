"""`zeus run`: real programs, real stores, what each must do and what becomes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest
from tests.cli.support import LONG_ENOUGH, one_error_line, start, zeus
from tests.optimizer.batch_size.clients import free_port, trials
from tests.present import present
from tests.server.child import Server

from zeus.cli import main
from zeus.optimizer.batch_size.api._commands import ListTrials, ShowJob
from zeus.optimizer.batch_size.api._remote import RemoteJobs

JOB = """
name = "nightly"
batch_sizes = [16, 32, 64]
default_batch_size = 32
target_metric = 0.9
max_epochs = 6
learning_rate_rule = "linear"
"""

# Trains in virtual time; `NEEDED` says how many epochs each batch size takes.
TRAIN = """
import json, os, sys
from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer
from zeus.testing import SimulatedNode, Workload
needed = json.loads(os.environ["NEEDED"])
with SimulatedNode("v100") as node, BatchSizeOptimizer(ZeusMonitor()) as optimizer:
    size = optimizer.get_batch_size()
    optimizer.on_train_begin()
    while not optimizer.training_finished:
        optimizer.on_epoch_begin()
        for _ in range(128 // size):
            optimizer.on_step_begin()
            Workload("step", 0.02 * size, 0.2).run(node.gpus)
            optimizer.on_step_end()
        done = len(optimizer.history) + 1
        optimizer.on_evaluate(0.95 if done >= needed[str(size)] else 0.1 * done)
        if os.environ.get("STOP_AFTER") == str(done):
            sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all: what is behind it is tested elsewhere."""
    running = Server(f"sqlite:///{tmp_path_factory.mktemp('server')}/jobs.db")
    yield running
    assert running.stop() == ""


class Here:
    """A directory with a job of its own and programs to run it with."""

    def __init__(self, path, url, capfd):
        self.path, self.url, self._capfd = path, url, capfd
        self.name = f"nightly-{uuid.uuid4().hex[:8]}"
        self.write("JOB.toml", JOB.replace("nightly", self.name))
        self.write("train.py", TRAIN)

    def write(self, name, text):
        (self.path / name).write_text(text)
        return name

    def run(self, *options, program="train.py", words=(), url=None, needed=None):
        """Run the job; the command in this process, the program in one of its own."""
        needs = {"16": 4, "32": 3, "64": 5, **(needed or {})}
        os.environ["NEEDED"] = json.dumps(needs)
        self._capfd.readouterr()
        place = ("--server", url or self.url, "--timeout", "60")
        code = main(
            [
                "run",
                "--job-file",
                "JOB.toml",
                *place,
                *options,
                "--",
                sys.executable,
                program,
                *words,
            ]
        )
        out, err = self._capfd.readouterr()
        return subprocess.CompletedProcess([], code, out, err)

    def trials(self):
        return RemoteJobs(self.url, timeout=60).do(ListTrials(job=self.name))[::-1]


@pytest.fixture
def here(tmp_path, server, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    monkeypatch.setenv("NEEDED", "")
    server.share_token()
    return Here(tmp_path, server.url, capfd)


# --- programs that report -------------------------------------------------------------------------


def test_a_job_recurs_and_learns(here):
    done = here.run("--recurrences", "3", "--output", "out.json")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == f"zeus: {here.name}, recurrence 1: batch size 32, the default batch size"
    assert lines[1].startswith("zeus: converged (the target was reached in epoch 3): 3 epochs")
    record = json.loads((here.path / "out.json").read_text())
    assert (record["job"], record["exit_code"]) == (here.name, 0)
    first, second, _ = record["recurrences"]
    assert (first["recurrence"], first["batch_size"], first["epochs"]) == (1, 32, 3)
    assert second["batch_size"] != 32
    # What the program says and what the store knows are the same.
    told = [trial for each in record["recurrences"] for trial in each["trials"]]
    for mine, kept in zip(told, here.trials(), strict=True):
        assert (mine["trial"], mine["outcome"]) == (kept.trial, kept.state)
        assert mine["energy"] == pytest.approx(kept.energy)
        assert mine["cost"] == pytest.approx(kept.cost)


def test_what_is_stopped_early_is_tried_again(here):
    done = here.run("--recurrences", "2", needed={"16": 99, "64": 99})
    assert done.returncode == 0, done.stderr
    _, stopped, retried = here.trials()
    assert (stopped.state, stopped.recurrence, stopped.attempt) == ("stopped", 2, 0)
    assert (retried.state, retried.recurrence, retried.attempt) == ("converged", 2, 1)
    assert (retried.batch_size, retried.role) == (32, "retry")
    assert "attempt 2: batch size 32" in done.stderr


def test_a_target_that_cannot_be_reached_ends_with_a_report(here):
    done = here.run("--quiet", needed={"16": 99, "32": 99, "64": 99})
    assert done.returncode == 1
    said = one_error_line(done)
    assert "did not reach its target 0.9 in 3 attempts; the best was 0.6 with batch size" in said
    for size in (16, 32, 64):
        assert f"{size} (the target was not reached within 6 epochs)" in said
    assert "change `target_metric`, `max_epochs` or `batch_sizes`" in said
    assert [trial.state for trial in here.trials()] == ["failed"] * 3


@pytest.mark.parametrize(
    ("after", "code", "state", "returned"),
    [(2, 0, "failed", 1), (2, 3, "cancelled", 3), (3, 5, "converged", 5)],
    ids=["gives up", "breaks down", "breaks down afterwards"],
)
def test_exit_codes_of_programs_that_report(  # noqa: PLR0917
    here, monkeypatch, after, code, state, returned
):
    monkeypatch.setenv("STOP_AFTER", str(after))
    monkeypatch.setenv("CODE", str(code))
    # With one batch size there is nothing else to try.
    one = (here.path / "JOB.toml").read_text().replace("[16, 32, 64]", "[32]")
    here.write("JOB.toml", one)
    done = here.run()
    assert done.returncode == returned, done.stderr
    (trial,) = here.trials()
    assert (trial.state, trial.epochs) == (state, after)


def test_a_program_may_bring_the_job_itself_if_it_is_the_same(here):
    same = TRAIN.replace(
        "BatchSizeOptimizer(ZeusMonitor())",
        f"BatchSizeOptimizer(ZeusMonitor(), job=JobSpec('{here.name}', (16, 32, 64), 32, TARGET, "
        "max_epochs=6, learning_rate_rule='linear'))",
    ).replace("import BatchSizeOptimizer", "import BatchSizeOptimizer, JobSpec")
    here.write("same.py", same.replace("TARGET", "0.9"))
    assert here.run(program="same.py").returncode == 0
    assert len(here.trials()) == 1
    here.write("other.py", same.replace("TARGET", "0.8"))
    done = here.run("--attempts", "1", program="other.py")
    assert done.returncode == 1
    assert "target_metric is 0.9, not 0.8" in done.stderr


def test_processes_that_cannot_share_what_was_decided_are_told_the_cure(here, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")  # as a launcher would say to each of its processes
    done = here.run()
    assert done.returncode == 1
    said = "but got (batch_size=32, replicas=3); start it by `zeus run --replicas 3`"
    assert said in done.stderr
    (trial,) = here.trials()
    assert trial.state == "cancelled"  # the batch size is not to blame
    assert said in trial.note


def test_a_job_file_states_how_its_runs_share_a_batch(here):
    here.write("JOB.toml", (here.path / "JOB.toml").read_text() + "max_local_batch_size = 5")
    shares = "optimizer.local_batch_size, optimizer.accumulation_steps, optimizer.replicas"
    here.write(
        "train.py",
        TRAIN.replace("    optimizer.on_train", f"    print({shares})\n    optimizer.on_train", 1),
    )
    done = here.run(words=("{local_batch_size}",))
    assert (done.returncode, done.stdout) == (0, "4 8 1\n"), done.stderr
    done = here.run("--max-local-batch-size", "64", "--replicas", "2")
    size = here.trials()[-1].batch_size
    assert (done.returncode, done.stdout) == (0, f"{size // 2} 1 2\n"), done.stderr


# --- programs that do not -------------------------------------------------------------------------


def test_words_and_variables_tell_the_program_what_to_do(here):
    here.write("plain.py", "import json, os, sys; print(json.dumps([sys.argv, dict(os.environ)]))")
    words = ("-b", "{batch_size}", "--lr={learning_rate_scale}", "{job} {recurrence} {x} {{}}")
    done = here.run("--trust-exit-code", program="plain.py", words=words)
    assert done.returncode == 0, done.stderr
    arguments, told = json.loads(done.stdout)
    assert arguments == ["plain.py", "-b", "32", "--lr=1.0", f"{here.name} 1 {{x}} {{{{}}}}"]
    assert told["ZEUS_JOB"] == here.name
    assert (told["ZEUS_BATCH_SIZE"], told["ZEUS_LEARNING_RATE_SCALE"]) == ("32", "1.0")
    assert (told["ZEUS_RECURRENCE"], told["ZEUS_ATTEMPT"]) == ("1", "0")
    assert told["ZEUS_SERVER"] == here.url
    (trial,) = here.trials()
    assert told["ZEUS_TRIAL"] == trial.trial


def test_a_program_that_does_nothing_has_not_converged(here):
    here.write("plain.py", "pass")
    done = here.run(program="plain.py")
    assert done.returncode == 1
    assert "reported no epoch and no metric" in done.stderr
    assert "the batch size may be ignored: there is no {batch_size}" in done.stderr
    (trial,) = here.trials()
    assert (trial.state, trial.epochs) == ("cancelled", 0)
    assert "--trust-exit-code" in trial.note
    # Nothing is learned from it, and the next run is as if it had not been.
    assert here.run().returncode == 0
    assert [trial.batch_size for trial in here.trials()] == [32, 32]


def test_a_program_that_reports_but_never_asks_for_its_batch_size_is_warned_of(here):
    here.write("deaf.py", TRAIN.replace("optimizer.get_batch_size()", "32"))
    done = here.run(program="deaf.py")
    assert done.returncode == 0, done.stderr
    said = "warning: the batch size may be ignored: there is no {batch_size}"
    assert said in done.stderr
    assert said not in here.run().stderr
    assert said not in here.run(program="deaf.py", words=("{batch_size}",)).stderr


def test_a_program_whose_sizes_behave_alike_is_warned_of(here):
    # It asks for its batch size, and trains with another all the same.
    deaf = TRAIN.replace("128 // size", "20").replace("0.02 * size", "0.6")
    here.write("deaf.py", deaf)
    done = here.run("--recurrences", "3", program="deaf.py", needed={"16": 3, "64": 3})
    assert done.returncode == 0, done.stderr
    first, second, _ = here.trials()
    assert "warning" not in first.note
    said = f"with batch size {second.batch_size} as with 32: the program may ignore its batch size"
    assert "; warning: an epoch takes as many steps (20) and as much time and energy" in second.note
    assert second.note.endswith(said)
    assert said in done.stderr  # of the command, and in the log of the program
    info = RemoteJobs(here.url, timeout=60).do(ShowJob(job=here.name))
    assert "the program may ignore its batch size" in info.trouble
    # The next run that follows its batch size is not warned of.
    here.run(needed={"16": 3, "64": 3})
    info = RemoteJobs(here.url, timeout=60).do(ShowJob(job=here.name))
    assert "ignore" not in info.trouble


@pytest.mark.parametrize("size", [32, 16])
def test_a_program_out_of_memory_has_failed_even_at_the_default(here, size):
    memory = "if size == LARGE: raise MemoryError\n    optimizer.on_train_begin()"
    text = TRAIN.replace("optimizer.on_train_begin()", memory.replace("LARGE", str(size)))
    here.write("large.py", text)
    if size != 32:
        here.write("JOB.toml", (here.path / "JOB.toml").read_text().replace("= 32\n", "= 16\n"))
    done = here.run(program="large.py")
    first, *_, last = here.trials()
    assert (first.state, first.epochs, first.batch_size) == ("failed", 0, size), done.stderr
    assert first.note == "out of memory before the end of its first epoch (exit code 1)"
    assert (last.state, done.returncode) == ("converged", 0)


def test_exit_code_0_of_a_silent_program_is_the_target(here):
    here.write("plain.py", "import time; time.sleep(0.3)")
    done = here.run("--trust-exit-code", "--json", program="plain.py")
    assert done.returncode == 0
    (told,) = json.loads(done.stdout)["recurrences"]
    (trial,) = here.trials()
    assert (trial.state, trial.epochs, trial.metric) == ("converged", 1, 0.9)
    assert trial.time > 0.3
    assert trial.energy == pytest.approx(told["energy"])
    assert trial.energy > 0
    assert told["trials"][0]["reported"] is False
    assert "measured from outside" in done.stderr


def test_a_program_that_reports_and_then_does_not_has_reached_nothing(here):
    assert here.run().returncode == 0
    here.write("plain.py", "pass")
    done = here.run("--trust-exit-code", "--quiet", program="plain.py")
    assert done.returncode == 1
    assert "reported nothing, unlike in earlier trials" in one_error_line(done)
    assert [trial.state for trial in here.trials()] == ["converged", "cancelled"]


def test_a_breakdown_counts_only_against_a_batch_size_that_never_worked(here, monkeypatch):
    code = "import os, sys; sys.exit(7 * (os.environ['ZEUS_BATCH_SIZE'] in os.environ['BAD']))"
    here.write("plain.py", code)
    # The default is what works today: something else must be wrong.
    monkeypatch.setenv("BAD", "32")
    done = here.run("--trust-exit-code", program="plain.py")
    assert done.returncode == 7
    assert "crashed before the end of its first epoch (exit code 7)" in done.stderr
    assert [trial.state for trial in here.trials()] == ["cancelled"]
    monkeypatch.setenv("BAD", "")
    assert here.run("--trust-exit-code", program="plain.py").returncode == 0
    # Another one does not fit into memory: the recurrence is saved by a retry.
    monkeypatch.setenv("BAD", "16 64")
    done = here.run("--trust-exit-code", program="plain.py")
    assert done.returncode == 0, done.stderr
    *_, unfit, retried = here.trials()
    assert (unfit.state, unfit.epochs) == ("failed", 0)
    assert (retried.state, retried.batch_size) == ("converged", 32)


def test_streams_are_the_programs_and_the_store_is_in_the_job(tmp_path):
    (tmp_path / "JOB.toml").write_text(JOB + "storage = 'sqlite:///mine.db'")
    code = "import sys; sys.stdout.write(sys.stdin.read()[::-1]); sys.stderr.write('own words')"
    done = zeus(
        *("run", "--job-file", "JOB.toml", "--quiet", "--trust-exit-code"),
        *("--", sys.executable, "-c", code),
        cwd=tmp_path,
        stdin="olleh",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello", "own words")
    assert [trial.state for trial in trials(f"sqlite:///{tmp_path}/mine.db")] == ["converged"]


# --- signals and servers --------------------------------------------------------------------------


def started(here, *options):
    """A program that runs for ever, from the moment it is up; the command in its own process."""
    code = "import os, signal, time; signal.signal(2, signal.SIG_DFL); print(os.getpid(), flush=1)"
    process = start(
        *("run", "--job-file", "JOB.toml", "--server", here.url, "--timeout", "60", *options),
        *("--", sys.executable, "-c", f"{code}; time.sleep(600)"),
        cwd=here.path,
        start_new_session=True,
    )
    return process, int(present(process.stdout).readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_and_nothing_is_tried_again(here, number):
    process, _ = started(here)
    process.send_signal(number)
    _, said = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 128 + number
    assert f"killed by {number.name}" in said
    assert [trial.state for trial in here.trials()] == ["cancelled"]


def test_a_command_that_is_killed_leaves_its_trial_to_the_lease(here):
    process, program = started(here)
    process.kill()
    os.kill(program, signal.SIGKILL)
    process.communicate(timeout=LONG_ENOUGH)
    (trial,) = here.trials()
    assert trial.state == "running"  # until ten minutes later


def test_without_a_server_the_job_runs_with_its_default_and_is_delivered_later(here, tmp_path):
    storage, port = f"sqlite:///{tmp_path}/late.db", free_port()
    url = f"http://127.0.0.1:{port}"
    # One attempt: nobody knows of a better batch size.
    assert here.run(url=url, needed={"32": 99}).returncode == 1
    done = here.run(url=url)
    assert done.returncode == 0
    assert "not numbered yet: batch size 32, the default batch size, because no" in done.stderr
    late = Server(storage, port=port)
    try:
        assert here.run(url=url).returncode == 0
    finally:
        assert late.stop() == ""
    assert not list((tmp_path / "zeus-state" / "undelivered").glob("*.json"))
    failed, second, *now = trials(storage, here.name)
    assert (failed.state, failed.epochs) == ("failed", 6)
    assert second.recurrence == 2
    assert now[-1].state == "converged"


def test_a_program_whose_server_dies_is_delivered_by_the_next(here, tmp_path, monkeypatch):
    storage = f"sqlite:///{tmp_path}/killed.db"
    server = Server(storage)
    kill = "        subprocess.run(['kill', '-9', os.environ['VICTIM']], stderr=-3)\n"
    here.write(
        "kill.py", "import subprocess\n" + TRAIN.replace("        done =", f"{kill}        done =")
    )
    monkeypatch.setenv("VICTIM", str(server.process.pid))
    done = here.run(url=server.url, program="kill.py")
    assert done.returncode == 0, done.stderr
    assert "converged" in done.stderr
    server.stop()
    assert [trial.state for trial in trials(storage, here.name)] == ["running"]
    again = Server(storage, port=server.port)
    try:
        assert here.run(url=server.url).returncode == 0
    finally:
        again.stop()
    first = trials(storage, here.name)[0]
    assert (first.state, first.epochs) == ("converged", 3)


# --- wrong use ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = =", "JOB.toml is not TOML: Invalid value (at line 1, column 8)"),
        ("name = 'a'", "JOB.toml: a job needs batch_sizes, default_batch_size, target_metric"),
        (JOB.replace("= 32\n", "= 33\n"), "`default_batch_size` must be one of `batch_sizes`"),
        (JOB + "epochs = 3", "a job has no epochs"),
        (JOB + "replicas = 0", "`replicas >= 1` must hold, but got 0"),
        (JOB + "max_local_batch_size = 'x'", "`max_local_batch_size` must be a whole number"),
        (JOB + "server = 3", "`server` must be a URL, but got 3"),
        (JOB + "server = 'http://a'\nstorage = 'sqlite:///b'", "but got both"),
        (JOB.replace("0.9", "'high'"), "`target_metric` must be a number, but got 'high'"),
    ],
)
def test_a_job_that_is_wrong_is_told_with_its_key(here, text, said):
    here.write("JOB.toml", text)
    done = here.run()
    assert done.returncode == 2
    assert said in one_error_line(done)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "there is no command to run"),
        (["--recurrences", "0", "--", "true"], 2, "at least 1, but got '0'"),
        (["--timeout", "no", "--", "true"], 2, "must be seconds"),
        (["--replicas", "0", "--", "true"], 2, "at least 1, but got '0'"),
        (["--replicas", "5", "--", "true"], 2, "batch_sizes=(16, 32, 64), replicas=5"),
        (["--", "train", "{batchsize}"], 2, "but got {batchsize} (perhaps {batch_size})"),
        (
            ["--server", "http://a", "--storage", "sqlite:///b", "--", "true"],
            2,
            "--server or --storage",
        ),
        (["--storage", "jobs.db", "--", "true"], 2, "sqlite:///FILE"),
        (["--server", "URL", "--quiet", "--", "./none"], 127, "./none: command not found"),
    ],
)
def test_wrong_use(here, capfd, arguments, code, said):
    words = [here.url if word == "URL" else word for word in arguments]
    assert main(["run", "--job-file", "JOB.toml", *words]) == code
    done = subprocess.CompletedProcess([], code, *capfd.readouterr())
    assert said in one_error_line(done)
    if "URL" in arguments:  # nothing stays open
        assert [trial.state for trial in here.trials()] == ["cancelled"]


def test_a_job_needs_a_file(here, capfd):
    assert main(["run", "--", "true"]) == 2
    assert "--job-file" in capfd.readouterr().err
    assert main(["run", "--job-file", "none.toml", "--", "true"]) == 2
    assert "none.toml cannot be read: No such file" in capfd.readouterr().err


def test_a_job_does_not_change_under_its_name(here):
    here.write("plain.py", "pass")
    assert here.run("--trust-exit-code", program="plain.py").returncode == 0
    here.write("JOB.toml", (here.path / "JOB.toml").read_text().replace("0.9", "0.8"))
    done = here.run("--trust-exit-code", program="plain.py")
    assert done.returncode == 1
    assert "target_metric is 0.9, not 0.8" in one_error_line(done)
