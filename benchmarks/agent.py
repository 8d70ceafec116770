"""The node agent: what it costs, and whether knobs come back whatever is killed. Prints JSON.

    python benchmarks/agent.py [--quick] [--minutes 10]

An agent with root's rights over a simulated driver library that accepts settings from root only;
its clients are processes of another user. Run as root.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "drivers" / "python")]

from tests.agent.rig import DEFAULT_LIMIT, AgentRig  # noqa: E402
from tests.agent.test_hostile import HELLO, mutated, talk  # noqa: E402
from tests.device.clients import Client  # noqa: E402

from simulated_drivers import GpuSpec, build  # noqa: E402
from zeus.device._agent_wire import encoded  # noqa: E402

GPUS, CLIENTS = 8, 64
POLICY = "[[rule]]\npower_limit = true\ngraphics_clock = true\ncpu_energy = true"

# Settings and readings, through the agent, beside the driver's own calls as root.
LATENCY = """
def median_us(call, times):
    found = []
    for number in range(times):
        begin = time.perf_counter()
        call(number)
        found.append(time.perf_counter() - begin)
    return 1e6 * sorted(found)[len(found) // 2]

driver = gpus[0].driver
if {agent}:
    hold = gpus[0].hold(power_limit=200)
    hold.acquire()
    setting = median_us(lambda n: hold.change(power_limit=200 + n % 50), {times})
    reading = median_us(lambda n: driver.client.request(
        "read", gpu=driver.identity.key, reading="power_limit", arguments=[]), {times})
    hold.release()
else:
    setting = median_us(lambda n: driver.set_power_limit(200 + n % 50), {times})
    reading = median_us(lambda n: driver.power_limit(), {times})
    driver.set_power_limit(400)
say([setting, reading])
"""

WINDOWS = """
from zeus import ZeusMonitor
monitor = ZeusMonitor()
with monitor.window("warm"):
    time.sleep(1)
found = []
for number in range({times}):
    begin = time.perf_counter()
    monitor.begin_window("x")
    monitor.end_window("x")
    found.append(time.perf_counter() - begin)
monitor.begin_window("long")
time.sleep({seconds})
measured = monitor.end_window("long")
say([1e6 * sorted(found)[len(found) // 2], measured.gpu_energy[0] / measured.time])
"""

BUSY = """
generator = random.Random({seed})
say(0)
stop = time.monotonic() + {seconds}
while time.monotonic() < stop:
    gpu = gpus[generator.randrange(len(gpus))]
    with gpu.hold(power_limit=generator.randrange(150, 350)) as hold:
        for _ in range(generator.randrange(6)):
            hold.change(power_limit=generator.randrange(150, 350))
    if generator.random() < 0.02:
        gpu.hold(power_limit=generator.randrange(150, 350)).acquire()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def specs(count: int = 1) -> list[GpuSpec]:
    return [GpuSpec(watts=250.0) for _ in range(count)]


def with_rig(library: Path, count: int, measure: Callable[[AgentRig], dict[str, Any]]) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="zeus-agent-"))
    rig = AgentRig(library, folder, *specs(count), policy=POLICY)
    try:
        rig.start()
        return measure(rig)
    finally:
        rig.close()
        shutil.rmtree(folder, ignore_errors=True)


def latency(rig: AgentRig, times: int) -> dict[str, Any]:
    """Power limit set and read, beyond what the driver itself takes."""
    through = rig.ask(LATENCY.format(agent=True, times=times))
    direct = rig.ask(LATENCY.format(agent=False, times=times), user=0, ZEUS_AGENT="0")
    return {
        "set_us": through[0],
        "read_us": through[1],
        "driver_set_us": direct[0],
        "driver_read_us": direct[1],
        "set_beyond_driver_us": through[0] - direct[0],
        "read_beyond_driver_us": through[1] - direct[1],
        "to_reach_us": 300,
    }


def windows(rig: AgentRig, times: int, seconds: float) -> dict[str, Any]:
    """Windows of a user who sees the GPU through the agent only, and directly."""
    script = WINDOWS.format(times=times, seconds=seconds)
    through = rig.ask(script, LD_LIBRARY_PATH="")
    direct = rig.ask(script, ZEUS_AGENT="0")
    return {
        "begin_and_end_us": through[0],
        "begin_and_end_direct_us": direct[0],
        "watts": through[1],
        "watts_direct": direct[1],
        "true_watts": 250.0,
        "to_reach_us": 5,
    }


def killed_clients(rig: AgentRig, times: int) -> dict[str, Any]:
    """Clients killed at random moments: is the previous value back, and when?"""
    generator, seconds, restored = random.Random(1), [], 0
    for number in range(times):
        client = rig.client(BUSY.format(seed=number, seconds=600).replace("0.02", "0"))
        client.hear()
        time.sleep(generator.random() * 0.1)
        client.send(signal.SIGKILL)
        try:
            seconds.append(rig.wait_for_limit(DEFAULT_LIMIT))
            restored += 1
        except AssertionError:
            pass
        client.end()
    longest = max(seconds, default=None)
    return {"killed": times, "restored": restored, "longest_s": longest, "to_reach_s": 1.0}


def killed_agents(rig: AgentRig, times: int) -> dict[str, Any]:
    """The agent killed at random moments: what it restores at its start."""
    generator, restored = random.Random(2), 0
    for number in range(times):
        client = rig.client(BUSY.format(seed=number, seconds=600).replace("0.02", "0"))
        client.hear()
        time.sleep(generator.random() * 0.1)
        rig.kill()
        client.send(signal.SIGKILL)
        client.end()
        rig.start()
        records = list((rig.folder / "agent-state" / "holds").glob("*.json"))
        restored += rig.limit() == DEFAULT_LIMIT and not records
    return {"killed": times, "restored": restored}


def crowd(rig: AgentRig, clients: int, seconds: float) -> dict[str, Any]:
    """Many clients that hold, change, end and die at random, on all GPUs."""
    stop = time.monotonic() + seconds
    running: list[Client] = []
    started = 0
    while time.monotonic() < stop:
        while len(running) < clients:
            left = max(stop - time.monotonic(), 1)
            running.append(rig.client(BUSY.format(seed=started, seconds=left)))
            started += 1
        for client in [each for each in running if each.exited]:
            client.end()
            running.remove(client)
        time.sleep(0.05)
    for client in running:
        client.end()
    limits = [rig.limit(gpu) for gpu in range(GPUS)]
    leases = json.loads(rig.zeus("agent", "leases", "--json"))
    events = rig.events()
    began = sum(event["event"] == "lease began" for event in events)
    ended = sum(event["event"] == "lease ended" for event in events)
    return {
        "clients": started,
        "seconds": seconds,
        "leases": began,
        "leases_ended": ended,
        "leases_left": len(leases),
        "wrong_limits": sum(limit != DEFAULT_LIMIT for limit in limits),
    }


def hostile(rig: AgentRig, frames: int) -> dict[str, Any]:
    """Mutated requests: the agent still serves, and nothing is left changed."""
    generator = random.Random(3)
    gpu = json.loads(rig.zeus("agent", "status", "--json"))["gpus"][0]["key"]
    sent = 0
    while sent < frames:
        several = [mutated(generator, gpu) for _ in range(generator.randrange(1, 20))]
        talk(rig, encoded(HELLO), *several)
        sent += len(several)
    rig.wait_for_limit(DEFAULT_LIMIT)
    served = rig.ask("with gpus[0].hold(power_limit=200):\n    say(gpus[0].power_limit())")
    assert rig.agent is not None
    return {"frames": sent, "alive": rig.agent.poll() is None, "still_serves": served == 200.0}


def at_rest(rig: AgentRig, seconds: float) -> dict[str, Any]:
    """Processor time of the agent while nobody asks for anything."""
    assert rig.agent is not None
    before = _cpu_seconds(rig.agent.pid)
    time.sleep(seconds)
    used = _cpu_seconds(rig.agent.pid) - before
    return {"percent_of_a_core": 100 * used / seconds, "to_reach": 0.2}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the crowd")
    arguments = parser.parse_args()
    part = 10 if arguments.quick else 1
    minutes = arguments.minutes / (10 * part if arguments.quick else 1)
    with tempfile.TemporaryDirectory() as folder:
        library = build("nvml", Path(folder)).parent
        rows = {
            "latency": (1, lambda rig: latency(rig, 3000 // part)),
            "windows": (1, lambda rig: windows(rig, 3000 // part, 30 / part)),
            "clients killed": (1, lambda rig: killed_clients(rig, 200 // part)),
            "agents killed": (1, lambda rig: killed_agents(rig, 100 // part)),
            "crowd": (GPUS, lambda rig: crowd(rig, CLIENTS // min(part, 4), 60 * minutes)),
            "hostile": (1, lambda rig: hostile(rig, 10_000 // part)),
            "at rest": (GPUS, lambda rig: at_rest(rig, 60 / part)),
        }
        found = {}
        for name, (count, measure) in rows.items():
            print(name, file=sys.stderr, flush=True)
            found[name] = with_rig(library, count, measure)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
