"""One background sampler per node, for everything that is polled repeatedly.

In real time it is one thread that polls every channel when it is due, keeps its CPU time under a
bound, and sleeps while no client measures. Channels access devices through their guards, so that a
hanging driver call becomes an error that affects only its own channel. In virtual time the clock
fires it.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from zeus.clock import Runner
from zeus.monitor._edges import WindowEdges
from zeus.monitor._pacing import HORIZON, HOUSEKEEPING_PERIOD, Governor
from zeus.monitor._sources import SampleSources

if TYPE_CHECKING:
    from zeus.device import Node

_AFTER_BEGIN = 1e-3  # seconds after a window's beginning at which to poll: load sets in first
_BEGIN_PAUSE = 0.003  # seconds; windows that follow each other faster share their polls
_TOGETHER = 0.002  # seconds; channels due this soon are read in the same round


class Channel(Protocol):
    """Something to poll repeatedly."""

    due: float = math.inf
    backoff: float = 1.0

    def poll(self) -> None:
        """Poll once and move `due`."""

    def expedite(self, due: float) -> None:  # noqa: ARG002
        """Poll no later than this instant, if that shows anything new; by default it does not."""
        return

    def forget(self, before: float) -> None:  # noqa: ARG002
        """Drop samples older than an instant, if any are kept."""
        return


class Client(Protocol):
    """A monitor that needs channels polled while it is busy."""

    def channels_wanted(self, now: float) -> tuple[Channel, ...]:
        """Return the channels to poll now; empty while idle."""

    def sampled(self) -> None:
        """Handle a completed round of polls."""
        return

    def housekeeping(self, now: float) -> None:  # noqa: ARG002
        """Do periodic work, about once a second while any client is busy."""
        return


class Sampler:
    """Polls the channels that clients want. One per node."""

    def __init__(self, node: Node) -> None:
        self.edges = WindowEdges()
        self.sources = SampleSources(node.clock, self.edges)
        self.idle = True  # whether no client is measuring
        self._clock = node.clock
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self._governor = Governor(time.thread_time)
        self._runner: Runner | None = None
        self._wanted: tuple[Channel, ...] = ()
        self._next_housekeeping = -math.inf
        self._poll_now = False
        self._expedited_at = -math.inf
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            reference = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forget_thread(reference))

    def join(self, client: Client) -> None:
        """Let a client's channels be polled."""
        self._clients.add(client)

    def leave(self, client: Client) -> None:
        """Stop polling for a client."""
        self._clients.discard(client)
        if not self._clients:
            self.stop()

    def wake(self) -> None:
        """Poll the channels of a client that became busy at once."""
        with self._lock:
            self.idle = False
            self._poll_now = True
            if self._runner is None:
                self._runner = self._clock.run(self, "zeus-sampler")
            else:
                self._runner.wake()

    def window_begins(self, now: float) -> None:
        """Poll right after a window begins, so that even a short window is sampled inside."""
        if self.idle:
            self.wake()
            self._wanted = self._collect(now)  # idle clients now want channels, too
        if self.sources.followed:
            self.sources.window_begins(now)
        elif now - self._expedited_at > _BEGIN_PAUSE * self._governor.backoff:
            self._expedited_at = now
            for channel in self._wanted:
                channel.expedite(now + _AFTER_BEGIN)
            if self._runner is not None:
                self._runner.wake()

    def stop(self) -> None:
        """End the thread. A later `wake` starts another."""
        with self._lock:
            runner, self._runner = self._runner, None
            self.idle = True
            self._wanted = ()
        if runner is not None:
            runner.stop()
        self.sources.end()

    # --- the alarm --------------------------------------------------------------------------------

    def due(self) -> float | None:
        """Return when to poll next; `None` to sleep."""
        if self._poll_now:
            return self._clock.now()
        return min((channel.due for channel in self._wanted), default=None)

    def fire(self) -> None:
        """Poll the channels that are due."""
        begun = self._clock.now()
        everything, self._poll_now = self._poll_now, False
        self._wanted = self._collect(begun)
        if not self._wanted:
            # Set the flag first and check again: a client that became busy in between is caught
            # by one or the other.
            self.idle = True
            self._wanted = self._collect(begun)
            if not self._wanted:
                return
            self.idle = False
        limit = math.inf if everything else begun + _TOGETHER
        for channel in self._wanted:
            if channel.due <= limit:
                channel.poll()
        for client in list(self._clients):
            client.sampled()
        if begun >= self._next_housekeeping:
            self._next_housekeeping = begun + HOUSEKEEPING_PERIOD
            self._housekeeping(begun)

    def _collect(self, now: float) -> tuple[Channel, ...]:
        wanted: dict[int, Channel] = {}
        for client in list(self._clients):
            for channel in client.channels_wanted(now):
                wanted[id(channel)] = channel
        for channel in wanted.values():
            if math.isinf(channel.due):
                channel.due = now
        # Idle channels are polled at once when wanted again.
        for channel in self._wanted:
            if id(channel) not in wanted:
                channel.due = math.inf
        return tuple(wanted.values())

    def _housekeeping(self, now: float) -> None:
        for client in list(self._clients):
            client.housekeeping(now)
        self.sources.check(now)
        # Only after the clients have saved what they need.
        for channel in self._wanted:
            channel.forget(now - HORIZON)
        self.edges.forget(now - HORIZON)
        if not self._clock.virtual:
            self._governor.update(now)
            for channel in self._wanted:
                channel.backoff = self._governor.backoff

    def forget_thread(self) -> None:
        """Reset in a forked child, where the thread does not exist."""
        self._runner = None
        self._lock = threading.RLock()
        self.idle = True
        self.edges.reset_after_fork()
        self.sources.forget_helper()


def _forget_thread(reference: Callable[[], Sampler | None]) -> None:
    sampler = reference()
    if sampler is not None:
        sampler.forget_thread()


_samplers: weakref.WeakKeyDictionary[Node, Sampler] = weakref.WeakKeyDictionary()
_samplers_lock = threading.Lock()


def sampler_of(node: Node) -> Sampler:
    """Return the only sampler of a node."""
    with _samplers_lock:
        if node not in _samplers:
            _samplers[node] = Sampler(node)
        return _samplers[node]
