"""Load tests of real servers, by the command."""

from __future__ import annotations

import json

import pytest
from tests.arena.processes import fake_model

from zeus.arena._storage import ArenaStorage
from zeus.cli import main
from zeus.store import Store


def test_a_load_test_adds_a_row(tmp_path, capsys):
    storage = f"sqlite:///{tmp_path}/a.db"
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one"}\ntwo\n\n')
    with fake_model(name="m", words=20, seconds=0.002, joules=8.0) as url:
        words = ["--to", url, "--board", storage, "--prompts", str(prompts)]
        assert (
            main(["bench-serving", *words, "--requests", "12", "--concurrency", "4", "--json"]) == 0
        )
        result = json.loads(capsys.readouterr().out)
        assert main(["bench-serving", *words, "--requests", "6", "--rate", "50", "--gpu", "X"]) == 0
        said = capsys.readouterr().out
    assert (result["answers"], result["failed"], result["generated_tokens"]) == (12, 0, 240)
    assert result["row"]["energy_per_token"]["value"] == pytest.approx(0.4)
    assert result["row"]["setting"] == "4 clients"
    latencies = result["latencies"]
    assert (
        0 < latencies["ttft"]["p50"] <= latencies["ttft"]["p99"] <= latencies["e2e"]["p99"] * 1.02
    )
    assert latencies["tpot"]["p50"] >= 0.0019  # it sleeps that long for a word
    assert "energy per token: 0.4 J (95 %: 0.4 to 0.4 J)" in said
    store = Store(storage)
    rows = ArenaStorage(store).load().rows
    store.close()
    assert [(row.model, row.gpu, row.responses) for row in rows] == [("m", "", 12), ("m", "X", 6)]


def test_energy_of_this_machine_where_the_server_states_none(monkeypatch, capsys):
    monkeypatch.setenv("ZEUS_SIMULATE", "a100")
    with fake_model(words=10, seconds=0.01) as url:
        words = ["bench-serving", "--to", url, "--requests", "4"]
        assert main([*words, "--gpus", "0"]) == 0
        said = capsys.readouterr().out
        assert "J (95 %:" in said
        assert ", simulated" in said
        assert main(words) == 0
        assert "energy per token: unknown" in capsys.readouterr().out


def test_failures_are_counted_and_mistakes_named(tmp_path, capsys):
    with fake_model(words=10, fail_after=5) as url:
        assert main(["bench-serving", "--to", url, "--requests", "3"]) == 1
        assert "no request was answered" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for words, said in (
        (["--requests", "0"], "whole number of at least 1"),
        (["--rate", "0"], "more than 0"),
        (["--prompts", str(empty)], "1 to 100000 prompts, but got 0"),
        (["--key", "NO_SUCH_VARIABLE"], "which is not set"),
        (["--rate", "1", "--concurrency", "2"], "not allowed with"),
    ):
        assert main(["bench-serving", "--to", "http://127.0.0.1:9", *words]) == 2
        assert said in capsys.readouterr().err
    assert main(["bench-serving", "--to", "http://127.0.0.1:9"]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
