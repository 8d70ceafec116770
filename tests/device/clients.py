"""Processes for the tests of the device room, and drivers that misbehave on demand.

Much of what a hold promises can only be seen from outside: by whoever is left when the process is
gone. A `Client` runs a script that speaks JSON lines with the test and never outlives it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zeus.clock import MonotonicClock
from zeus.device import Gpu
from zeus.device import _simulated as simulated
from zeus.device._base import ClockRange, GpuDriver, GpuIdentity, PowerLimits, SupportedClocks

TREE = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join(str(TREE / folder) for folder in ("src", "", "drivers/python"))
SPEC = "v100x2"
LONG_ENOUGH = 240.0
"""Seconds after which something hangs for sure."""

PRELUDE = """
import json, os, random, signal, sys, threading, time
from pathlib import Path
from zeus.clock import MonotonicClock
from zeus.device import get_gpus, _node as node, _nvml as nvml
from zeus.device._base import Capability, ClockRange
from zeus.device import Gpu
from zeus.errors import CapabilityError, KnobError

def say(value):
    print(json.dumps(value, default=str), flush=True)

def heard():
    line = sys.stdin.readline()
    return json.loads(line) if line else None

def outcome(question, *arguments, **options):
    try:
        return question(*arguments, **options)
    except CapabilityError as error:
        return [str(error.reason), error.detail, error.cure]
    except KnobError as error:
        return ["knob", str(error)]
"""


class Client:
    """One running script."""

    def __init__(self, script: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        # A script that hangs ends like one that crashes: with a test that says so.
        self._limit = threading.Timer(LONG_ENOUGH, self._kill)
        self._limit.daemon = True
        self._limit.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.append(self._process.stderr.read())

    @property
    def exited(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def hear(self) -> Any:
        """What the script says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the script ended without a word: {self._end()}\n{self.errors}"
        return json.loads(line)

    def read(self) -> str:
        """All that the script prints until its end."""
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def tell(self, value: Any = None) -> None:
        """Answer the script."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def _end(self) -> int:
        code = self._process.wait(timeout=LONG_ENOUGH)
        self._limit.cancel()
        self._reader.join(timeout=LONG_ENOUGH)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return code

    def end(self) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        return self._end()

    @property
    def errors(self) -> str:
        """What it wrote to stderr, once it has ended."""
        return "".join(self._errors)

    def stop(self) -> None:
        """Kill it, whatever it does, or tidy up after it if it has ended."""
        self._kill()
        self._end()

    def _kill(self) -> None:
        # With whom it has forked: they hold the other ends of our pipes.
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)


class Clients:
    """Starts scripts with one environment."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables
        self._started: list[Client] = []

    def start(self, script: str, **more: str) -> Client:
        """Start a script."""
        environment = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            **self.variables,
            **more,
        }
        self._started.append(Client(script, environment))
        return self._started[-1]

    def ask(self, script: str, **more: str) -> Any:
        """Run a script to its end; what it said first."""
        client = self.start(script, **more)
        said = client.hear()
        code = client.end()
        assert code == 0, client.errors
        return said

    def stop(self) -> None:
        """Leave none behind."""
        for client in self._started:
            client.stop()


def onlookers() -> list[simulated.SimulatedGpuDriver]:
    """The GPUs that the clients simulate, seen without touching any record."""
    return simulated.build(SPEC, MonotonicClock(), None)


class StandInDriver(GpuDriver):
    """A GPU in memory, whose setters do what a test wants before they set."""

    may_hang = False

    def __init__(self, key: str = "GPU-stand-in", *, clocks_readable: bool = True) -> None:
        self.identity = GpuIdentity(key, "Stand-in", "NVIDIA")
        self.limit = 250.0
        self.graphics: ClockRange | None = None
        self.memory_clock: ClockRange | None = None
        self.clocks_readable = clocks_readable
        self.before: Callable[[str, Any], None] = lambda knob, value: None
        self.after: Callable[[str, Any], None] = lambda knob, value: None

    def power_limit(self) -> float:
        return self.limit

    def power_limits(self) -> PowerLimits:
        return PowerLimits(100.0, 300.0, 250.0)

    def set_power_limit(self, watts: float) -> None:
        self.before("power_limit", watts)
        self.limit = watts
        self.after("power_limit", watts)

    def supported_clocks(self) -> SupportedClocks:
        return SupportedClocks(tuple(range(1500, 200, -100)), (900, 800))

    def locked_graphics_clock(self) -> ClockRange | None:
        return self.graphics if self.clocks_readable else None

    def locked_memory_clock(self) -> ClockRange | None:
        return self.memory_clock if self.clocks_readable else None

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        self.before("graphics_clock", clock)
        self.graphics = clock
        self.after("graphics_clock", clock)

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        self.before("memory_clock", clock)
        self.memory_clock = clock
        self.after("memory_clock", clock)


def stand_in(**options: Any) -> tuple[Gpu, StandInDriver]:
    """A GPU over a stand-in driver; its record is on disk, as for hardware."""
    driver = StandInDriver(**options)
    return Gpu(0, driver), driver
