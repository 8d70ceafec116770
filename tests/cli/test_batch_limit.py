"""`zeus batch-limit`: the table, JSON, and what it refuses."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here

CSV = "model,max_num_seqs,joules_per_token,tpot_p99\n" + "".join(
    f"{model},{n},{3 / n + 0.1},{0.02 + 0.0005 * n}\n" for model in "ab" for n in (8, 32, 128)
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(CSV)
    return str(path)


def test_the_table_and_the_json(table):
    done = zeus("batch-limit", table, "--bound", "tpot:p99:0.05", "--where", "model=a")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tpot p99" in done.stdout
    assert "*: not measured, interpolated between measured limits;" in done.stdout
    done = zeus("batch-limit", table, "--bound", "TPOT:P99:0.05", "--json")
    found = json.loads(done.stdout)
    assert [each["group"] for each in found["advice"]] == [{"model": "a"}, {"model": "b"}]
    first = found["advice"][0]
    assert 32 < first["limit"] <= 60
    assert first["feasible"]
    assert first["latencies"]["tpot p99"] <= 0.05
    assert first["latency_spread"]["tpot p99"] > 0


def test_bounds_that_cannot_be_kept_are_said(table, capfd):
    done = zeus_here(capfd, "batch-limit", table, "--bound", "tpot:p99:0.001")
    assert done.returncode == 3
    assert "!: no limit of the table keeps all bounds." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bound", "tpot:p99"], "must be such as tpot:p99:0.06"),
        (["--bound", "tpot:p99:nan"], "must be such as tpot:p99:0.06"),
        (["--bound", "speed:p99:1"], "must be such as tpot:p99:0.06"),
        (["--bound", "ttft:p99:1"], "has no 'ttft p99'"),
        (["--bound", "tpot:p99:1", "--limits", "0"], "whole numbers from 1 on"),
        (["--bound", "tpot:p99:1", "--limits", "4096"], "within 8 to 128"),
        (["--bound", "tpot:p99:1", "--where", "model"], "must be such as model=llama"),
        (["--bound", "tpot:p99:1", "--where", "model=c"], "the table has model=a, model=b"),
        ([], "--bound"),
    ],
)
def test_what_is_refused(table, arguments, message, capfd):
    done = zeus_here(capfd, "batch-limit", table, *arguments)
    assert done.returncode in (1, 2)
    assert message in one_error_line(done)


def test_a_file_that_does_not_exist(capfd):
    done = zeus_here(capfd, "batch-limit", "/no/such.csv", "--bound", "tpot:p99:1")
    assert "No such file" in one_error_line(done)
