"""Rows from ML.ENERGY's files, and what is said of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zeus.arena._mlenergy import read_file
from zeus.arena._result_keys import meaning
from zeus.cli import main
from zeus.errors import ArenaError

V3 = {
    "task": "lm-arena-chat",
    "configurations": [
        {
            "nickname": "Model 14B",
            "model_id": "org/model-14b",
            "gpu_model": "H100",
            "num_gpus": 2,
            "max_num_seqs": 128,
            "energy_per_request_joules": 78.0,
            "energy_per_token_joules": 0.13,
            "median_itl_ms": 26.0,
            "output_throughput_tokens_per_sec": 4474.0,
            "avg_output_len": 600.0,
            "weight_precision": "bfloat16",
            "surprise": 1,
        },
        {"nickname": "A picture", "energy_per_generation_joules": 900.0},
    ],
}
V3_MODEL = {
    "model_id": "org/model-8b",
    "nickname": "Model 8B",
    "total_params_billions": 8.0,
    "configurations": [
        {
            "gpu_model": "B200",
            "num_gpus": 1,
            "energy_per_token_joules": 0.1,
            "avg_output_len": 500.0,
            "median_itl_ms": 20.0,
            "parallelization": {"tensor_parallel": 4, "notes": ""},
            "output_length_distribution": {"bins": [1.0, 2.0], "counts": [3]},
        }
    ],
}


def test_version_2(traces):
    found = read_file(traces / "serving" / "mlenergy-v2-llm.tar.xz")
    assert len(found.rows) == 314
    assert not found.unknown
    gpus = {row.gpu for row in found.rows}
    assert {"A100-SXM4-40GB", "H100 80GB HBM3", "4 × A100-SXM4-40GB"} <= gpus
    row: Any = next(
        row
        for row in found.rows
        if (row.model, row.gpu, row.setting)
        == ("google/codegemma-7b", "H100 80GB HBM3", "batch ≤ 128")
    )
    assert row.task == "code"
    assert row.energy_per_response.value == pytest.approx(16.6577, rel=1e-4)
    assert row.energy_per_token.value == pytest.approx(16.6577 / 84.6006, rel=1e-4)
    assert row.tpot == pytest.approx(0.06137, rel=1e-3)


def test_version_3_by_task_and_by_model(tmp_path):
    (tmp_path / "task.json").write_text(json.dumps(V3))
    found = read_file(tmp_path / "task.json")
    row: Any = found.rows[0]
    assert len(found.rows) == 1
    assert (row.model, row.gpu, row.task) == ("Model 14B", "2 × H100", "lm-arena-chat")
    assert row.setting == "batch ≤ 128, bfloat16"
    assert row.tpot == pytest.approx(0.026)
    assert found.skipped == 1
    assert found.unknown == {"surprise": 1}
    (tmp_path / "model.json").write_text(json.dumps(V3_MODEL))
    rows: list[Any] = read_file(tmp_path / "model.json").rows
    row = rows[0]
    assert (row.model, row.gpu, row.setting) == ("Model 8B", "B200", "TP 4")
    assert row.energy_per_response.value == pytest.approx(50.0)
    assert len(read_file(tmp_path).rows) == 2


OTHERS = {
    "a": {"Model": "m", "Hardware": "NVIDIA H200", "J_per_tok": 0.5, "avgOutputLength": 100},
    "b": {"model": "m", "metrics": {"energyPerTokenMillijoules": 500, "p99_ttft_ms": 9}},
    "c": {"llm": "m", "tokens_per_joule": 2.0, "mean output tokens": 100, "GPU type": "H200"},
    "d": {"models": {"m": {"results": [{"accelerator": "H200", "energy_j_per_response": 50.0}]}}},
    "e": {"models": {"m": {"H200": {"Energy/request [Wh]": 50 / 3600, "ttft_p50_s": 0.2}}}},
    "f": [{"name": "m", "output_len": 100, "energy": {"energy_per_output_token_j": 0.5}}],
}


@pytest.mark.parametrize("shape", sorted(OTHERS))
def test_the_same_quantities_by_other_keys(tmp_path, shape):
    file = tmp_path / "other.json"
    file.write_text(json.dumps(OTHERS[shape]))
    (row,) = read_file(file).rows
    assert row.model == "m"
    energies = row.energy_per_response, row.energy_per_token
    values = [energy and energy.value for energy in energies]
    assert values in ([pytest.approx(50), pytest.approx(0.5)], [pytest.approx(50), None],
                      [None, pytest.approx(0.5)])  # fmt: skip


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("energy_per_token_joules", ("energy_per_token", 1.0)),
        ("Energy/req (J)", ("energy_per_response", 1.0)),
        ("kJ per request", ("energy_per_response", 1e3)),
        ("median_itl_ms", ("tpot", 1e-3)),
        ("Avg TPOT (s)", ("tpot", 1.0)),
        ("time_to_first_token_ms", ("ttft", 1e-3)),
        ("Avg Latency (s)", ("e2e", 1.0)),
        ("output_throughput_tokens_per_sec", ("throughput", 1.0)),
        ("Token tput (tok/s)", ("throughput", 1.0)),
        ("energy_per_prompt_token_j", None),
        ("energy_per_image_joules", None),
        ("total_energy_j", None),
        ("p99_itl_ms", None),
        ("input_throughput_tok_per_s", None),
        ("ttft", None),  # in seconds, or milliseconds?
        ("avg_power_watts", None),
    ],
)
def test_what_keys_mean(key, meant):
    found = meaning(key)
    assert (found and (found.quantity, found.factor)) == meant


def test_what_was_not_understood_is_named_also_where_no_energy_was_found(tmp_path):
    file = tmp_path / "other.json"
    entries = [{"model": "a", "energy_per_token_joules": 1}, {"model": "b", "zap_factor": 3}]
    file.write_text(json.dumps(entries))
    found = read_file(file)
    assert (len(found.rows), found.skipped) == (1, 1)
    assert found.unknown == {"zap_factor": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "no results of language models"),
        ('{"Model": "x", "Energy/req (J)": "many"}', "no results of language models"),
        ('{"Model": "x", "Energy/req (J)": -1}', "no results of language models"),
        ("[" * 100_000, "is not JSON"),
        ("\x00", "is not JSON"),
    ],
)
def test_other_files_are_refused(tmp_path, text, said):
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(ArenaError, match=said):
        read_file(file)


def test_the_commands(tmp_path, capsys):
    file, storage = tmp_path / "v3.json", f"sqlite:///{tmp_path}/a.db"
    file.write_text(json.dumps(V3))
    words = ["--storage", storage]
    assert main(["board", "import", str(file), *words]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 rows are new" in said
    assert "1 entries without" in said
    assert "not understood: 'surprise' (1)" in said
    assert main(["board", "import", str(file), *words]) == 0
    assert "0 of 1 rows are new" in capsys.readouterr().out
    assert main(["board", "export", "-", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("Model 14B,import,2 × H100,lm-arena-chat,")
    target = tmp_path / "out.json"
    assert main(["board", "export", str(target), *words]) == 0
    assert json.loads(target.read_text())["rows"][0]["model"] == "Model 14B"
    assert main(["board", "remove", "rounds", *words]) == 2
    assert main(["board", "export", "a.txt", *words]) == 2
    assert main(["board", "import", str(tmp_path / "none.json"), *words]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["board", "remove", "import", *words]) == 0
    assert "1 rows were removed" in capsys.readouterr().out
