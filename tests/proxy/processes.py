"""`zeus proxy` in a process of its own, and plain HTTP to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time


class ProxyProcess:
    """The proxy on a free port, on a simulated GPU, from the moment it is ready."""

    def __init__(self, *options: str, simulate: str = "a100") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zeus", "proxy", "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error", "ZEUS_SIMULATE": simulate},
        )
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()
        found = re.search(r"proxy on (http://\S+:(\d+)) to", self.greeting)
        if found is None:
            raise RuntimeError(f"no proxy: {self.greeting}{self.stop()}")
        self.url, self.port = found[1], int(found[2])

    def measuring(self) -> ProxyProcess:
        """Wait until the GPU's counter was refreshed for the first time; itself."""
        wait_for(lambda: get(self.port, "/zeus/requests")["groups"][0]["total"]["idle_joules"])
        return self

    def stop(self, number: int = signal.SIGTERM) -> str:
        """End it by a signal; return what it wrote to stderr."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        return said

    def __enter__(self) -> ProxyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            said = self.stop()
            assert "Traceback" not in said, said
            assert self.process.returncode == 0, said


def send(port, method, target, body=None, headers=None):
    """Send a request; return the response with its body read as `whole`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    text = json.dumps(body) if isinstance(body, dict) else body
    with contextlib.closing(connection):
        connection.request(method, target, text, headers or {})
        with connection.getresponse() as response:
            response.whole = response.read()  # type: ignore[attr-defined]
            return response


def get(port, target):
    return json.loads(send(port, "GET", target).whole)


def ask(stream=True, **fake):
    usage = fake.pop("usage_asked", False)
    body: dict = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "fake": fake}
    if stream:
        body["stream"] = True
    if usage:
        body["stream_options"] = {"include_usage": True}
    return body


def chat(port, body, headers=None):
    return send(port, "POST", "/v1/chat/completions", body, headers)


def events(whole: bytes) -> list[dict]:
    """Return the chunks of a stream, which must end with [DONE]."""
    blocks = whole.decode().split("\n\n")
    assert blocks[-1] == ""
    assert blocks[-2] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


def wait_for(condition):
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def seen(server):
    """Return the requests that a server has received."""
    return get(server.port, "/seen")
