"""Tables of batch limits from several sources, and from nowhere."""

from __future__ import annotations

import json
import tarfile

import pytest

from zeus.optimizer.serving._limit_tables import read_limit_tables


def test_own_measurements(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "max_num_seqs,joules_per_token,tpot_p99,ttft_p99_ms,Avg ITL (s)\n"
        "16,0.5,0.03,800,0.02\n32,0.3,0.04,900,0.03\n"
    )
    (table,), remarks = read_limit_tables(path)
    assert remarks == []
    assert table.group == {}
    first = table.rows[0]
    assert (first.limit, first.energy) == (16, 0.5)
    assert first.latencies == pytest.approx({"tpot p99": 0.03, "ttft p99": 0.8, "itl avg": 0.02})


def test_the_leaderboards_files(traces):
    tables, remarks = read_limit_tables(traces / "serving" / "mlenergy-v2-llm.tar.xz")
    assert len(tables) == 51
    assert sum(len(table.rows) for table in tables) == 314
    assert len(remarks) == 1
    (one,) = [t for t in tables if "code, google/codegemma-7b, NVIDIA H100" in t.name]
    row = next(row for row in one.rows if row.limit == 128)
    assert row.energy == pytest.approx(16.6576732692658 / 84.60060975609755)
    assert row.latencies == {"tpot avg": 0.06137106847481049}


def test_power_of_zero_is_unknown(traces):
    tables, remarks = read_limit_tables(traces / "serving" / "splitwise_perf_model.csv")
    assert all(table.relative for table in tables)
    assert any("no energy per token" in remark for remark in remarks)


def test_folders_and_lists_and_lenient_keys(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    row = {"Model": "m", "GPU": "g", "Max BS (reqs)": 8, "J_per_token": 2, "TPOT p50 (ms)": 30}
    (folder / "a.json").write_text(json.dumps([row, {**row, "Max BS (reqs)": 16}, "noise"]))
    (folder / "b.json").write_text(json.dumps({"unknown": 1}))
    (folder / "c.txt").write_text("not read")
    (table,), remarks = read_limit_tables(folder)
    assert [each.limit for each in table.rows] == [8, 16]
    assert table.rows[0].latencies == pytest.approx({"tpot p50": 0.03})
    assert remarks == [
        "1 rows left out: no limit from 1 on, in a column such as max_num_seqs or batch_size"
    ]
    with tarfile.open(tmp_path / "results.tar", "w") as archive:
        archive.add(folder, "results")
    assert read_limit_tables(tmp_path / "results.tar")[0][0].rows == table.rows


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "no row was found"),
        ("a.csv", b"batch_size,tpot_p99\n1,0.1\n", "no energy per token"),
        ("a.csv", b"batch_size,j_per_token\n1,0.1\n", "no latency"),
        ("a.csv", b"batch_size,j_per_token,tpot_p99\nnan,inf,0\n", "no limit from 1 on"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.json", b"{", "cannot be parsed"),
        ("a.json", b"[" * 100_000, "cannot be parsed"),
        ("a.tar.xz", b"nothing", "must be a CSV, JSON or tar archive"),
    ],
)
def test_what_is_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_limit_tables(path)
