"""Files that were made up to do harm: every key deleted, or replaced by what no rule expects.

Whatever they say, the command ends with one line that names the rule, or does what it is asked.
"""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.support import zeus_here

from zeus.frontier import Frontier, Point

MARK = "<here>"
# As JSON and TOML write them, or try to.
NUMBERS = ("9" * 400, "-" + "9" * 400, "9" * 5000, "1e999", "1e308", "5e-324", "-1", "0", "0.5")
JSON = (*NUMBERS, "NaN", "-Infinity", "null", "true", "[]", "[[]]", "{}", '""', '"\\ud800"')
TOML = (*NUMBERS, "nan", "-inf", "true", "[]", "[[]]", "{}", '""', '"\\u0007"', "1979-05-27")
CELLS = (*NUMBERS, "nan", "-inf", "", "x", '"', "\x00", "\ud800")


def places(record: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a record; of a list, the first entry only."""
    if where:
        yield where
    if isinstance(record, dict):
        for key, value in record.items():
            yield from places(value, (*where, key))
    elif isinstance(record, list) and record:
        yield from places(record[0], (*where, 0))


def without(record: Any, where: tuple[Any, ...]) -> Any:
    return changed(record, where, None, delete=True)


def changed(record: Any, where: tuple[Any, ...], value: Any, *, delete: bool = False) -> Any:
    result = copy.deepcopy(record)
    inner = result
    for key in where[:-1]:
        inner = inner[key]
    if delete:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return result


def json_texts(record: Any) -> Iterator[str]:
    for where in places(record):
        yield json.dumps(without(record, where))
        for literal in JSON:
            yield json.dumps(changed(record, where, MARK)).replace(f'"{MARK}"', literal)
    yield "[" * 100_000
    yield "{" * 100_000
    yield '{"a":' * 100_000


def toml_texts(lines: dict[str, str]) -> Iterator[str]:
    for name in lines:
        kept = {key: value for key, value in lines.items() if key != name}
        for literal in (None, *TOML):
            given = kept if literal is None else {**kept, name: literal}
            yield "\n".join(f"{key} = {value}" for key, value in given.items())
    yield "a = " + "[" * 100_000


def csv_texts(rows: list[dict[str, str]]) -> Iterator[str]:
    for name in rows[0]:
        for cell in CELLS:
            text = io.StringIO()
            table = [{**rows[0], name: cell}, *rows[1:]]
            writer = csv.DictWriter(text, list(rows[0]))
            writer.writeheader()
            writer.writerows(table)
            yield text.getvalue()
        rest = [key for key in rows[0] if key != name]
        yield "\n".join([",".join(rest), *(",".join(row[key] for key in rest) for row in rows)])


def faults(capfd, path, texts: Iterator[str], *command: str) -> list[str]:
    """What is not one line in words, for each of the texts."""
    found = []
    for text in texts:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        done = zeus_here(capfd, *command)
        lines = done.stderr.splitlines()
        words = len(lines) == 1 and lines[0].startswith("zeus: error: ") and len(lines[0]) < 1500
        if "unexpected" in done.stderr or (done.returncode and not words):
            found.append(f"{text[:300]!r}: {done.returncode} {done.stderr[:300]!r}")
    return found


FRONTIER = Frontier(
    [Point(250, 30.0, 6000.0, 0.1, 5.0, latencies={"p99": 0.2}), Point(150, 40.0, 5000.0)],
    "an epoch",
    knob_name="power limit",
    knob_unit="W",
    max_power=250.0,
).to_dict()
PROFILES = {
    "format": "zeus-profiles",
    "version": 1,
    "profiles": [
        {
            "gpu": "NVIDIA A40", "gpus": 1, "knob": "power_limit", "job": "nightly",
            "batch_size": 32,
            "frontier": Frontier([Point(250, 1.0, 200.0), Point(150, 2.0, 150.0)],
                                 max_power_per_gpu=300.0).to_dict(),
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize("record", [FRONTIER, PROFILES], ids=["frontier", "profiles"])
def test_frontiers_and_profiles(tmp_path, capfd, record):
    path = tmp_path / "saved.json"
    assert faults(capfd, path, json_texts(record), "frontier", str(path)) == []
    draw = ("--figure", str(tmp_path / "plot.svg"))
    assert faults(capfd, path, iter([json.dumps(record)]), "frontier", str(path), *draw) == []


def test_logs_of_windows(tmp_path, capfd):
    path = tmp_path / "log.csv"
    rows = [
        {"start_time": "1.0", "window_name": f"job_{limit}", "elapsed_time": "3.0",
         "gpu0_energy": "500.0"}
        for limit in (250, 150)
    ]  # fmt: skip
    assert faults(capfd, path, csv_texts(rows), "frontier", str(path)) == []


def test_profiles_of_stages(tmp_path, capfd):
    path = tmp_path / "profile.csv"
    rows = [
        {"stage": str(stage), "instruction": instruction, "frequency": str(clock),
         "time": str(1000 / clock), "energy": str(100 + clock / 10)}
        for stage in (0, 1)
        for instruction in ("forward", "backward")
        for clock in (1410, 1200, 1000)
    ]  # fmt: skip
    options = ("--microbatches", "2", "--blocking-power", "70")
    assert faults(capfd, path, csv_texts(rows), "plan", str(path), *options) == []
    stages = "".join(f"{','.join(row.values())}\n" for row in rows)
    path.write_text(",".join(rows[0]) + "\n" + stages)
    other = tmp_path / "other.csv"
    compared = csv_texts([{"time": "0.1", "energy": "900"}, {"time": "0.9", "energy": "400"}])
    command = ("plan", str(path), *options, "--compare", str(other))
    assert faults(capfd, other, compared, *command) == []


def test_traces_of_services(tmp_path, capfd):
    path = tmp_path / "trace.csv"
    rows = [
        {
            "TIMESTAMP": f"2023-11-16 18:17:0{second}",
            "ContextTokens": "900",
            "GeneratedTokens": "20",
        }
        for second in range(4)
    ]
    command = ("replay", "serving", str(path), "--approach", "default", "--replicas", "1")
    assert faults(capfd, path, csv_texts(rows), *command) == []
    times = iter(
        f"TIMESTAMP,ContextTokens,GeneratedTokens\n{early},1,1\n{late},1,1\n"
        for early, late in (("0001-01-01", "9999-12-31"), ("2023-11-16", "2023-11-17"))
    )
    assert faults(capfd, path, times, *command) == []


def test_tables_of_batch_limits(tmp_path, capfd):
    row = {"max_num_seqs": 8, "joules_per_token": 0.5, "tpot_p99": 0.03}
    rows = [row, {**row, "max_num_seqs": 16, "joules_per_token": 0.3}]
    path = tmp_path / "table.json"
    command = ("batch-limit", str(path), "--bound", "tpot:p99:0.05")
    assert faults(capfd, path, json_texts(rows), *command) == []


def test_files_of_jobs(tmp_path, capfd, monkeypatch):
    path = tmp_path / "job.toml"
    monkeypatch.setenv("ZEUS_SIMULATE", "a40")
    lines = {
        "name": '"nightly"', "batch_sizes": "[16, 32]", "default_batch_size": "32",
        "target_metric": "0.9", "higher_is_better": "true", "max_epochs": "10", "eta_knob": "0.5",
        "beta": "2.0", "window": "0", "pruning_rounds": "2", "policy": '"grid"', "seed": "0",
        "power_limits": "[100.0, 200.0]", "learning_rate_rule": '"linear"',
        "storage": '"nowhere"',
    }  # fmt: skip
    # It is kept nowhere, so that what breaks no rule ends before anything is run.
    command = ("run", "--job-file", str(path), "--trust-exit-code", "--", "true", "{batch_size}")
    assert faults(capfd, path, toml_texts(lines), *command) == []
