"""The helper process that looks at GPUs.

A Python thread next to a busy training loop waits for the interpreter at every driver call, and
makes the loop wait in turn. So the looking is done by a small process of its own: it opens the
driver, looks at the counters when asked, and writes what it sees into shared memory. It runs this
module only, never the user's program, and ends with its parent.
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
from zeus.device.node import find_drivers
from zeus.monitor.looks import Look, Senses
from zeus.monitor.ring import SharedLooks, Slot, State
from zeus.monitor.track import HORIZON, EnergyTrack
from zeus.monitor.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOGETHER = 0.5  # of its pause: who is due this soon is read in the same go; waking costs most
_EARLY = 1e-4  # seconds by which a look may come too early; timers are no finer
_LONGEST_REST = 5.0  # seconds between looks at whether the parent still lives
_BUSY_BOUND = 0.007  # share of a core; looks become rarer above it


class Follower:
    """Looks at GPUs for the parent process."""

    def __init__(self, memory: SharedLooks, keys: Sequence[str], requests: int) -> None:
        self._memory = memory
        self._front = memory.front
        self._requests = requests
        self._parent = os.getppid()
        self._clock = MonotonicClock()
        self._told: list[Senses | None] = [None] * len(keys)
        drivers = find_drivers()
        self._watchers: list[tuple[int, Watcher]] = []
        for number, key in enumerate(keys):
            if key not in drivers:
                continue
            track = EnergyTrack()
            self._watchers.append(
                (number, Watcher(drivers[key], track, self._clock, self._teller(number)))
            )
        self._thrift_mark = (self._clock.now(), time.process_time())

    def _teller(self, number: int) -> Callable[[Look | None, Senses], None]:
        def tell(look: Look | None, senses: Senses) -> None:
            self._memory.tell(number, look, senses, self._told[number])
            self._told[number] = senses

        return tell

    def run(self) -> None:
        """Look until the parent is gone."""
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        self._front[Slot.STATE] = State.READY
        while True:
            if poll.poll(self._pause()) and not os.read(self._requests, 4096):
                return
            if os.getppid() != self._parent:
                return
            self._round()

    def _pause(self) -> float:
        """Milliseconds until the next look."""
        now = self._clock.now()
        due = now + _LONGEST_REST
        if now <= self._front[Slot.ACTIVE_UNTIL]:
            due = min((watcher.due for _, watcher in self._watchers), default=due)
        self._front[Slot.NEXT_LOOK] = due
        return max(0.0, min(due - now, _LONGEST_REST)) * 1e3

    def _round(self) -> None:
        front = self._front
        now = self._clock.now()
        wanted = front[Slot.WANTED]
        everything = wanted != front[Slot.ANSWERED]
        if now > front[Slot.ACTIVE_UNTIL] and not everything:
            return
        youngest = front[Slot.YOUNGEST]
        for _, watcher in self._watchers:
            if youngest > watcher.youngest:
                watcher.hurry(youngest)
            elif watcher.due > now + _LONGEST_REST:
                watcher.due = now  # it has been at rest
        if not everything and all(watcher.due > now + _EARLY for _, watcher in self._watchers):
            return  # woken to hear of a window, not to look yet
        for number, watcher in self._watchers:
            if everything or watcher.due <= now + watcher.pause * _TOGETHER:
                front[Slot.READING_SINCE] = now
                front[Slot.READING] = number
                watcher.look()
        front[Slot.READING] = -1
        if everything:
            front[Slot.ANSWERED] = wanted
        self._housekeeping(now)

    def _housekeeping(self, now: float) -> None:
        began, busy = self._thrift_mark
        if now - began < 1.0:
            return
        spent = time.process_time()
        share = (spent - busy) / (now - began)
        self._thrift_mark = (now, spent)
        factor = 1.25 if share > _BUSY_BOUND else 0.9 if share < 0.7 * _BUSY_BOUND else 1.0
        for _, watcher in self._watchers:
            watcher.thrift = min(max(1.0, watcher.thrift * factor), 8.0)
            watcher.forget(now - HORIZON)


def main() -> None:
    """Run the helper: descriptor of the memory, descriptor of the requests, keys of the GPUs."""
    memory_descriptor, requests, *keys = sys.argv[2:]
    # A Ctrl-C at the terminal is meant for the parent; its end is noticed by the pipe's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Looking makes no cycles; the collector would only cost time and wake cold memory.
    gc.disable()
    memory = SharedLooks(len(keys), int(memory_descriptor))
    try:
        follower = Follower(memory, keys, int(requests))
    except Exception:
        memory.front[Slot.STATE] = State.FAILED
        raise
    with suppress(BrokenPipeError):
        follower.run()
