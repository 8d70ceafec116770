"""Models and arenas in processes of their own, as users run them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_COMMON = ("--listen", "127.0.0.1:0", "--rounds-per-minute", "1000")


@contextlib.contextmanager
def fake_model(**options: Any) -> Iterator[str]:
    """A fake model; its URL. See `tests.arena.fake_model`."""
    script = Path(__file__).with_name("fake_model.py")
    command = [sys.executable, "-S", str(script), json.dumps(options)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def proxy(to: str, *options: str) -> Iterator[str]:
    """`zeus proxy` in front of a model; its URL."""
    command = [sys.executable, "-m", "zeus", "proxy", "--to", to, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"proxy on (http://\S+) ", process.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=120)


class ArenaProcess:
    """`zeus arena` on a free port, from the moment it says that it is ready."""

    def __init__(self, storage: str, models: dict[str, str], *options: str) -> None:
        words = [word for name, url in models.items() for word in ("--model", f"{name}={url}")]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "zeus",
                "arena",
                *_COMMON,
                *words,
                "--storage",
                storage,
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        assert self.process.stdout is not None
        self.greeting = ""
        for line in self.process.stdout:
            self.greeting += line
            found = re.search(r"arena on (http://\S+)/arena ", line)
            if found:
                self.url = found[1]
                return
        raise RuntimeError(f"no arena: {self.greeting}{self.stop()}")

    def stop(self, number: int = signal.SIGTERM) -> str:
        """End it by a signal; what it said on stderr."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        return said

    def call(self, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of a request; a POST if there is a body."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def ask(self, prompt: str = "What is it?") -> str:
        """Begin a round; its name."""
        status, said = self.call("/api/rounds", {"prompt": prompt})
        assert status == 201, said
        return said["round"]

    def frames(self, name: str) -> list[dict[str, str]]:
        """All frames of a round, until its end."""
        url = f"{self.url}/api/rounds/{name}/stream"
        with urllib.request.urlopen(url, timeout=120) as answer:
            return [json.loads(line) for line in answer]

    def answered(self, prompt: str = "What is it?") -> str:
        """A round that waits for a vote; its name."""
        name = self.ask(prompt)
        assert self.frames(name)[-1]["state"] == "answered"
        return name


@contextlib.contextmanager
def arena(
    storage: str, models: dict[str, str], *options: str, complaints: bool = False
) -> Iterator[ArenaProcess]:
    """An arena that must end well and, unless `complaints`, have said nothing."""
    process = ArenaProcess(storage, models, *options)
    try:
        yield process
    finally:
        said = process.stop()
    assert process.process.returncode == 0, said
    assert complaints or said == ""
