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
WINDOW = 0.05  # seconds
LATER = 0.3  # seconds after which the energy of a window is asked for


# --- the tools, all of one shape: begin() opens a window, end() closes it, joules(end()) ---------


class Ours:
    """Zeus from this repository."""

    EDGES: dict = {}  # noqa: RUF012  (options of both ends of a window)

    def __init__(self, **_):
        from zeus.monitor import ZeusMonitor

        self.monitor = ZeusMonitor(cpu_indices=[])
        self.begin, self.end = self.named(NAME)

    def named(self, name):
        """What begins and what ends windows of a name."""
        from functools import partial

        begin, end = self.monitor.begin_window, self.monitor.end_window
        return partial(begin, name, **self.EDGES), partial(end, name, **self.EDGES)

    @staticmethod
    def load():
        """Import what measures."""
        from zeus.monitor import ZeusMonitor  # noqa: F401

    @staticmethod
    def joules(measurement):
        """GPU energy of what `end` has returned."""
        return measurement.total_energy

    @staticmethod
    def readings(measurement):
        """Joules of each GPU and by how many they may be off, `None` if the tool does not say."""
        return [(each.energy or 0.0, each.uncertainty) for each in measurement.readings]

    def mean(self, name, _joules):
        """Mean joules of the windows of a name, and by how many they may be off."""
        ask = getattr(self.monitor, "mean_energy", None)
        if ask is None:
            return None
        measurement = ask(name)
        return measurement.total_energy, measurement.uncertainty

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

    EDGES = {"sync_execution": False}  # noqa: RUF012

    def __init__(self, approximate=False, **_):
        from zeus.monitor import ZeusMonitor

        self.monitor = ZeusMonitor(cpu_indices=[], approx_instant_energy=approximate)
        self.begin, self.end = self.named(NAME)

    @staticmethod
    def readings(measurement):
        """Joules of each GPU; it does not say by how many they may be off."""
        return [(joules, None) for joules in measurement.gpu_energy.values()]

    def mean(self, _name, joules):
        """It has none of its own."""
        return sum(joules) / len(joules), None


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

    def named(self, _):
        """What begins and what ends a task; one at a time."""
        return self.begin, self.end

    def readings(self, task):
        """Joules of all GPUs together; it does not say by how many they may be off."""
        return [(self.joules(task), None)]

    def mean(self, _name, joules):
        """It has none of its own."""
        return sum(joules) / len(joules), None

    def begin_background(self):
        """Begin to measure for long: at the given interval, which tasks do not obey."""
        self.tracker = self.fresh()  # one that has run a task would not start
        self.tracker.start()


TOOLS: dict = {"ours": Ours, "zeus": PeerZeus, "codecarbon": CodeCarbon}


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


def under_load(request):
    """Likewise, with a load on all GPUs: sensors that never change may be looked at less."""
    tool, driver = prepared(request)
    load(driver)
    return tool, driver


def load(driver):
    for gpu in range(len(driver)):
        driver.set_wave(gpu, 80.0, 300.0, period=0.073, duty=0.6)


