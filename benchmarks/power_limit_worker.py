"""One training run under one tool's power limit optimizer, in a process of its own.

Called by the harness as ``power_limit_worker.py TASK TOOL OPTIONS`` and answers like `worker.py`.
The training is simulated in real time: a step lasts as long as the load on the simulated driver
says under the power limit in force, plus what its callbacks take. It ends at an absolute instant,
so that what a step takes on average is known exactly, whatever else this machine does.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import suppress
from typing import Any

ETA = 0.5
SPIN = 0.0008  # seconds that are left to spin after sleeping, which is not that exact
SPIN_UNDISTURBED = 0.0003


class Ours:
    """The optimizer from this repository, told nothing but what to minimize."""

    def __init__(self, lengths):
        from zeus.monitor import ZeusMonitor
        from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, ZeusCost

        self.monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
        self.optimizer = GlobalPowerLimitOptimizer(self.monitor, ZeusCost(ETA), **lengths)

    def decided(self):
        """Whether it has chosen."""
        return self.optimizer.decided

    def trouble(self):
        """Why it will not choose; empty while it may."""
        return self.optimizer.trouble

    def chosen(self):
        """Watts."""
        selection = self.optimizer.selection
        assert selection is not None
        return float(selection.point.knob)

    def points(self):
        """Profiled limits as (watts, seconds and joules per step, uncertainty of each)."""
        return [
            (
                float(point.knob),
                point.time,
                point.energy,
                point.time_uncertainty,
                point.energy_uncertainty,
            )
            for point in self.optimizer.frontier or ()
        ]


class PeerZeus:
    """The published package `zeus` with its defaults.

    It does not work without a framework. None is here, so what it would ask one for is answered as
    a framework does in a process of its own: nothing to wait for, nobody to share figures with.
    """

    def __init__(self, lengths):
        from functools import partial
        from importlib import import_module

        from zeus.monitor import ZeusMonitor

        power_limit: Any = import_module("zeus.optimizer.power_limit")  # not ours
        power_limit.is_distributed = lambda: False
        power_limit.all_reduce = lambda values, **_: values
        monitor: Any = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
        monitor.begin_window = partial(monitor.begin_window, sync_execution=False)
        monitor.end_window = partial(monitor.end_window, sync_execution=False)
        objective = power_limit.ZeusCost(ETA)
        self.optimizer = power_limit.GlobalPowerLimitOptimizer(monitor, objective, **lengths)

    def decided(self):
        """Whether it has chosen."""
        return hasattr(self.optimizer.state, "optimal_power_limit")

    @staticmethod
    def trouble():
        """It raises instead."""
        return ""

    def chosen(self):
        """Watts."""
        return self.optimizer.state.optimal_power_limit / 1000

    def points(self):
        """Profiled limits as (watts, seconds and joules per step, uncertainty of each)."""
        steps = self.optimizer.profile_steps
        return [
            (float(each.power_limit), each.time / steps, each.energy / steps, None, None)
            for each in self.optimizer.measurements
        ]


TOOLS: dict[str, Any] = {"ours": Ours, "zeus": PeerZeus}


class Training:
    """Steps of a job on GPU 0 of the simulated driver.

    Args:
        driver: Controller of the driver.
        step_seconds: Seconds of a step at speed 1.
        spin: Seconds of a step's end that are spent spinning.
    """

    def __init__(self, driver, step_seconds, spin):
        self.driver = driver
        self.busy = False  # whether to keep the core awake, as a loop that feeds a GPU does
        self.steps = 0
        self.latest = 0.0  # seconds by which a step has ended after its time
        self.callback_seconds = []  # of each step: at its begin and at its end together
        self.stretches = []  # (begun, limit, step) whenever the limit has changed
        self._step_seconds = step_seconds
        self._spin = spin
        self._deadline = time.monotonic()

    def step(self, optimizer):
        """One step, with the optimizer's callbacks around it."""
        timer, driver = time.perf_counter, self.driver
        # After a wait everything is slow the first time. A loop that feeds a GPU is awake by then.
        nothing(timer(), timer())
        begun = timer()
        optimizer.on_step_begin()
        spent = timer() - begun
        limit = driver.power_limit(0)
        if not self.stretches or self.stretches[-1][1] != limit:
            self.stretches.append((time.monotonic(), limit, self.steps))
        length = self._step_seconds / driver.speed(0)
        self._deadline += spent + length
        # Not throughout: the kernel would interrupt a real-time process that never sleeps.
        spin = max(length / 2, self._spin) if self.busy else self._spin
        left = self._deadline - spin - time.monotonic()
        if left > 0:
            time.sleep(left)
        while time.monotonic() < self._deadline:
            pass
        self.latest = max(self.latest, time.monotonic() - self._deadline)
        nothing(timer(), timer())
        begun = timer()
        optimizer.on_step_end()
        at_end = timer() - begun
        self._deadline += at_end
        self.callback_seconds.append(spent + at_end)
        self.steps += 1

    def history(self):
        """What was really drawn, as (limit, steps, seconds, joules), one after the other."""
        ends = [*self.stretches[1:], (time.monotonic(), 0.0, self.steps)]
        return [
            (limit, last - first, end - begun, self.driver.energy(0, begun, end))
            for (begun, limit, first), (end, _, last) in zip(self.stretches, ends, strict=True)
        ]


