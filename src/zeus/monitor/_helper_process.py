"""The helper process that polls GPUs.

A Python thread next to a busy training loop waits for the GIL at every driver call, and makes the
loop wait in turn. So polling runs in a small separate process: it opens the driver, polls the
sensors on request, and writes the samples into shared memory. It runs this module only, never the
user's program, and exits with its parent.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from zeus.clock import MonotonicClock
from zeus.device._node import find_drivers
from zeus.monitor._pacing import HOUSEKEEPING_PERIOD, Governor
from zeus.monitor._poller import GpuPoller
from zeus.monitor._sample_ring import SampleRing, Slot, State

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOGETHER = 1e-3  # seconds; GPUs due this soon are read in the same round, as waking up costs most
_LONGEST_PAUSE = 5.0  # seconds between checks that the parent is still alive


class HelperProcess:
    """Polls GPUs for the parent process."""

    def __init__(self, ring: SampleRing, keys: Sequence[str], requests: int) -> None:
        self._front = ring.front
        self._requests = requests
        self._parent = os.getppid()
        self._clock = MonotonicClock()
        drivers = find_drivers()
        self._pollers = [
            (number, GpuPoller(drivers[key], self._clock, ring.writer(number)))
            for number, key in enumerate(keys)
            if key in drivers
        ]
        self._governor = Governor(time.process_time)
        self._next_housekeeping = self._clock.now()

    def run(self) -> None:
        """Poll until the parent exits."""
        wakes = select.poll()
        wakes.register(self._requests, select.POLLIN)
        self._front[Slot.STATE] = State.READY
        while True:
            if wakes.poll(self._pause()) and not os.read(self._requests, 4096):
                return
            if os.getppid() != self._parent:
                return
            self._round()

    def _pause(self) -> float:
        """Return the milliseconds until the next poll."""
        now = self._clock.now()
        due = now + _LONGEST_PAUSE
        active = now <= self._front[Slot.ACTIVE_UNTIL]
        if active:
            # As late as possible: waking up costs most, and more GPUs are due by then.
            due = min((poller.deadline for _, poller in self._pollers), default=due)
        latched = active and all(poller.latched for _, poller in self._pollers)
        self._front[Slot.NEXT_POLL] = now if latched else due
        return max(0.0, min(due - now, _LONGEST_PAUSE)) * 1e3

    def _round(self) -> None:
        front = self._front
        now = self._clock.now()
        if now > front[Slot.ACTIVE_UNTIL]:
            return
        youngest = front[Slot.YOUNGEST]
        for _, poller in self._pollers:
            if youngest > poller.youngest:
                poller.expedite(youngest)
            if poller.due > now + _LONGEST_PAUSE:
                poller.due = poller.deadline = now  # it was idle
        for number, poller in self._pollers:
            if poller.due <= now + _TOGETHER:
                front[Slot.READING_SINCE] = now
                front[Slot.READING] = number
                poller.poll()
        front[Slot.READING] = -1
        if now >= self._next_housekeeping:
            self._next_housekeeping = now + HOUSEKEEPING_PERIOD
            self._governor.update(now)
            for _, poller in self._pollers:
                poller.backoff = self._governor.backoff


def main() -> None:
    """Run the helper: descriptor of the memory, descriptor of the requests, keys of the GPUs."""
    memory_descriptor, requests, *keys = sys.argv[2:]
    # A Ctrl-C at the terminal is meant for the parent; its exit closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Polling makes no reference cycles; the collector would only cost time and touch cold memory.
    gc.disable()
    ring = SampleRing(len(keys), int(memory_descriptor))
    try:
        helper = HelperProcess(ring, keys, int(requests))
    except Exception:
        ring.front[Slot.STATE] = State.FAILED
        raise
    with suppress(BrokenPipeError):
        helper.run()
