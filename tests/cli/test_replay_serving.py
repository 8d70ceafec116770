"""`zeus replay serving`: the table, JSON, and what it refuses."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [
        f"2023-11-16 18:{i // 60:02}:{i % 60:02}.25,{300 + 7 * i},{40 + i % 50}" for i in range(90)
    ]
    path.write_text(HEAD + "\n".join(rows) + "\n")
    return path


def test_the_table_and_the_json(trace, tmp_path, capfd):
    out = tmp_path / "out.json"
    done = zeus_here(
        capfd, "replay", "serving", str(trace), "--replicas", "2", "--factor", "1.3",
        "--approach", "default,oracle", "--static", "--output", str(out),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "trace: 90 requests in " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    found = json.loads(out.read_text())
    assert (found["requests"], found["replicas"]) == (90, 2)
    by_name = {each["approach"]: each for each in found["outcomes"]}
    assert by_name["default"]["setting"] == {"prefill": 1530, "decode": 1530}
    assert by_name["oracle"]["saved"] > 0.1
    assert by_name["oracle"]["within"]
    assert len(found["outcomes"]) > 20


def test_both_spellings_and_other_gpus(capfd):
    spellings = [("replay", "serving"), ("replay-serving",)]
    options = (
        "poisson:1:30",
        "--approach",
        "default",
        "--gpu",
        "h100",
        "--json",
        "--replicas",
        "1",
    )
    first, second = (json.loads(zeus_here(capfd, *each, *options).stdout) for each in spellings)
    assert first == second
    assert "H100" in first["workload"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/none.csv"], "none.csv: No such file"),
        (["poisson:1"], "TRACE must be poisson:RATE:SECONDS"),
        (["poisson:x:3"], "TRACE must be poisson:RATE:SECONDS"),
        (["poisson:nan:3"], "rate"),
        (["bursts:1:2"], "TRACE must be bursts:RATE:BURST_RATE:SECONDS"),
        (["poisson:0:10"], "has no request"),
        (["poisson:1:10", "--gpu", "cray"], "gpu must be one of"),
        (["poisson:1:10", "--gpu", "a40", "--parameters", "1e12"], "must fit into"),
        (["poisson:1:10", "--factor", "0.5"], "at least 1"),
        (["poisson:1:10", "--approach", "magic"], "magic"),
        (["poisson:1:10", "--lag", "-1"], "--lag"),
    ],
)
def test_what_is_refused(arguments, message, tmp_path, capfd):
    done = zeus_here(capfd, "replay", "serving", *(a.format(folder=tmp_path) for a in arguments))
    assert done.returncode in (1, 2)
    assert message in one_error_line(done)


def test_a_broken_trace_is_refused_with_its_line(trace):
    trace.write_text(trace.read_text() + "2023-11-16 19:00:00,many,1\n")
    done = zeus("replay", "serving", str(trace))
    assert done.returncode == 2
    assert "line 92: ContextTokens" in one_error_line(done)
