"""`zeus cluster`: made-up tables, the report, the records, and the same from every engine."""

from __future__ import annotations

import importlib.util
import json
import subprocess

import pytest
from tests.cli.support import LONG_ENOUGH, ZEUS, environment, one_error_line, zeus

KEYS = [
    "gpu",
    "workload",
    "policy",
    "seed",
    "groups",
    "jobs",
    "mean_runtime",
    "trials",
    "unreached",
    "energy",
    "time",
    "energy_vs_default",
    "time_vs_default",
    "cumulative_regret",
    "overlapping_jobs",
    "most_at_once",
]
WORKLOADS = {"movielens-1m,ncf,{},adam": 8000, "cifar100,shufflenetv2,{},adadelta": 80000}
EPOCHS = {256: (4, 4), 512: (4, 5), 1024: (8, 9), 2048: ("nan", "nan")}


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Two workloads on one GPU, best at 512."""
    folder = tmp_path_factory.mktemp("traces")
    lines = ["dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"]
    lines += [
        f"{name.format(size)},0.1,{run},{target},{epoch}"
        for name, target in zip(WORKLOADS, (0.41, 0.6), strict=True)
        for size, reached in EPOCHS.items()
        for run, epoch in enumerate(reached)
    ]
    (folder / "summary_train.csv").write_text("\n".join(lines) + "\n")
    lines = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    lines += [
        f"{name.format(size)},{limit},{(20 + samples / size) * (200 / limit) ** 0.4},{0.9 * limit}"
        for name, samples in WORKLOADS.items()
        for size in EPOCHS
        for limit in (100, 150, 200)
    ]
    (folder / "summary_power_x1.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster") / "made-up"
    done = zeus("cluster", "generate", "--jobs", "3000", "--seed", "1", "--output", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(folder / "pai_job_table.csv"),
        str(folder / "pai_group_tag_table.csv"),
    ]
    return folder


def replay(tables, traces, *options):
    return subprocess.run(
        [*ZEUS, "cluster", "replay", "--tables", str(tables), "--traces", str(traces), *options],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=LONG_ENOUGH, check=False,
    )  # fmt: skip


def test_the_table_and_the_records_are_the_same_with_any_number_of_workers(tables, traces):
    out = tables / "records.json"
    done = replay(tables, traces, "--output", str(out), "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # the bar is for terminals
    head, *rows = done.stdout.splitlines()
    assert head.split()[:5] == ["workload", "groups", "jobs", "energy", "time"]
    assert rows[12] == "x1, zeus"
    assert [row.split()[0] for row in rows[13:16]] == ["neumf", "shufflenetv2", "all"]
    assert max(map(len, rows)) <= 80
    document = json.loads(out.read_text())
    assert all(list(record) == KEYS for record in document["records"])
    totals = {r["policy"]: r for r in document["records"] if r["workload"] == "all"}
    assert list(totals) == ["default", "grid", "paper", "zeus"]
    assert {r["jobs"] for r in totals.values()} == {document["tables"]["jobs"]}
    assert document["tables"]["rows"] == 3000
    assert totals["default"]["energy_vs_default"] == pytest.approx(1.0, abs=0.05)
    # Which of them saves more is a matter of recorded traces, not of these made-up ones.
    assert max(totals[policy]["energy_vs_default"] for policy in ("paper", "zeus")) < 1
    assert totals["default"]["overlapping_jobs"] > 0
    alone = replay(tables, traces, "--json", "--workers", "1")
    assert alone.stdout == out.read_text()
    assert "at once" in alone.stderr  # the report makes way for the records


def test_options_change_what_is_replayed(tables, traces):
    def total(*options):
        done = replay(tables, traces, "--policy", "paper", "--workers", "1", "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["records"][-1]

    usual = total("--gpu", "x1")
    assert total("--eta", "1")["energy"] < usual["energy"]
    assert total("--beta", "none")["trials"] < total("--beta", "1.05")["trials"]
    assert total("--seed", "5")["energy"] != usual["energy"]
    assert total("--scale", "log")["mean_runtime"] == usual["mean_runtime"]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="there is no Ray for this Python or system"
)
@pytest.mark.thorough
def test_ray_with_two_workers_gives_the_very_same_records(tables, traces):
    options = ("--policy", "paper,zeus", "--workers", "2", "--json")
    local = replay(tables, traces, *options)
    done = replay(tables, traces, *options, "--engine", "ray")
    assert done.returncode == 0, done.stderr
    assert done.stdout == local.stdout
    assert json.loads(done.stdout)["records"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["generate"], 2, "zeus cluster generate needs --output DIR"),
        (["generate", "--output", "x", "--policy", "zeus"], 2, "--policy is for `zeus cluster rep"),
        (["generate", "--output", "x", "--beta", "none"], 2, "--beta is for `zeus cluster replay`"),
        (["generate", "--output", "x", "--jobs", "3"], 2, "whole number of at least 10"),
        (["generate", "--output", "/proc/nowhere"], 2, "/proc/nowhere"),
        (["replay", "--traces", "x"], 2, "zeus cluster replay needs --tables DIR"),
        (["replay", "--tables", "x", "--traces", "x", "--jobs", "10"], 2, "--jobs is for `zeus"),
        (["replay", "--tables", "x", "--traces", "x"], 2, "x must be a folder with traces"),
        (
            ["replay", "--tables", "x", "--traces", "x", "--address", "auto"],
            2,
            "--address is the address of a Ray cluster; it needs --engine ray",
        ),
    ],
)
def test_what_does_not_work_is_said_in_one_line(words, code, message, tmp_path):
    done = zeus("cluster", *words, cwd=tmp_path)
    assert done.returncode == code
    assert message in one_error_line(done)


def test_a_folder_without_tables_is_named(traces, tmp_path):
    done = replay(tmp_path, traces)
    assert done.returncode == 2
    assert f"{tmp_path} must hold one of pai_job_table.csv" in one_error_line(done)
