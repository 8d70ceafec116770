"""`zeus replay`: the table, the records, and what it refuses."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here

KEYS = [
    "gpu",
    "workload",
    "scenario",
    "policy",
    "seed",
    "recurrences",
    "trials",
    "unreached",
    "energy",
    "time",
    "cost",
    "eta_last5_vs_default",
    "tta_last5_vs_default",
    "cumulative_regret",
    "too_expensive_after_100",
    "cumulative_eta_vs_default",
    "cumulative_tta_vs_default",
    "last_batch_size",
    "last_power_limit",
    "optimal_batch_size",
    "optimal_power_limit",
]


@pytest.fixture
def folder(tmp_path):
    """A small trace: one workload on one GPU, best at 512; 4096 was never trained."""
    epochs = {256: (4, 4), 512: (4, 5), 1024: (8, 9), 2048: ("nan", "nan")}
    lines = ["dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"]
    lines += [
        f"movielens-1m,ncf,{size},adam,1e-3,{run},{target},{epoch if target == 0.41 else 1}"
        for size, reached in epochs.items()
        for run, epoch in enumerate(reached)
        for target in (0.4, 0.41)
    ]
    (tmp_path / "summary_train.csv").write_text("\n".join(lines) + "\n")
    lines = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    lines += [
        f"movielens-1m,ncf,{size},adam,{limit},{(20 + 8000 / size) * (200 / limit) ** 0.4},"
        f"{0.9 * limit}"
        for size in (*epochs, 4096)
        for limit in (100, 150, 200)
    ]
    (tmp_path / "summary_power_x1.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_table_and_the_records(folder):
    out = folder / "records.json"
    done = zeus("replay", "--traces", str(folder), "--seeds", "3", "--output", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # the bar is for terminals
    head, about, *rows = done.stdout.splitlines()
    assert head.split()[:4] == ["policy", "energy", "time", "regret"]
    assert about.startswith("x1 neumf; best: 512 @ ")
    assert [row.split()[0] for row in rows[:4]] == ["default", "grid", "paper", "zeus"]
    assert max(map(len, rows)) <= 80
    records = json.loads(out.read_text())
    assert len(records) == 4 * 3
    assert all(list(record) == KEYS for record in records)
    assert {record["recurrences"] for record in records} == {2 * 4 * 3}
    assert {record["optimal_batch_size"] for record in records} == {512}
    default = [record for record in records if record["policy"] == "default"]
    assert {(r["last_batch_size"], r["last_power_limit"]) for r in default} == {(1024, 200.0)}
    ours = [record for record in records if record["policy"] == "zeus"]
    assert all(record["eta_last5_vs_default"] < 0.9 for record in ours)
    assert sum(r["cumulative_regret"] for r in ours) < sum(r["cumulative_regret"] for r in default)


def test_the_same_seeds_give_the_same_records(folder):
    options = ("replay", "--traces", str(folder), "--policy", "zeus", "--seeds", "2", "--json")
    first, second = zeus(*options), zeus(*options)
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)[0]["policy"] == "zeus"
    assert "regret" in first.stderr  # the table makes way for the records


def test_options_change_what_is_replayed(folder):
    def records(*options):
        done = zeus("replay", "--traces", str(folder), "--policy", "paper", "--seeds", "2",
                    "--json", *options)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert {r["recurrences"] for r in records("--recurrences", "7")} == {7}
    assert {r["recurrences"] for r in records("--untrained", "fail")} == {2 * 5 * 3}
    assert records("--eta", "1")[0]["optimal_power_limit"] == 100
    assert records("--eta", "0")[0]["optimal_power_limit"] == 200
    easier = records("--target", "0.4", "--workload", "neumf")
    assert easier[0]["optimal_batch_size"] == 2048
    patient, strict = records("--beta", "none"), records("--beta", "1.1")
    assert sum(r["trials"] for r in patient) < sum(r["trials"] for r in strict)
    assert {r["workload"] for r in records("--workload", "ncf", "--gpu", "x1")} == {"neumf"}


def records_of(folder, *options):
    done = zeus("replay", "--traces", str(folder), "--seeds", "2", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_seeds_and_the_default_can_be_others(folder):
    both, _ = records_of(folder, "--policy", "zeus", "--first-seed", "500")
    assert [record["seed"] for record in both] == [500, 501]
    usual, _ = records_of(folder, "--policy", "default")
    other, _ = records_of(folder, "--policy", "default", "--default", "256")
    assert {record["last_batch_size"] for record in other} == {256}
    assert other[0]["energy"] < usual[0]["energy"]


@pytest.mark.parametrize("kind", ["sudden", "linear", "sinusoidal", "ramp"])
def test_data_drift_to_another_target(folder, kind):
    records, shown = records_of(folder, "--policy", "zeus,paper", "--drift", kind)
    assert f"x1 neumf, {kind} drift to 0.4; best: " in shown
    assert {record["scenario"] for record in records} == {f"{kind} drift to 0.4"}
    # At the easier target 2048 is the best, and only with a ramp do the data stay there.
    assert records[0]["optimal_batch_size"] == (2048 if kind == "ramp" else 512)
    named, _ = records_of(folder, "--policy", "zeus,paper", "--drift", kind, "--drift-to", "0.4")
    assert named == records
    wider, _ = records_of(folder, "--policy", "zeus", "--drift", kind, "--window", "0")
    assert [r["recurrences"] for r in wider] == [24, 24]


def test_jobs_overlap_on_average(folder):
    records, shown = records_of(folder, "--policy", "zeus", "--overlap", "4")
    assert "x1 neumf, 4 overlap; best: " in shown
    alone, _ = records_of(folder, "--policy", "zeus")
    assert [r["recurrences"] for r in records] == [r["recurrences"] for r in alone]
    assert [r["energy"] for r in records] != [r["energy"] for r in alone]


def test_jobs_move_to_another_gpu(folder):
    power = (folder / "summary_power_x1.csv").read_text().splitlines()
    # The other GPU has fewer power limits, and no measurement of 2048.
    kept = [line for line in power if ",150," not in line and ",2048," not in line]
    (folder / "summary_power_y2.csv").write_text("\n".join(kept) + "\n")
    records, shown = records_of(folder, "--move", "y2")
    assert "x1 neumf, moves to y2; best: 512 @ " in shown
    assert {record["gpu"] for record in records} == {"x1"}
    # Twice the configurations of each, which are those of all batch sizes that it offers.
    assert {record["recurrences"] for record in records} == {2 * 4 * 3 + 2 * 3 * 2}
    half, _ = records_of(folder, "--move", "y2", "--recurrences", "9", "--gpu", "x1")
    assert {record["recurrences"] for record in half} == {9}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--default", "300"], 2, "one of the batch sizes 256, 512, 1024, 2048 of neumf on x1"),
        (["--drift-to", "0.4"], 2, "it needs --drift"),
        (["--drift", "ramp", "--drift-to", "0.5"], 2, "has no target 0.5; it has 0.4, 0.41"),
        (["--drift", "ramp", "--move", "x1"], 2, "give --drift or --move, not both"),
        (["--move", "x1"], 2, "--move x1 needs jobs that begin on another GPU model"),
        (["--move", "y9"], 2, "no power trace of y9; it has x1"),
        (["--overlap", "0"], 2, "must be a number, more than 0"),
        (["--overlap", "2", "--default", "2048"], 2, "2048, which never reaches the target"),
        (["--first-seed", "-1"], 2, "whole number of at least 0"),
        (["--gpu", "y9"], 2, "no power trace of y9; it has x1"),
        (["--workload", "gpt"], 2, "there is no workload 'gpt'; there are deepspeech2"),
        (["--workload", "resnet50"], 2, "has no resnet50"),
        (["--policy", "zeus,best"], 2, "unknown policy best"),
        (["--target", "0.4"], 2, "name it with --workload"),
        (["--target", "0.7", "--workload", "neumf"], 2, "has no target 0.7; it has 0.4, 0.41"),
        (["--eta", "2"], 2, "must be a number, at least 0 and at most 1, but got '2'"),
        (["--beta", "1"], 2, "must be a number, more than 1"),
        (["--untrained", "guess"], 2, "must be one of drop, fail, but got 'guess'"),
        (["--seeds", "0"], 2, "whole number of at least 1"),
        (["--output", "/nowhere/x.json"], 2, "/nowhere/x.json"),
    ],
)
def test_what_does_not_work_is_said_in_one_line(folder, options, code, message):
    done = zeus("replay", "--traces", str(folder), *options)
    assert done.returncode == code
    assert message in one_error_line(done)


def test_a_broken_trace_is_named_with_its_line(folder):
    path = folder / "summary_power_x1.csv"
    path.write_text(path.read_text() + "movielens-1m,ncf,512,adam,100,-3,90\n")
    done = zeus("replay", "--traces", str(folder))
    assert done.returncode == 2
    assert "summary_power_x1.csv:17: `time_per_epoch > 0` must hold" in one_error_line(done)


def test_without_traces_a_made_up_job_is_replayed_and_named_as_such(capfd):
    done = zeus_here(capfd, "replay", "--seeds", "1", "--policy", "zeus", "--json")
    assert done.returncode == 0, done.stderr
    assert {(r["gpu"], r["workload"]) for r in json.loads(done.stdout)} == {
        ("v100", "made-up"),
        ("a40", "made-up"),
    }
    assert done.stderr.startswith("A made-up job: nothing was recorded")
    assert "github.com/ml-energy/zeus" in done.stderr
    moved = zeus_here(capfd, "replay", "--seeds", "1", "--policy", "zeus", "--gpu", "a40",
                      "--move", "v100")  # fmt: skip
    assert "a40 made-up, moves to v100" in moved.stdout
    drifting = zeus_here(capfd, "replay", "--seeds", "1", "--policy", "zeus", "--drift", "ramp")
    assert "v100 made-up, ramp drift to 0.6" in drifting.stdout


def test_recorded_traces_are_not_called_made_up(folder, capfd):
    done = zeus_here(capfd, "replay", "--traces", str(folder), "--seeds", "1", "--policy", "zeus")
    assert "made-up" not in done.stdout + done.stderr


def test_a_folder_without_traces_says_where_there_are_some(tmp_path, capfd):
    for path in tmp_path, tmp_path / "nothing":
        done = zeus_here(capfd, "replay", "--traces", str(path))
        assert done.returncode == 2
        assert "examples/research_reproducibility/zeus_nsdi23/trace" in one_error_line(done)
