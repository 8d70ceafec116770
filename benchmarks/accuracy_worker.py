"""Windows of one tool over loads whose energy is known, in a process of its own.

Called by the harness as ``accuracy_worker.py TASK TOOL OPTIONS`` and answers like `worker.py`,
whose tools it measures.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from typing import Any

from worker import prepared

LEAD = 0.0003  # seconds; about what it takes to tell the driver what to draw
SETTLE = 0.5  # seconds between the last window and the first question about energy
HIGH, LOW, DUTY = 300.0, 80.0, 0.3  # watts of waves, and the share of time at the high ones
PERIODS = 0.005, 2.0  # seconds
WAVES = "waves"

# What happens, in turns: names of the windows that are open, watts (`None` to leave them), and
# bounds of the length, in that of a window.
SCENARIOS: dict[str, list[tuple[tuple[str, ...], Any, tuple[float, float]]]] = {
    "inside": [((), 60.0, (0.5, 2.0)), (("step",), 300.0, (0.8, 1.2))],
    "alternating": [(("one",), 150.0, (0.8, 1.2)), (("other",), 300.0, (0.8, 1.2))],
    "steps": [
        (("forward",), 250.0, (0.8, 1.2)),
        (("backward",), 320.0, (0.8, 1.2)),
        (("update",), 120.0, (0.8, 1.2)),
    ],
    "nested": [
        (("outer",), 150.0, (0.32, 0.48)),
        (("outer", "inner"), 320.0, (0.8, 1.2)),
        (("outer",), 150.0, (0.32, 0.48)),
        ((), 60.0, (0.64, 0.96)),
    ],
    "periodic": [((), WAVES, (0.0, 0.0)), (("long",), None, (0.8, 1.2))],
}


def measure_accuracy(request):
    """Readings of windows as [error, stated uncertainty, whether it covers, whether it is 0 J].

    Errors and uncertainties are shares of the truth: what the GPU drew, times the counter's gain,
    because an error of calibration cannot be seen from inside. The first quarter of the windows is
    for learning and does not count. Of a name's mean, over all windows: [estimate, truth, stated].
    """
    run = Run(request)
    run.go_on(request["seconds"])
    time.sleep(SETTLE)
    readings = [run.tool.readings(window.ended) for window in run.windows]
    counted = list(zip(run.windows, readings, strict=True))[len(readings) // 4 :]
    judged = [
        judgement(truths, *reading)
        for window, given in counted
        for truths, reading in zip(window.truths, given, strict=True)
    ]
    return {"windows": judged, "mean": mean(run, readings)}


def judgement(truths, joules, uncertainty):
    off = min(abs(joules - truth) for truth in truths)
    truth = truths[1]
    stated = None if uncertainty is None else uncertainty / truth
    return [off / truth, stated, uncertainty is not None and off <= uncertainty, joules <= 0]


def mean(run, readings):
    """Of the windows that ended last; `None` from a tool that cannot tell."""
    name = run.windows[-1].name
    alike = [pair for pair in zip(run.windows, readings, strict=True) if pair[0].name == name]
    found = run.tool.mean(name, [sum(joules for joules, _ in given) for _, given in alike])
    truth = statistics.fmean(sum(each[1] for each in window.truths) for window, _ in alike)
    return None if found is None else [found[0], truth, found[1]]


class Window:
    """A window from its beginning on."""

    def __init__(self, name, begin, end):
        self.name, self.end = name, end
        self.ended: Any = None
        self.spans: tuple[tuple[float, float], ...] = ()
        self.truths: Any = ()
        self.beginning = time.monotonic()
        begin()
        self.begun = time.monotonic()

    def close(self):
        """End it.

        A tool takes its instants somewhere within the calls of begin and end, and on a busy machine
        a call may be interrupted. So of the windows between the instants before, in the middle of
        and after the two calls, the one that is kindest to the tool will count.
        """
        ending = time.monotonic()
        self.ended = self.end()
        over = time.monotonic()
        middle = (self.beginning + self.begun) / 2, (ending + over) / 2
        self.spans = (self.beginning, ending), middle, (self.begun, over)


class Run:
    """One tool, loads and windows one after the other."""

    def __init__(self, request):
        self.tool, self.driver = prepared(request)
        self.gpus = range(len(self.driver))
        self.scenario, self.length = SCENARIOS[request["scenario"]], request["length"]
        self.chance = random.Random(request["chance"])
        self.wait = spin if request.get("spin") else time.sleep
        self.windows = []
        self._open = {}
        self._untold = []  # windows whose true energy is still to be looked up

    def go_on(self, seconds):
        """Go through the scenario for so long, and to its end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for names, watts, (least, most) in self.scenario:
                self.pass_over(names, watts)
                if watts == WAVES:
                    self.make_waves()
                self.look_up()
                self.wait(self.length * self.chance.uniform(least, most))
        self.pass_over((), 60.0)
        self.look_up()

    def pass_over(self, names, watts):
        """Change what is drawn, and with it at once the windows that are open."""
        if watts not in (None, WAVES):
            instants = [self.driver.set_power(gpu, watts, LEAD) for gpu in self.gpus]
            spin(instants[-1] - time.monotonic())
        for name in [name for name in reversed(self._open) if name not in names]:
            window = self._open.pop(name)
            window.close()
            self._untold.append(window)
        for name in names:
            if name not in self._open:
                self._open[name] = Window(name, *self.tool.named(name))

    def make_waves(self):
        """Loads of any period, at any phase of them."""
        periods = [
            PERIODS[0] * (PERIODS[1] / PERIODS[0]) ** self.chance.random() for _ in self.gpus
        ]
        for gpu, period in zip(self.gpus, periods, strict=True):
            self.driver.set_wave(gpu, LOW, HIGH, period, DUTY)
        self.wait(self.chance.uniform(0, max(periods)))

    def look_up(self):
        """True energies of windows; not at their ends, where it would come between them."""
        for window in self._untold:
            window.truths = [
                [self.driver.counted_energy(gpu, *span) for span in window.spans]
                for gpu in self.gpus
            ]
            self.windows.append(window)
        self._untold.clear()


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def main():
    _, tool, options = sys.argv[1:]
    print(json.dumps(measure_accuracy({"tool": tool} | json.loads(options))))


if __name__ == "__main__":
    main()
