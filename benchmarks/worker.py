"""One measurement of one tool, in a process of its own.

Called by `run.py` as ``worker.py TASK TOOL [OPTIONS]``, options as JSON; answers with JSON on the
last line of its output. Runs under the interpreter of any of the tools, so it imports nothing but
the standard library and the tool, and that only where it is needed: what this module has loaded
already would make a tool's own import look cheaper than it is.
"""

from __future__ import annotations

import os
import sys
import time

JOULES_PER_KWH = 3.6e6
NAME = "bench"
WARM_UP = 1.0  # seconds in which a tool may learn what it wants to know
HIGH, LOW, IDLE = 300.0, 150.0, 60.0  # watts


# --- the tools, all of one shape: begin() opens a window, end() closes it, joules(end()) ---------


class Ours:
    """Zeus from this repository."""

    def __init__(self, **_):
        from functools import partial

        from zeus.monitor import ZeusMonitor

        self.monitor = ZeusMonitor(cpu_indices=[])
        self.begin = partial(self.monitor.begin_window, NAME)
        self.end = partial(self.monitor.end_window, NAME)

    @staticmethod
    def load():
        """Import what measures."""
        from zeus.monitor import ZeusMonitor  # noqa: F401

    @staticmethod
    def joules(measurement):
        """GPU energy of what `end` has returned."""
        return measurement.total_energy

    @staticmethod
    def uncertainty(measurement):
        """By how many joules that may be off; `None` if the tool does not say."""
        return measurement.uncertainty

    def begin_background(self):
        """Begin to measure for long."""
        self.begin()

    @staticmethod
    def power_monitor(period):
        """A running recorder of power."""
        from zeus.monitor import PowerMonitor

        return PowerMonitor(update_period=period)


class PeerZeus(Ours):
    """The published package `zeus`; no framework is installed, so it must not wait for one."""

    def __init__(self, approximate=False, **_):
        from functools import partial

        from zeus.monitor import ZeusMonitor

        self.monitor = ZeusMonitor(cpu_indices=[], approx_instant_energy=approximate)
        self.begin = partial(self.monitor.begin_window, NAME, sync_execution=False)
        self.end = partial(self.monitor.end_window, NAME, sync_execution=False)

    @staticmethod
    def uncertainty(_):
        """It does not say."""
        return None


class CodeCarbon:
    """CodeCarbon without network, files and CPU model: as little work as it can be told to do."""

    def __init__(self, **_):
        self.tracker = self.fresh()
        self.begin = self.tracker.start_task
        self.end = self.tracker.stop_task

    @staticmethod
    def fresh():
        """A tracker that has not measured yet."""
        from codecarbon import OfflineEmissionsTracker

        return OfflineEmissionsTracker(
            country_iso_code="USA",
            output_methods=[],
            log_level="critical",
            tracking_mode="machine",
            measure_power_secs=0.1,
            force_cpu_power=50,
            force_ram_power=5,
            allow_multiple_runs=True,
        )

    @staticmethod
    def load():
        """Import what measures."""
        from codecarbon import OfflineEmissionsTracker  # noqa: F401

    @staticmethod
    def joules(task):
        """GPU energy of what `end` has returned."""
        return task.gpu_energy * JOULES_PER_KWH

    @staticmethod
    def uncertainty(_):
        """It does not say."""
        return None

    def begin_background(self):
        """Begin to measure for long: at the given interval, which tasks do not obey."""
        self.tracker = self.fresh()  # one that has run a task would not start
        self.tracker.start()


TOOLS = {"ours": Ours, "zeus": PeerZeus, "codecarbon": CodeCarbon}


def prepared(request):
    """The tool, warm, and the controller of the driver beneath it."""
    import warnings

    warnings.simplefilter("ignore")  # one of the tools warns at every window without a tick
    driver = simulation()
    tool = TOOLS[request["tool"]](**request.get("tool_options", {}))
    for _ in range(20):
        tool.begin()
        tool.joules(tool.end())
    time.sleep(WARM_UP)
    return tool, driver


