"""`kill -9` of the proxy and of `zeus slo` beside it, at any time: nobody waits, nothing stays.

A model server, the proxy in front of it, and the controller that reads the proxy's metrics and
holds clocks of a simulated GPU, each a process of its own, as on a machine that serves.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.cli.support import environment, start
from tests.proxy.model_server import ModelServer
from tests.proxy.processes import ProxyProcess, ask, chat, events, get, seen, wait_for

from zeus.device import get_gpus

CLIENTS = 4
SLO = ("--bound", "ttft:p99:5", "--bound", "tpot:p99:0.5", "--interval", "0.05")


@pytest.fixture(autouse=True)
def simulated(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEUS_SIMULATE", "v100")
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "state"))


def clock() -> object:
    return get_gpus()[0].locked_graphics_clock()


class Clients:
    """Ask one request after the other, and count how each ended."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ends = {"answered": 0, "broken off": 0}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                events(chat(self.port, ask(tokens=20, interval=0.01)).whole)
                self.ends["answered"] += 1
            except (http.client.HTTPException, ConnectionError):
                self.ends["broken off"] += 1
                time.sleep(0.01)

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=120)  # none hangs
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(2, 12))]
)
def test_a_proxy_that_is_killed_at_any_time_is_replaced(seed):
    dice = random.Random(seed)
    with ModelServer() as server:
        proxy = ProxyProcess("--to", server.url, simulate="v100")
        with Clients(proxy.port) as clients:
            for _ in range(2):
                wait_for(lambda before=clients.ends["answered"]: clients.ends["answered"] > before)
                time.sleep(dice.uniform(0, 0.25))
                proxy.stop(signal.SIGKILL)
                broken = clients.ends["broken off"]
                wait_for(lambda broken=broken: clients.ends["broken off"] >= broken + CLIENTS)
                # The model server is left with none of its requests.
                wait_for(lambda: not any(each["end"] == "open" for each in seen(server)))
                proxy = ProxyProcess(
                    "--to", server.url, "--listen", f"127.0.0.1:{proxy.port}", simulate="v100"
                )
            wait_for(lambda before=clients.ends["answered"]: clients.ends["answered"] > before)
        wait_for(lambda: get(proxy.port, "/zeus/requests")["groups"][0]["in_flight"] == 0)
        with proxy:
            assert events(chat(proxy.port, ask()).whole)


@contextlib.contextmanager
def agent(tmp_path):
    """A node agent, which holds clocks for others; its socket."""
    path = str(tmp_path / "agent.sock")
    process = subprocess.Popen(
        [sys.executable, "-m", "zeus", "agent", "run", "--socket", path, "--audit", "none"],
        env=environment(ZEUS_AGENT=path),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        while "node agent at" not in (line := process.stderr.readline()):
            assert line
        yield path
    finally:
        process.terminate()
        process.communicate(timeout=120)


@pytest.mark.parametrize(
    ("seed", "through"),
    [
        (1, "next start"),
        (2, "agent"),
        *(
            pytest.param(seed, through, marks=pytest.mark.thorough)
            for seed in range(3, 8)
            for through in ("next start", "agent")
        ),
    ],
)
def test_a_controller_that_is_killed_at_any_time_leaves_no_clock(tmp_path, seed, through):
    dice = random.Random(seed)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ModelServer())
        proxy = stack.enter_context(ProxyProcess("--to", server.url, simulate="v100"))
        clients = stack.enter_context(Clients(proxy.port))
        variables = {}
        if through == "agent":
            variables["ZEUS_AGENT"] = stack.enter_context(agent(tmp_path))
        held = False
        for _ in range(2):
            process = start("slo", "--to", proxy.url, *SLO, variables=variables)
            if not held:
                wait_for(lambda: clock() is not None)
                held = True
            time.sleep(dice.uniform(0, 0.5))
            process.kill()
            process.communicate()
            if through == "agent":  # notices that nobody holds it any more
                wait_for(lambda: clock() is None)
        if through == "next start":
            process = start("slo", "--to", proxy.url, *SLO, "--observe", "--duration", "0.2")
            process.communicate(timeout=120)
            assert process.returncode == 0
            assert clock() is None
        assert clients.ends["broken off"] == 0
