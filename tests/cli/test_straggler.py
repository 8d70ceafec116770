"""`zeus straggler`: what an operator tells the ranks of a job, and is told."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import one_error_line, zeus_here


def test_a_straggler_and_its_recovery(capfd, server):
    done = zeus_here(
        capfd, "straggler", "gpt3", "--pipeline", "3", "--slowdown", "1.2", "--server", server.url
    )
    assert done.stdout == (
        "gpt3: pipeline 3 takes 1.2 times as long "
        "(waits for ranks 1, 2, 3, 4, 5, 6, 7 to register).\n"
    )
    done = zeus_here(
        capfd, "straggler", "gpt3", "--pipeline", "1", "--time", "2.5", "--server", server.url,
        "--json",
    )  # fmt: skip
    slow = {each["dp_rank"]: each for each in json.loads(done.stdout)["stragglers"]}
    assert (slow[3]["slowdown"], slow[1]["iteration_time"]) == (1.2, 2.5)
    listed = zeus_here(capfd, "straggler", "--server", server.url).stdout.splitlines()
    assert listed[1].split()[:8] == ["gpt3", "4", "2", "1", "1", "of", "8", "2"]
    for pipeline in ("1", "3"):
        done = zeus_here(
            capfd, "straggler", "gpt3", "--pipeline", pipeline, "--healthy", "--server", server.url
        )
    assert "no pipeline straggles" in done.stdout
    assert json.loads(zeus_here(capfd, "straggler", "--server", server.url, "--json").stdout)


def test_the_server_may_be_named_by_the_environment(capfd, server, monkeypatch):
    monkeypatch.setenv("ZEUS_SERVER", server.url)
    done = zeus_here(capfd, "straggler", "nobody", "--pipeline", "0", "--healthy")
    assert done.returncode == 1
    assert "there is no pipeline job 'nobody'" in one_error_line(done)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pipeline", "1"], "name the JOB of the straggler"),
        (["gpt3", "--slowdown", "1.2"], "needs --pipeline N"),
        (["gpt3", "--pipeline", "1"], "needs --pipeline N and one of"),
        (["gpt3", "--pipeline", "1", "--slowdown", "1.2", "--healthy"], "one of --slowdown FACTOR"),
        (["gpt3", "--pipeline", "1", "--slowdown", "0.5"], "`1 <= slowdown"),
        (["gpt3", "--pipeline", "1", "--slowdown", "nan"], "must hold, but got nan"),
    ],
)
def test_words_that_make_no_sense(capfd, words, said):
    done = zeus_here(capfd, "straggler", *words, "--server", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert said in one_error_line(done)