def simulation():
    """The controller of the simulated driver that this process was started with."""
    from pathlib import Path

    from bench_drivers.nvml_state import STATE_VARIABLE, SimulatedNvml  # beside this copy

    return SimulatedNvml(Path(os.environ[STATE_VARIABLE]))


# --- import -------------------------------------------------------------------------------------


def measure_import(request):
    tool = TOOLS[request["tool"]]
    before = memory()
    started = time.perf_counter()
    tool.load()
    loaded = time.perf_counter()
    after = memory()
    ready = tool()
    ready.begin()
    ready.end()
    return {
        "import_seconds": loaded - started,
        "ready_seconds": time.perf_counter() - started,
        "growth_mb": after["VmRSS"] - before["VmRSS"],
        "max_mb": after["VmHWM"],
        "ready_max_mb": memory()["VmHWM"],
    }


def memory():
    """Megabytes in use now and at most.

    From /proc: getrusage would also count what the process that started this one had in use.
    """
    with open("/proc/self/status") as file:  # noqa: PTH123  (pathlib is not loaded yet)
        fields = dict(line.split(":", 1) for line in file if line.startswith("Vm"))
    return {name: int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM")}


# --- overhead -----------------------------------------------------------------------------------


def measure_overhead(request):
    tool, driver = prepared(request)
    driver.set_driver_latency(request["driver_latency"])
    for _ in range(request["warm_up_pairs"]):
        tool.begin()
        tool.end()
    pairs, seconds = timed_pairs(tool, request["pairs"], request["budget"])
    return {
        "pairs": pairs,
        "pair_us": seconds / pairs * 1e6,
        "ask_now_us": asking_cost(tool, request["asked"], 0.0),
        "ask_later_us": asking_cost(tool, request["asked"], 0.3),
    }


def timed_pairs(tool, wanted, budget):
    """Time up to `wanted` windows in a row, fewer if they take longer than `budget` seconds."""
    begin, end, clock = tool.begin, tool.end, time.perf_counter
    batch = max(1, wanted // 200)
    pairs, started = 0, clock()
    while pairs < wanted and clock() - started < budget:
        for _ in range(batch):
            begin()
            end()
        pairs += batch
    return pairs, clock() - started


def asking_cost(tool, windows, delay):
    """Mean microseconds to get the joules of a window, this long after it has ended."""
    ended = []
    spent = 0.0
    for _ in range(windows):
        tool.begin()
        time.sleep(0.002)
        ended.append(tool.end())
        if not delay:
            spent += time_to_ask(tool, ended)
    if delay:
        time.sleep(delay)
        spent = time_to_ask(tool, ended)
    return spent / windows * 1e6


def time_to_ask(tool, ended):
    started = time.perf_counter()
    while ended:
        tool.joules(ended.pop())
    return time.perf_counter() - started


# --- accuracy -----------------------------------------------------------------------------------


def measure_accuracy(request):
    """Windows as [relative error, whether it was 0 J, whether truth was outside the uncertainty].

    A tool takes its instants somewhere within the calls of begin and end, and on a busy machine a
    call may be interrupted. So of the windows between the instants before, in the middle of and
    after the two calls, the one that is kindest to the tool counts.
    """
    import random

    tool, driver = prepared(request)
    chance = random.Random(request["seed"])
    scene = Scene(tool, driver, spin if request["wait"] == "spin" else time.sleep)
    scenario = SCENARIOS[request["scenario"]]
    windows = []
    for number in range(request["windows"]):
        length, pause = request["length"] * chance.uniform(0.8, 1.2), chance.uniform(0, 0.12)
        instants, ended = scenario(scene, number, length, pause)
        windows.append(judged(tool, driver, instants, ended))
    return {"windows": windows}


class Scene:
    """Who measures, what draws the power, and how the time of a window passes."""

    def __init__(self, tool, driver, wait):
        self.tool, self.driver, self.wait = tool, driver, wait


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def one_window(tool, inside):
    now = time.monotonic
    beginning = now()
    tool.begin()
    begun = now()
    inside()
    ending = now()
    measurement = tool.end()
    return (beginning, begun, ending, now()), measurement


def steady(scene, number, length, pause):
    if number == 0:
        scene.driver.set_power(0, HIGH)
        scene.wait(0.3)
    scene.wait(pause)
    return one_window(scene.tool, lambda: scene.wait(length))


def burst(scene, number, length, pause):
    def load():
        scene.driver.set_power(0, HIGH)
        scene.wait(length)
        scene.driver.set_power(0, IDLE)

    if number == 0:
        scene.driver.set_power(0, IDLE)
        scene.wait(0.3)
    scene.wait(pause)
    return one_window(scene.tool, load)


def alternating(scene, number, length, _):
    scene.driver.set_power(0, LOW if number % 2 else HIGH)
    return one_window(scene.tool, lambda: scene.wait(length))


SCENARIOS = {"steady": steady, "burst": burst, "alternating": alternating}


def judged(tool, driver, instants, ended):
    beginning, begun, ending, over = instants
    joules = tool.joules(ended)
    middle = (beginning + begun) / 2, (ending + over) / 2
    spans = (beginning, ending), middle, (begun, over)
    truths = [driver.energy(0, *span) for span in spans]
    off = min(abs(joules - truth) for truth in truths)
    uncertainty = tool.uncertainty(ended)
    outside = None if uncertainty is None else off > uncertainty
    return [off / truths[1], joules <= 0, outside]


# --- background ---------------------------------------------------------------------------------


def measure_background(request):
    """Share of a core that a tool's own threads and processes take; the main thread is left out."""
    work, keep = BACKGROUND[request["mode"]](request)
    work(request["settle"])
    before, main_before, started = cpu_seconds(), time.thread_time(), time.monotonic()
    work(request["seconds"])
    spent, wall = time.thread_time() - main_before, time.monotonic() - started
    after = cpu_seconds()
    del keep
    return {
        "core_percent": (sum_of_growth(before, after) - spent) / wall * 100,
        "main_thread_percent": spent / wall * 100,
        "helper_processes": len(after) - 2,
    }


def one_long_window(request):
    tool, _ = prepared(request)
    tool.begin_background()
    return time.sleep, tool


def short_windows(request):
    tool, _ = prepared(request)
    return lambda seconds: follow_each_other(tool, seconds, request["ask"]), tool


def power_timeline(request):
    return time.sleep, TOOLS[request["tool"]].power_monitor(request["period"])


BACKGROUND = {"window": one_long_window, "short": short_windows, "power": power_timeline}


def follow_each_other(tool, seconds, ask):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tool.begin()
        time.sleep(0.05)
        measurement = tool.end()
        if ask:
            tool.joules(measurement)


def cpu_seconds():
    """CPU seconds of this process, of its ended children, and of each living descendant."""
    import resource

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = {"self": time.process_time(), "ended": ended.ru_utime + ended.ru_stime}
    for pid in descendants(os.getpid()):
        try:
            # Linux numbers the CPU clock of a process like this. It is exact, unlike the ticks in
            # /proc, and keeps what threads that have ended had used.
            seconds[pid] = time.clock_gettime((~pid << 3) | 2)
        except OSError:
            continue
    return seconds


def descendants(pid):
    from contextlib import suppress
    from pathlib import Path

    children = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(child) for child in (task / "children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def sum_of_growth(before, after):
    return sum(seconds - before.get(name, 0.0) for name, seconds in after.items())


TASKS = {
    "import": measure_import,
    "overhead": measure_overhead,
    "accuracy": measure_accuracy,
    "background": measure_background,
}


def main():
    task, tool, *options = sys.argv[1:]
    request = {"tool": tool}
    for text in options:
        import json

        request |= json.loads(text)
    answer = TASKS[task](request)
    import json

    print(json.dumps(answer))


if __name__ == "__main__":
    main()
