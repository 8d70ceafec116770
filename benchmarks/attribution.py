"""Energy of jobs that take turns on a GPU or share it, beside what they have really consumed.

Runs in virtual time, on simulated GPUs with the sensors of real parts. Prints JSON: for each case
the error of each job's energy and of the sum with idle energy, in percent, with the same for an
equal split between the processes on the GPU, idle energy included, as a ratio.

    python benchmarks/attribution.py [--parts a100,h100] [--seconds 300]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterator
from functools import partial

from zeus.clock import Alarm, VirtualClock, every
from zeus.device._process_owner import ProcessOwner
from zeus.device._simulated_state import IDLE
from zeus.telemetry._job_energy import JOB_LABELS, JobEnergyMeter
from zeus.testing import SimulatedNode

PARTS = ("v100", "a100", "h100", "mi300x")
TURNS = (0.3, 1.0, 5.0, 20.0, 60.0)
ACTIVITIES = ((0.9, 0.35), (1.0, 0.7), (0.3, 0.95))
PIDS = (101, 102)
STEP = 0.05  # seconds; a virtual clock skips alarms in longer ones
BEFORE = 10.0  # seconds of an empty GPU
LOADING = 5.0  # seconds in which a process is on the GPU and runs nothing yet
AFTER = 6.0

Loads = dict[int, tuple[float, float]]
Plan = Iterator[tuple[float, Loads]]


def turns(length: float, activities: tuple[float, float], pause: float) -> Plan:
    """Two jobs take turns, with pauses; the second has turns that are 1.3 times as long."""
    while True:
        yield length, {PIDS[0]: (activities[0], 1.0)}
        yield 1.3 * length, {PIDS[1]: (activities[1], 1.0)}
        if pause:
            yield pause, {}


def sharing(shares: tuple[float, float], activities: tuple[float, float], vary: float) -> Plan:
    """Two jobs share the GPU; their shares of time vary evenly by up to `vary`."""
    chance = random.Random(11)
    while True:
        varied = [min(1.0, max(0.02, s + chance.uniform(-vary, vary))) for s in shares]
        loads = zip(PIDS, zip(activities, varied, strict=True), strict=True)
        yield chance.uniform(0.5, 4.0), dict(loads)


def joining(shares: tuple[float, float], activities: tuple[float, float]) -> Plan:
    """The second job joins after a minute; shares of time are constant."""
    yield 60.0, {PIDS[0]: (activities[0], shares[0])}
    while True:
        yield 10.0, {pid: (activities[i], shares[i]) for i, pid in enumerate(PIDS)}


class EqualSplit:
    """All energy, evenly between the processes that are on the GPU; idle only without any."""

    def __init__(self, node: SimulatedNode) -> None:
        (self._gpu,) = node.gpus
        self.joules: dict[int, float] = {}
        self.idle = 0.0
        self._last = self._gpu.energy()

    def poll(self) -> None:
        """Divide what was consumed since the last time."""
        joules, pids = self._gpu.energy(), [process.pid for process in self._gpu.processes()]
        gained, self._last = joules - self._last, joules
        for pid in pids:
            self.joules[pid] = self.joules.get(pid, 0.0) + gained / len(pids)
        if not pids:
            self.idle += gained


def run(part: str, plan: Plan, seconds: float) -> dict[str, object]:
    clock = VirtualClock()
    node = SimulatedNode(part, clock=clock)
    (driver,) = node.drivers
    counter = driver.energy()
    meter = JobEnergyMeter(node, owner=lambda pid: ProcessOwner(pid, pid, f"user {pid}"))
    naive = EqualSplit(node)
    alarm: Alarm = every(3.0, naive.poll, clock)
    clock.run(alarm, "equal split")
    polls = Counted(meter)
    advance(clock, BEFORE)
    for pid in PIDS:
        driver.set_process_load(pid, 0.0)
    advance(clock, LOADING)
    begun = clock.now()
    for length, loads in plan:
        for pid in PIDS:
            driver.set_process_load(pid, *loads.get(pid, (0.0, 1.0)))
        advance(clock, length)
        if clock.now() - begun >= seconds:
            break
    for pid in PIDS:
        driver.set_process_load(pid, IDLE)
    advance(clock, AFTER)
    found = {labels[JOB_LABELS.index("user")]: joules for labels, joules in meter.job_energy()}
    ((_, idle),) = meter.idle_energy()
    gained = driver.energy() - counter
    true = {pid: driver.process_energy(pid) for pid in PIDS}
    ours = [percent(found[f"user {pid}"], true[pid]) for pid in PIDS]
    theirs = [percent(naive.joules[pid], true[pid]) for pid in PIDS]
    meter.close()
    return {
        "job errors": ours,
        "sum error": percent(sum(found.values()) + idle, gained),
        "idle error of the total": round(100 * (idle - driver.idle_energy()) / gained, 2),
        "equal split: job errors": theirs,
        "equal split: worst error, times ours": round(
            max(map(abs, theirs)) / max(0.01, *map(abs, ours)), 1
        ),
        "polls per second": round(polls.count / clock.now(), 1),
    }


class Counted:
    """Counts how often a meter polls."""

    def __init__(self, meter: JobEnergyMeter) -> None:
        self.count = 0
        fire = meter.fire

        def counted() -> None:
            self.count += 1
            fire()

        meter.fire = counted  # type: ignore[method-assign]


def advance(clock: VirtualClock, seconds: float) -> None:
    end = clock.now() + seconds
    while clock.now() < end:
        clock.sleep(min(STEP, end - clock.now()))


def percent(value: float, true: float) -> float:
    return round(100 * (value / true - 1), 2)


def cases() -> Iterator[tuple[str, Callable[[], Plan]]]:
    for length in TURNS:
        for activities in ACTIVITIES:
            for pause in (0.0, 0.5):
                name = f"turns of {length:g} s, activities {activities}, pauses of {pause:g} turns"
                yield name, partial(turns, length, activities, pause * length)
    for activities in ACTIVITIES:
        for vary in (0.3, 0.15, 0.05):
            name = f"shares 0.5 and 0.35 that vary by {vary}, activities {activities}"
            yield name, partial(sharing, (0.5, 0.35), activities, vary)
        name = f"constant shares 0.5 and 0.35, one joins, activities {activities}"
        yield name, partial(joining, (0.5, 0.35), activities)
        name = f"constant shares 0.5 and 0.35 from the start, activities {activities}: unknowable"
        yield name, partial(sharing, (0.5, 0.35), activities, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=300.0, help="of load in each case")
    arguments = parser.parse_args()
    rows = [
        {"gpu": part, "case": name, **run(part, make(), arguments.seconds)}
        for part in arguments.parts.split(",")
        for name, make in cases()
    ]
    print(json.dumps({"cases": rows, "summary": summary(rows)}, indent=1))


def summary(rows: list[dict[str, object]]) -> dict[str, object]:
    kinds: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        words = str(row["case"])
        kind = "unknowable" if "unknowable" in words else words.split(", act", maxsplit=1)[0]
        kinds.setdefault(kind, []).append(row)
    return {
        kind: {
            "worst job error": max(abs(e) for row in some for e in row["job errors"]),  # type: ignore[attr-defined]
            "worst sum error": max(abs(row["sum error"]) for row in some),  # type: ignore[arg-type]
            "equal split, worst": max(
                abs(e)
                for row in some
                for e in row["equal split: job errors"]  # type: ignore[attr-defined]
            ),
            "equal split, median times ours": statistics.median(
                row["equal split: worst error, times ours"]  # type: ignore[type-var]
                for row in some
            ),
        }
        for kind, some in kinds.items()
    }


if __name__ == "__main__":
    main()
