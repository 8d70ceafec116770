"""One background sampler per node, for everything that looks at devices again and again.

In real time it is one thread that reads every channel when it is due, keeps its own use of the
processor under a bound, and rests while nobody measures. A driver call that hangs costs the channel
it belongs to: a watchdog leaves the stuck thread behind and goes on with a new one. In virtual time
the clock fires it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from zeus.clock import Runner, every
from zeus.errors import CapabilityError, Reason
from zeus.monitor.edges import WindowEdges
from zeus.monitor.feed import HANG_TIMEOUT, Feed, Feeds
from zeus.monitor.track import HORIZON

if TYPE_CHECKING:
    from zeus.device import Node

logger = logging.getLogger(__name__)

_BUSY_BOUND = 0.007  # share of a core; looks become rarer above it
_HURRY = 1e-3  # seconds after a window's beginning at which to look: load sets in first
_HURRY_PAUSE = 0.003  # seconds; windows that follow each other faster share their looks
_TOGETHER = 0.002  # seconds; what is due this soon is read in the same go


class Channel(Protocol):
    """Something to look at again and again."""

    due: float
    thrift: float
    trouble: CapabilityError | None
    #: Whether a window is only settled once this was looked at after its end.
    settles: bool

    def look(self) -> None:
        """Look once and move `due`."""

    def hurry(self, due: float) -> None:
        """Look at this instant already, if that makes sense for the channel."""

    def forget(self, before: float) -> None:
        """Drop what was seen before an instant."""


class Client(Protocol):
    """Somebody who wants channels looked at while he is busy."""

    def channels_wanted(self, now: float) -> tuple[Channel, ...]:
        """The channels to look at now; empty while at rest."""

    def housekeeping(self, now: float) -> None:
        """Called about once a second, while any client is busy."""


class Sampler:
    """Looks at the channels that clients want. One per node."""

    def __init__(self, node: Node) -> None:
        self._clock = node.clock
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        #: The looks at GPUs' energy, shared by all monitors.
        self.edges = WindowEdges()
        self.feeds = Feeds(node.clock, self.edges)
        self._runner: Runner | None = None
        self._watchdog: Runner | None = None
        self._round_ended = threading.Condition()
        self._round_begun_at = -math.inf
        self._reading: Channel | None = None
        self._reading_since = math.inf
        self._stuck: set[int] = set()
        self._wanted: tuple[Channel, ...] = ()
        self._generation = 0
        self._next_housekeeping = -math.inf
        self._keeping_house: int | None = None  # the thread that does, while it does
        self._look_now = False
        self._hurried_at = -math.inf
        self._thrift = 1.0
        self.resting = True
        self._busy_mark = (0.0, 0.0)
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            reference = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forget_thread(reference))

    def join(self, client: Client) -> None:
        """Let a client's channels be looked at."""
        self._clients.add(client)

    def leave(self, client: Client) -> None:
        """Stop looking for a client."""
        self._clients.discard(client)
        if not self._clients:
            self.stop()

    def wake(self) -> None:
        """A client became busy: look at its channels at once."""
        with self._lock:
            self.resting = False
            self._look_now = True
            if self._runner is None:
                self._generation += 1
                self._runner = self._clock.run(_Loop(self, self._generation), "zeus-sampler")
                if not self._clock.virtual:
                    watch = every(HANG_TIMEOUT / 3, self._watch, self._clock)
                    self._watchdog = self._clock.run(watch, "zeus-watchdog")
            else:
                self._runner.wake()

    def look_soon(self, now: float) -> None:
        """A window begins: look right after, so that even a short one is seen from inside."""
        if self.resting:
            self.wake()
        if self.feeds.followed:
            self.feeds.window_begins(now)
        elif now - self._hurried_at > _HURRY_PAUSE * self._thrift and self._runner is not None:
            self._hurried_at = now
            for channel in self._wanted:
                channel.hurry(now + _HURRY)
            self._runner.wake()

    def stop(self) -> None:
        """End the threads. A later `wake` starts anew."""
        with self._lock:
            runner, self._runner = self._runner, None
            watchdog, self._watchdog = self._watchdog, None
            self._generation += 1
            self.resting = True
            self._wanted = ()
        for thread in (watchdog, runner):
            if thread is not None:
                thread.stop()
        self.feeds.end()

    def settle(self, instant: float, timeout: float = HANG_TIMEOUT) -> None:
        """Wait until everything has been looked at once after an instant (or that proves vain)."""
        if self._round_begun_at >= instant:
            return
        if threading.get_ident() == self._keeping_house:
            return  # only for windows of some while ago; and this thread would wait for itself
        if self._clock.virtual:
            self._round(self._generation, everything=True)
            return
        asked_at = self._clock.now()
        if self.feeds.settle(timeout) and not any(
            channel.settles and not isinstance(channel, Feed) for channel in self._wanted
        ):
            self._round_begun_at = asked_at
            return
        self.wake()
        with self._round_ended:
            self._round_ended.wait_for(lambda: self._round_begun_at >= instant, timeout)

    # --- the loop's side --------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When to read next; `None` to rest."""
        if self._look_now:
            return self._clock.now()
        # What hangs is not waited for; it would be due for ever.
        return min((c.due for c in self._wanted if id(c) not in self._stuck), default=None)

    def _round(self, generation: int, *, everything: bool = False) -> None:
        begun = self._clock.now()
        # Asked first, so that a request that comes during this round causes another.
        everything = everything or self._look_now
        self._look_now = False
        self._wanted = self._collect(begun)
        if not self._wanted and not everything:
            # Say so first and ask again: whoever became busy in between sees one or the other.
            self.resting = True
            self._wanted = self._collect(begun)
            if not self._wanted:
                return
            self.resting = False
        limit = math.inf if everything else begun + _TOGETHER
        for channel in self._wanted:
            if channel.due > limit or id(channel) in self._stuck:
                continue
            self._reading, self._reading_since = channel, begun
            channel.look()
            if generation != self._generation:
                # This thread was given up on while the look hung; it came back after all.
                self._stuck.discard(id(channel))
                return
        self._reading_since = math.inf
        if everything:
            with self._round_ended:
                self._round_begun_at = begun
                self._round_ended.notify_all()
        if begun >= self._next_housekeeping:
            self._next_housekeeping = begun + 1.0
            self._keeping_house = threading.get_ident()
            try:
                self._housekeeping(begun)
            finally:
                self._keeping_house = None

    def _collect(self, now: float) -> tuple[Channel, ...]:
        wanted: dict[int, Channel] = {}
        for client in list(self._clients):
            for channel in client.channels_wanted(now):
                wanted[id(channel)] = channel
        for channel in wanted.values():
            if math.isinf(channel.due):
                channel.due = now
        # Whoever rests is looked at afresh when wanted again.
        for channel in self._wanted:
            if id(channel) not in wanted:
                channel.due = math.inf
        return tuple(wanted.values())

    def _housekeeping(self, now: float) -> None:
        for client in list(self._clients):
            client.housekeeping(now)
        if self._wanted:
            self.feeds.watch(now)
        # Only after the clients have saved what they need of it.
        for channel in self._wanted:
            channel.forget(now - HORIZON)
        self.edges.forget(now - HORIZON)
        if self._clock.virtual:
            return
        wall, processor = now, time.thread_time()
        past_wall, past_processor = self._busy_mark
        self._busy_mark = (wall, processor)
        if not 0 < wall - past_wall < 10 or processor < past_processor:
            return
        busy = (processor - past_processor) / (wall - past_wall)
        factor = 1.3 if busy > _BUSY_BOUND else 0.9 if busy < 0.7 * _BUSY_BOUND else 1.0
        self._thrift = min(max(1.0, self._thrift * factor), 20.0)
        for channel in self._wanted:
            channel.thrift = self._thrift

    def _watch(self) -> None:
        channel, since = self._reading, self._reading_since
        if channel is None or self._clock.now() - since < HANG_TIMEOUT:
            return
        with self._lock:
            if self._runner is None:
                return
            self._stuck.add(id(channel))
            channel.trouble = CapabilityError(
                Reason.HANGS, f"a driver call did not return within {HANG_TIMEOUT:g} s"
            )
            logger.error("%s; going on without that device", channel.trouble)
            self._reading_since = math.inf
            self._generation += 1
            self._look_now = True
            # The old thread is a daemon stuck in the driver: it cannot be ended, only left.
            self._runner.stop(wait=False)
            self._runner = self._clock.run(_Loop(self, self._generation), "zeus-sampler")

    def forget_thread(self) -> None:
        """In a forked child: there is no thread, whatever the fields say."""
        self._runner = self._watchdog = None
        self._keeping_house = None
        self._lock = threading.RLock()
        self._round_ended = threading.Condition()
        self.resting = True
        self._reading_since = math.inf
        self.edges.reset_after_fork()
        self.feeds.forget_helper()

    def fire(self, generation: int) -> None:
        """One round, if this loop is still the one in charge."""
        if generation == self._generation:
            self._round(generation)


class _Loop:
    """An alarm for one life of the sampler."""

    def __init__(self, sampler: Sampler, generation: int) -> None:
        self._sampler = sampler
        self._generation = generation

    def due(self) -> float | None:
        return self._sampler.next_due()

    def fire(self) -> None:
        self._sampler.fire(self._generation)


def _forget_thread(reference: Callable[[], Sampler | None]) -> None:
    sampler = reference()
    if sampler is not None:
        sampler.forget_thread()


_samplers: weakref.WeakKeyDictionary[Node, Sampler] = weakref.WeakKeyDictionary()
_samplers_lock = threading.Lock()


def sampler_of(node: Node) -> Sampler:
    """The one sampler of a node."""
    with _samplers_lock:
        if node not in _samplers:
            _samplers[node] = Sampler(node)
        return _samplers[node]
