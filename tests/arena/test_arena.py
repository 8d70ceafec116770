"""The arena as its users run it: rounds, votes, limits, and models that fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from tests.arena.processes import ArenaProcess, arena, fake_model, proxy

from zeus.arena._storage import ArenaStorage
from zeus.store import Store

SMALL = {"name": "s", "words": 20, "word": "a", "joules": 10.0}
LARGE = {"name": "l", "words": 35, "word": "b", "joules": 45.0}


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[ArenaProcess]:
    storage = f"sqlite:///{tmp_path_factory.mktemp('arena')}/arena.db"
    with contextlib.ExitStack() as stack:
        models = {
            "small": stack.enter_context(fake_model(**SMALL)),
            "large": stack.enter_context(fake_model(**LARGE)),
        }
        yield stack.enter_context(arena(storage, models))


def side_of(view, model: str) -> str:
    return next(side for side, answer in view["answers"].items() if answer["model"] == model)


def test_a_round_reveals_one_thing_after_the_other(running):
    name = running.ask("Why is the sky blue?")
    frames = running.frames(name)
    assert frames[-1]["state"] == "answered"
    assert {frame["state"] for frame in frames[:-1]} == {""}
    texts = {side: "".join(frame[side] for frame in frames) for side in ("left", "right")}
    assert sorted(len(text.split()) for text in texts.values()) == [20, 35]

    view = running.call(f"/api/rounds/{name}")[1]
    assert view["state"] == "answered"
    assert {side: {"text": text} for side, text in texts.items()} == view["answers"]
    loud = next(side for side, text in texts.items() if text.startswith("b"))
    status, view = running.call(f"/api/rounds/{name}/vote", {"vote": loud})
    assert (status, view["state"], view["question"]) == (200, "voted", "worth")
    assert view["answers"][loud]["energy"]["joules"] == 45.0
    assert "model" not in view["answers"][loud]
    status, view = running.call(f"/api/rounds/{name}/judgement", {"judgement": "no"})
    assert (status, view["state"]) == (200, "judged")
    assert side_of(view, "large") == loud

    rows = {row["model"]: row for row in running.call("/api/board")[1]["rows"]}
    assert rows["large"]["win_rate"]["value"] > 0.5 > rows["large"]["informed_win_rate"]["value"]
    assert (rows["large"]["worth_it"], rows["large"]["worth_it_asked"]) == (0, 1)
    assert rows["small"]["energy_per_token"]["value"] == pytest.approx(0.5)


def test_there_is_one_vote_per_round(running):
    name = running.ask()
    assert running.call(f"/api/rounds/{name}/vote", {"vote": "tie"})[0] == 409  # too early
    running.frames(name)
    assert running.call(f"/api/rounds/{name}/judgement", {"judgement": "yes"})[0] == 409
    results = []

    def vote(word: str) -> None:
        results.append((word, running.call(f"/api/rounds/{name}/vote", {"vote": word})[0]))

    threads = [threading.Thread(target=vote, args=(w,)) for w in ("left", "right", "tie") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = running.call(f"/api/rounds/{name}")[1]["vote"]
    assert {word for word, status in results if status == 200} == {kept}
    assert {status for word, status in results if word != kept} == {409}
    assert {status for word, status in results if word == kept} == {200}  # the same again


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": ""}, "at least 1 character"),
        ({"prompt": "  \n "}, "must not be empty"),
        ({"prompt": "x" * 4001}, "at most 4000"),
        ({"prompt": "a\x00b"}, "control characters"),
        ({"prompt": "why?", "model": "none"}, "no model 'none'"),
        ({}, "Field required"),
    ],
)
def test_prompts_are_checked(running, body, said):
    status, answer = running.call("/api/rounds", body)
    assert status == 422
    assert said in answer["error"]["message"]


def test_unknown_rounds_are_not_found(running):
    for path in ("/api/rounds/none", "/api/rounds/none/stream"):
        assert running.call(path)[0] == 404
    assert running.call("/api/rounds/none/vote", {"vote": "tie"})[0] == 404
    assert running.call("/api/rounds/%00/vote", {"vote": "tie"})[0] == 422


def test_failures_of_any_model_look_alike(tmp_path):
    """Which of them failed, and what it said, is not shown; the board counts it."""
    ways = {
        "breaks": {"fail_after": 8},
        "refuses": {"status": 500},
        "silent": {"words": 0},
        "hangs": {"hang_after": 3},
    }
    with contextlib.ExitStack() as stack:
        models = {
            name: stack.enter_context(fake_model(**{**LARGE, **how})) for name, how in ways.items()
        }
        options = ["--answer-seconds", "2"]
        storage = f"sqlite:///{tmp_path}/a.db"
        running = stack.enter_context(arena(storage, models, *options, complaints=True))
        for model in models:
            status, begun = running.call("/api/rounds", {"prompt": "Hello", "model": model})
            assert status == 201
            name = begun["round"]
            assert running.frames(name)[-1] == {
                "left": "", "right": "", "state": "ended", "pad": running.frames(name)[-1]["pad"]
            }  # fmt: skip
            view = running.call(f"/api/rounds/{name}")[1]
            assert view == {"round": name, "state": "ended", "prompt": "Hello"}
            assert running.call(f"/api/rounds/{name}/vote", {"vote": "tie"})[0] == 409
        rows = running.call("/api/board")[1]["rows"]
        assert sum(row["failures"] for row in rows) == len(models)
        assert {row["responses"] for row in rows} == {0}


def test_limits_on_rounds(tmp_path):
    with fake_model(hang_after=0) as url:
        models = {"one": url, "other": url}
        options = ["--max-running", "2", "--rounds-per-minute", "3"]
        with arena(f"sqlite:///{tmp_path}/a.db", models, *options) as running:
            names = [running.ask(), running.ask()]
            status, said = running.call("/api/rounds", {"prompt": "Hi"})
            assert status == 429
            assert "2 rounds are running" in said["error"]["message"]
            assert {running.call(f"/api/rounds/{name}")[1]["state"] for name in names} == {
                "running"
            }
    # The arena ended, and with it the rounds: they wait for nobody.
    store = Store(f"sqlite:///{tmp_path}/a.db")
    ended = [ArenaStorage(store).find(name).ended for name in names]
    store.close()
    assert [each and each.reason for each in ended] == ["stopped with the server"] * 2


def test_energy_of_gpus_of_this_machine_and_of_a_proxy(tmp_path, monkeypatch):
    """Where servers state none: simulated GPUs are measured, by the arena or by `zeus proxy`."""
    monkeypatch.setenv("ZEUS_SIMULATE", "a100x2")
    with fake_model(words=25, seconds=0.02) as url, proxy(url, "--gpus", "1") as proxied:
        models = {"here": url, "proxied": proxied}
        with arena(f"sqlite:///{tmp_path}/a.db", models, "--gpus", "here=0") as running:
            assert "simulated energy" in running.greeting
            name = running.answered()
            view = running.call(f"/api/rounds/{name}/vote", {"vote": "bad"})[1]
            view = running.call(f"/api/rounds/{name}/judgement", {"judgement": "none"})[1]
    for model in models:
        energy = view["answers"][side_of(view, model)]["energy"]
        assert energy["joules"] > 0
        assert energy["uncertainty"] > 0
        assert energy["simulated"]


def test_energy_that_nobody_states_is_unknown(tmp_path):
    with fake_model(words=3) as one, fake_model(words=3, joules=1.0) as other:
        models = {"one": one, "other": other}
        with arena(f"sqlite:///{tmp_path}/a.db", models, "--no-texts") as running:
            name = running.answered("my secret")
            view = running.call(f"/api/rounds/{name}/vote", {"vote": "left"})[1]
            assert view["question"] == ""
            view = running.call(f"/api/rounds/{name}/judgement", {"judgement": "none"})[1]
            assert "energy" not in view["answers"][side_of(view, "one")]
            rows = {row["model"]: row for row in running.call("/api/board")[1]["rows"]}
            assert rows["one"]["energy_per_response"] is None
            assert rows["one"]["informed_win_rate"] is None
    stored = (tmp_path / "a.db").read_bytes() + b"".join(
        path.read_bytes() for path in tmp_path.glob("a.db-*")
    )
    assert b"my secret" not in stored
    assert b"word0" not in stored


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "a=http://localhost:1"], "at least two models"),
        (["--model", "a=http://x", "--model", "a=http://y"], "different names"),
        (["--model", "a", "--model", "b=http://y"], "--model must be NAME=URL"),
        (["--model", "a=ftp://x", "--model", "b=http://y"], "the URL of the model 'a'"),
        (["--model", "a=http://x", "--model", "b=http://y", "--key", "a=NONE"], "which is not set"),
        (["--model", "a=http://x", "--model", "b=http://y", "--listen", "x"], "PORT or HOST:PORT"),
        (["--model", "a=http://x", "--model", "b=http://y", "--gpus", "0"], "--gpus must be NAME"),
    ],
)
def test_mistakes_on_the_command_line(words, said, capsys, tmp_path):
    from zeus.cli import main

    assert main(["arena", *words, "--storage", f"sqlite:///{tmp_path}/a.db"]) != 0
    assert said in capsys.readouterr().err