def simulation():
    """The controller of the simulated driver that this process was started with."""
    from simulated_drivers import SimulatedAmdSmi, SimulatedNvml  # beside this copy

    vendor = SimulatedAmdSmi if SimulatedAmdSmi.variable in os.environ else SimulatedNvml
    return vendor.from_environment()


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
    tool, driver = under_load(request)
    driver.set_driver_latency(request["driver_latency"])
    # Before the many windows in a row that no program has, and that a tool may have to digest.
    prices = {
        "later_us": whole_price(tool, request["asked"], LATER),
        "at_once_us": whole_price(tool, request["asked"], 0.0),
    }
    for _ in range(request["warm_up_pairs"]):
        tool.begin()
        tool.end()
    pairs, seconds = timed_pairs(tool, request["pairs"], request["budget"])
    return {
        "pairs": pairs,
        "pair_us": seconds / pairs * 1e6,
        **prices,
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


def whole_price(tool, windows, delay):
    """Mean microseconds that a window and its energy, asked this long after, keep this thread."""
    loop = Loop(tool, delay)
    for _ in range(int(delay / WINDOW) + 1):
        loop.window()
    return sum(loop.window() for _ in range(windows)) / windows * 1e6


class Loop:
    """Windows one after the other, each asked for its energy some seconds later."""

    def __init__(self, tool, delay):
        self.tool, self.delay = tool, delay
        self.unasked = []

    def window(self):
        """One more; the seconds that this thread has spent on measuring meanwhile."""
        clock = time.perf_counter
        beginning = clock()
        self.tool.begin()
        begun = clock()
        time.sleep(WINDOW)
        ending = clock()
        self.unasked.append((ending, self.tool.end()))
        while self.unasked and self.unasked[0][0] + self.delay <= ending:
            self.tool.joules(self.unasked.pop(0)[1])
        return begun - beginning + clock() - ending


# --- background ---------------------------------------------------------------------------------


def measure_background(request):
    """Share of a core that a tool takes while a program does nothing but measure.

    That of its threads and processes, and what the main thread takes beyond that of the same
    program without a tool.
    """
    start, program = BACKGROUND[request["mode"]]
    bare = main_thread_share(program(NoTool), request["settle"])
    tool = start(request)
    work = program(tool)
    work(request["settle"])
    before, started = cpu_seconds(), time.monotonic()
    main = main_thread_share(work, request["seconds"])
    after, wall = cpu_seconds(), time.monotonic() - started
    del tool
    return {
        "core_percent": (sum_of_growth(before, after) / wall - bare) * 100,
        "main_thread_percent": (main - bare) * 100,
        "helper_processes": len(after) - 2,
    }


def main_thread_share(work, seconds):
    spent, started = time.thread_time(), time.monotonic()
    work(seconds)
    return (time.thread_time() - spent) / (time.monotonic() - started)


class NoTool:
    """Measures nothing, for nothing."""

    @staticmethod
    def begin():
        """Begin nothing."""

    end = begin

    @staticmethod
    def joules(_):
        """Tell nothing."""


def one_long_window(request):
    tool, _ = under_load(request)
    tool.begin_background()
    return tool


def power_timeline(request):
    load(simulation())
    return TOOLS[request["tool"]].power_monitor(request["period"])


def sleeping(_):
    return time.sleep


def short_windows(tool):
    loop = Loop(tool, LATER)

    def work(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            loop.window()

    return work


BACKGROUND = {
    "window": (one_long_window, sleeping),
    "power": (power_timeline, sleeping),
    "short": (lambda request: under_load(request)[0], short_windows),
}


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


# --- holds --------------------------------------------------------------------------------------


def measure_holds(request):
    """Median microseconds of setting a clock: by the driver, in a thread, and under a hold."""
    import pynvml

    from zeus.device import get_gpus

    simulation().set_driver_latency(request["driver_latency"])
    gpu = get_gpus()[0]
    highest, *_, lowest = clocks = gpu.supported_clocks().graphics
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def bare(clock):
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, lowest, clock)

    def guarded(clock):
        gpu.apply(lambda: bare(clock))

    with gpu.hold(graphics_clock=(lowest, highest)) as hold:

        def held(clock):
            hold.change(graphics_clock=(lowest, clock))

        seconds: dict = {bare: [], guarded: [], held: []}
        for number in range(request["changes"]):
            for change, taken in seconds.items():  # in turns: a busy machine is busy for all
                started = time.perf_counter()
                change(clocks[number % len(clocks)])
                taken.append(time.perf_counter() - started)
    return {
        f"{change.__name__}_us": sorted(taken)[len(taken) // 2] * 1e6
        for change, taken in seconds.items()
    }


TASKS = {
    "import": measure_import,
    "overhead": measure_overhead,
    "background": measure_background,
    "holds": measure_holds,
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
