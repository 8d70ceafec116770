"""Where a monitor gets its looks from: the helper process, or this process until that is ready.

In virtual time, and where no helper can be started, the sampler looks by itself. In real time a
helper does, and the sampler only collects what it has seen, about once a second or when somebody
asks. If a driver call hangs in the helper, it is left behind and another goes on without that GPU,
which gets a helper of its own after a pause; the pauses grow as long as its driver hangs.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from zeus.errors import CapabilityError, Reason
from zeus.monitor.answers import EnergyAnswers
from zeus.monitor.edges import WindowEdges
from zeus.monitor.ring import SharedLooks, Slot, State
from zeus.monitor.track import EnergyTrack
from zeus.monitor.watch import Watcher

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from zeus.clock import Clock
    from zeus.device import Gpu

logger = logging.getLogger(__name__)

HANG_TIMEOUT = 3.0
"""Seconds after which a driver call counts as hanging."""

_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0  # seconds until a GPU that hung is tried again
_START_TIMEOUT = 10.0  # seconds in which a helper gets to know its GPUs
_COLLECT_PAUSE = 1.0  # seconds between collecting what the helper has seen
_COMMON_POWER = 400.0  # watts, of a GPU that does not tell its highest limit
_WELL = 10  # looks after which a GPU that hung counts as well
_ACTIVE_AHEAD = 3.0  # seconds for which the helper goes on without being asked again
_SOON = 0.026  # seconds; a look that comes this soon need not be asked for
_KICK_DELAY = 2e-3  # seconds from a window's beginning to the look it causes: load sets in first
_HELPER = "import sys; sys.path.append(sys.argv[1]); from zeus.monitor.follower import main; main()"
HELPER_VARIABLE = "ZEUS_HELPER"
"""Set to 0 to look from a thread of this process instead of from a helper."""


class Feed:
    """The looks at one GPU, wherever they come from. A channel of the sampler."""

    def __init__(self, gpu: Gpu, clock: Clock, edges: WindowEdges) -> None:
        self.gpu = gpu
        period = gpu.driver.meter_period
        self.track: EnergyTrack | EnergyAnswers = (
            EnergyTrack(period, uniform=True)
            if clock.virtual
            else EnergyAnswers(edges, _max_power(gpu), period)
        )
        self.thrift = 1.0
        self.settles = True
        #: Driver calls for this GPU hang: only a helper of its own may look at it, from `retry_at`.
        self.halted = False
        self.retry_at = math.inf
        self.retry_pause = _FIRST_RETRY
        self._clock = clock
        self._watcher = Watcher(gpu.driver, self.track, clock)
        self._helper: Helper | None = None
        self._number = 0
        self._seen = 0
        self._version = 0.0
        self._due = math.inf

    @property
    def due(self) -> float:
        """When to look, or to collect, next."""
        return self._due if self.halted or self._followed() else self._watcher.due

    @due.setter
    def due(self, instant: float) -> None:
        self._due = self._watcher.due = instant

    @property
    def trouble(self) -> CapabilityError | None:
        """What keeps this GPU from being seen."""
        return self._watcher.trouble

    @trouble.setter
    def trouble(self, error: CapabilityError | None) -> None:
        self._watcher.trouble = error

    def follow(self, helper: Helper | None, number: int = 0) -> None:
        """Get the looks from a helper from now on, as soon as it is ready."""
        with self.track.lock:
            self._helper, self._number = helper, number
            self._seen, self._version = 0, 0.0

    def _followed(self) -> bool:
        return self._helper is not None and self._helper.ready()

    def look(self) -> None:
        """Look, or collect."""
        if self.halted and not self._followed():
            self._due = self._clock.now() + _COLLECT_PAUSE
            return
        self._watcher.thrift = self.thrift
        if not self._followed():
            self._watcher.look()
            return
        self.collect()
        self._due = self._clock.now() + _COLLECT_PAUSE

    def collect(self) -> None:
        """Take over what the helper has seen."""
        helper = self._helper
        if helper is None:
            return
        with self.track.lock:
            changed = helper.memory.senses(self._number, self._version)
            if changed is not None:
                self._version, self.track.senses = changed
            for number, look in helper.memory.looks(self._number, self._seen):
                self._seen = number
                self.track.take(look)
            if self._seen > _WELL and self.halted:
                logger.warning("%s answers again", self.gpu)
                self.halted, self.retry_pause = False, _FIRST_RETRY

    def halt(self, error: CapabilityError, now: float) -> None:
        """Its driver hangs: nobody looks at it for a while."""
        self.collect()
        self.follow(None)
        self.halted = True
        self.retry_at = now + self.retry_pause
        self.retry_pause = min(2 * self.retry_pause, _LONGEST_RETRY)
        self.track.senses = self.track.senses._replace(trouble=error)

    def hurry(self, due: float) -> None:
        """A window has begun."""
        if not self._followed():
            self._watcher.hurry(due)

    def forget(self, before: float) -> None:
        """Drop what was seen before an instant."""
        self.track.forget(before)


def _max_power(gpu: Gpu) -> float:
    try:
        return gpu.power_limits().maximum
    except CapabilityError:
        return _COMMON_POWER


class Helper:
    """A running helper process."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        """Start it.

        Raises:
            OSError: If no process can be started.
        """
        import subprocess  # noqa: PLC0415  (not needed before there is a GPU to follow)

        self.feeds = tuple(feeds)
        self._started_at = time.monotonic()
        self.memory = SharedLooks(len(self.feeds))
        self._front = self.memory.front
        self._kicked_at = -math.inf
        read_end, self._requests = os.pipe()
        os.set_blocking(self._requests, False)
        root = str(Path(__file__).resolve().parents[2])
        keys = [feed.gpu.key for feed in self.feeds]
        try:
            # -P keeps the user's folder off the path: a file there may have any name.
            command = [sys.executable, "-P", "-c", _HELPER, root]
            command += [str(self.memory.descriptor), str(read_end), *keys]
            self._process = subprocess.Popen(
                command,
                env={**os.environ, HELPER_VARIABLE: "0"},  # it never starts one in turn
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self.memory.descriptor, read_end),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._requests)
            raise
        finally:
            os.close(read_end)
            self.memory.close_descriptor()
        logger.info("GPU counters are followed by helper process %d", self._process.pid)
        #: Ends the process; at most once, for its descriptor's number may be another's later.
        self.end = weakref.finalize(self, _end, self._process, self._requests, os.getpid())

    def ready(self) -> bool:
        """Whether it looks by now."""
        return self._front[Slot.STATE] == State.READY

    def failed(self) -> bool:
        """Whether it has ended or could not begin."""
        return self._front[Slot.STATE] == State.FAILED or self._process.poll() is not None

    def window_begins(self, now: float) -> None:
        """Say that a window begins, and ask for a look into it unless one is coming anyway."""
        front = self._front
        front[Slot.YOUNGEST] = now + _KICK_DELAY
        if front[Slot.NEXT_LOOK] > now + _SOON and now - self._kicked_at > _SOON:
            # Waking the helper may cost this thread its turn on the processor, which would delay
            # the very work that the window is about: only if nothing would be seen otherwise.
            self._kicked_at = now
            if front[Slot.ACTIVE_UNTIL] < now + 1:
                front[Slot.ACTIVE_UNTIL] = now + _ACTIVE_AHEAD
            self._kick()

    def stay_active(self, now: float) -> None:
        """Ask to go on looking for a while."""
        resting = self._front[Slot.ACTIVE_UNTIL] < now
        self._front[Slot.ACTIVE_UNTIL] = now + _ACTIVE_AHEAD
        if resting:
            self._kick()

    def request_all(self) -> float:
        """Ask to look at everything now; returns the number of the request."""
        number = self._front[Slot.WANTED] + 1
        self._front[Slot.WANTED] = number
        self._kick()
        return number

    def answered(self, number: float) -> bool:
        """Whether a request was carried out."""
        return self._front[Slot.ANSWERED] >= number

    def stuck_feed(self, now: float) -> Feed | None:
        """The GPU whose driver call hangs, if one does."""
        reading = int(self._front[Slot.READING])
        if not self.ready():
            hangs = time.monotonic() - self._started_at > _START_TIMEOUT and len(self.feeds) == 1
            return self.feeds[0] if hangs else None
        if reading < 0:
            return None
        if now - self._front[Slot.READING_SINCE] < HANG_TIMEOUT:
            return None
        return self.feeds[reading]

    def _kick(self) -> None:
        with suppress(OSError):  # full: it will wake anyway; broken: its end is noticed elsewhere
            os.write(self._requests, b".")


def _end(process: subprocess.Popen[bytes], requests: int, owner: int) -> None:
    import subprocess  # noqa: PLC0415

    os.close(requests)
    if os.getpid() != owner:
        return  # a forked child: the process is the parent's
    process.kill()  # it holds nothing that must be put back; a stuck one would not listen
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        # Stuck in the kernel. Somebody must take its exit code one day, or a warning follows.
        threading.Thread(target=process.wait, daemon=True).start()


class Feeds:
    """All feeds of a node, and the helpers behind them: one for all GPUs that never hung."""

    def __init__(self, clock: Clock, edges: WindowEdges) -> None:
        self._clock = clock
        self._edges = edges
        self._feeds: dict[str, Feed] = {}
        self._helpers: tuple[Helper, ...] = ()
        self._lock = threading.RLock()
        self._usable = not clock.virtual and helper_possible()

    def of(self, gpus: Sequence[Gpu]) -> tuple[Feed, ...]:
        """The feeds of these GPUs, shared by all monitors."""
        with self._lock:
            new = [gpu for gpu in gpus if gpu.key not in self._feeds]
            for gpu in new:
                self._feeds[gpu.key] = Feed(gpu, self._clock, self._edges)
            if new:
                self._start([feed for feed in self._feeds.values() if not feed.halted])
            return tuple(self._feeds[gpu.key] for gpu in gpus)

    def _start(self, feeds: Sequence[Feed]) -> None:
        """Give these GPUs a helper of their own, in place of those they had."""
        for helper in self._helpers:
            if not set(helper.feeds).isdisjoint(feeds):
                self._leave(helper)
        if not self._usable or not feeds:
            return
        try:
            helper = Helper(feeds)
        except OSError as error:
            logger.warning("no helper process can be started (%s): looking from a thread", error)
            self._usable = False
            return
        self._helpers += (helper,)
        for number, feed in enumerate(feeds):
            feed.follow(helper, number)

    def _leave(self, helper: Helper) -> None:
        helper.end()
        self._helpers = tuple(each for each in self._helpers if each is not helper)
        for feed in helper.feeds:
            feed.collect()
            feed.follow(None)

    @property
    def followed(self) -> bool:
        """Whether helpers look."""
        return any(helper.ready() for helper in self._helpers)

    def window_begins(self, now: float) -> None:
        """Have the helpers look right after a window's beginning."""
        for helper in self._helpers:
            helper.window_begins(now)

    def watch(self, now: float) -> None:
        """Keep the helpers going, and go on without one that has failed or hangs."""
        with self._lock:
            for helper in self._helpers:
                self._watch(helper, now)
            for feed in self._feeds.values():
                if feed.halted and feed.retry_at <= now:
                    feed.retry_at = math.inf
                    self._start([feed])

    def _watch(self, helper: Helper, now: float) -> None:
        stuck = helper.stuck_feed(now)
        if stuck is not None:
            error = CapabilityError(
                Reason.HANGS, f"a driver call did not return within {HANG_TIMEOUT:g} s"
            )
            logger.error("%s: %s; trying again in %g s", stuck.gpu, error, stuck.retry_pause)
            self._leave(helper)
            stuck.halt(error, now)
            self._start([feed for feed in helper.feeds if feed is not stuck])
        elif helper.failed():
            logger.warning("the helper process has ended: looking from a thread instead")
            self._usable = False
            self._leave(helper)
            for feed in helper.feeds:
                feed.halted = False  # the sampler knows to leave a thread behind that hangs
        else:
            helper.stay_active(now)

    def settle(self, timeout: float) -> bool:
        """Have everything looked at now and collect it.

        Returns:
            Whether helpers did; `False` if the sampler must.
        """
        asked = [(helper, helper.request_all()) for helper in self._helpers if helper.ready()]
        if not asked:
            return False
        deadline = time.monotonic() + timeout
        for helper, number in asked:
            while not helper.answered(number):
                if time.monotonic() > deadline or helper.failed():
                    break
                time.sleep(5e-5)
            for feed in helper.feeds:
                feed.collect()
        return True

    def end(self) -> None:
        """End the helpers. A later use starts others."""
        with self._lock:
            for helper in self._helpers:
                self._leave(helper)
            self._feeds.clear()

    def forget_helper(self) -> None:
        """In a forked child: the helpers are the parent's."""
        self._lock = threading.RLock()
        self._helpers = ()
        for feed in self._feeds.values():
            feed.track.lock = threading.RLock()
            feed.follow(None)
            feed.halted = False
        self._usable = False


def helper_possible() -> bool:
    """Whether this program can start a Python, which a helper is.

    In a frozen application, or one that only embeds Python, `sys.executable` is that application
    (or nothing): to start it would run the user's program again, which would start it again.
    """
    if os.environ.get(HELPER_VARIABLE) == "0" or getattr(sys, "frozen", False):
        return False
    name = Path(sys.executable or "").name.lower()
    return name.startswith(("python", "pypy")) and os.access(sys.executable, os.X_OK)