def nothing(*_):
    pass


def undisturbed():
    """Go before other programs, where that is permitted; returns whether it is.

    The end of a step is a GPU's doing. Without this, it would come late whenever this machine has
    something else to do.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True


def measure_power_limit(request):
    real_time = undisturbed()
    driver = simulation()
    side = TOOLS[request["tool"]](request["lengths"])
    spin = SPIN_UNDISTURBED if real_time else SPIN
    training = Training(driver, request["step_seconds"], spin)
    answer: dict[str, Any] = {}
    side.optimizer.on_epoch_begin()
    try:
        answer |= until_decided(side, training, request["budget"])
        if side.decided():
            answer |= after_decision(side, training, request["after"])
    except Exception as error:  # a crash of the tool is a result
        answer["crashed"] = f"{type(error).__name__}: {error}"[:500]
    with suppress(Exception):
        side.optimizer.on_epoch_end()
    return answer | {
        "points": side.points(),
        "history": training.history(),
        "latest": training.latest,
        "undisturbed": real_time,
    }


def until_decided(side, training, budget):
    """Train until the tool has decided."""
    begun = time.monotonic()
    end = begun + budget
    while not (side.decided() or side.trouble()) and time.monotonic() < end:
        training.step(side.optimizer)
    if not side.decided():
        why = side.trouble() or f"no decision within {budget:g} s"
        return {"undecided": f"{why} (after {training.steps} steps)"}
    # The decision was taken at the beginning of the last step, or at the end of it.
    seconds = time.monotonic() - begun
    return {
        "chosen": side.chosen(),
        "steps": training.steps,
        "seconds": seconds,
        "callbacks_profiling": described(training.callback_seconds),
    }


def after_decision(side, training, seconds):
    """Train on for a while, and as long without an optimizer."""
    limit = training.driver.power_limit(0)
    training.busy = True
    return {
        "limit_after": limit,
        "callbacks_after": train_on(side.optimizer, training, seconds),
        "callbacks_empty": train_on(Nobody(), training, seconds),
    }


def train_on(optimizer, training, seconds):
    training.callback_seconds = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        training.step(optimizer)
    return described(training.callback_seconds)


class Nobody:
    """Does not listen: what calling and timing take by themselves, after a step of this length."""

    def on_step_begin(self):
        """A step begins."""

    def on_step_end(self):
        """A step has ended."""


def described(seconds):
    """Microseconds."""
    ordered = sorted(seconds)
    return {
        "median": statistics.median(ordered) * 1e6,
        "mean": statistics.fmean(ordered) * 1e6,
        "max": ordered[-1] * 1e6,
        "steps": len(ordered),
    }


def simulation():
    """The controller of the simulated driver that this process was started with."""
    from simulated_drivers import SimulatedNvml  # beside this copy

    return SimulatedNvml.from_environment()


def main():
    _, tool, options = sys.argv[1:]
    print(json.dumps(measure_power_limit({"tool": tool} | json.loads(options))))


if __name__ == "__main__":
    main()
