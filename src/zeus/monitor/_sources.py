"""Sources of a monitor's samples: the helper process, or this process until that is ready.

In virtual time, and where no helper can be started, the sampler polls by itself. In real time a
helper does, and the sampler only collects its samples, every 0.2 s or on request. If a driver call
hangs in the helper, it is abandoned and another continues without that GPU, which gets a separate
helper after a pause; the pauses grow as long as its driver hangs.
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
from zeus.monitor._edges import WindowEdges
from zeus.monitor._estimator import EnergyEstimator
from zeus.monitor._pacing import COLLECT_PERIOD, HANG_TIMEOUT
from zeus.monitor._poller import GpuPoller
from zeus.monitor._response import load_response, save_response
from zeus.monitor._sample_ring import RingReader, SampleRing, Slot, State

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from zeus.clock import Clock
    from zeus.device import Gpu

logger = logging.getLogger(__name__)

_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0  # seconds until a GPU that hung is tried again
_START_TIMEOUT = 10.0  # seconds for a helper to initialize its GPUs
_COMMON_POWER = 400.0  # watts, for a GPU that does not report its highest limit
_RECOVERED = 10  # refreshes after which a GPU that hung counts as recovered
_ACTIVE_AHEAD = 3.0  # seconds for which the helper continues without another request
_SOON = 0.026  # seconds; a poll due this soon need not be requested
_POLL_DELAY = 2e-3  # seconds from a window's beginning to the poll it causes: load sets in first
_HELPER = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from zeus.monitor._helper_process import main; main()"
)
HELPER_VARIABLE = "ZEUS_HELPER"
"""Set to 0 to poll from a thread of this process instead of from a helper."""


class SampleSource:
    """The samples of one GPU, from the helper or a poller: a channel with its estimator."""

    def __init__(self, gpu: Gpu, clock: Clock, edges: WindowEdges) -> None:
        self.gpu = gpu
        response = load_response(gpu)
        self.estimator = EnergyEstimator(edges, _max_power(gpu), response)
        self._kept = response.kept()
        #: Driver calls for this GPU hang: only a separate helper polls it, from `retry_at` on.
        self.halted = False
        self.retry_at = math.inf
        self.retry_pause = _FIRST_RETRY
        self._clock = clock
        self._poller = GpuPoller(gpu, clock, self.estimator)
        self._helper: Helper | None = None
        self._reader: RingReader | None = None
        self._due = math.inf

    @property
    def due(self) -> float:
        """When to poll, or to collect samples, next."""
        return self._due if self.halted or self._followed() else self._poller.due

    @due.setter
    def due(self, instant: float) -> None:
        self._due = self._poller.due = instant

    @property
    def backoff(self) -> float:
        """Factor of the time between polls."""
        return self._poller.backoff

    @backoff.setter
    def backoff(self, backoff: float) -> None:
        self._poller.backoff = backoff

    def follow(self, helper: Helper | None, number: int = 0) -> None:
        """Collect samples from a helper as soon as it is ready; `None` to poll in this process."""
        with self.estimator.lock:
            self._helper = helper
            self._reader = None if helper is None else helper.ring.reader(number, self.estimator)

    def _followed(self) -> bool:
        return self._helper is not None and self._helper.ready()

    def poll(self) -> None:
        """Poll, or collect the helper's samples."""
        if not self.halted and not self._followed():
            self._poller.poll()
            return
        self.collect()
        # All at the same time: waking up costs most.
        self._due = (math.floor(self._clock.now() / COLLECT_PERIOD) + 1) * COLLECT_PERIOD

    def catch_up(self) -> None:
        """Get the latest samples, without waiting for a helper."""
        if self.halted or self._followed():
            self.collect()
        elif self._clock.virtual and self.estimator.status.counter:
            # A poll of power alone would show the power after the window that ends now.
            self._poller.poll()

    def collect(self) -> None:
        """Collect the helper's samples."""
        with self.estimator.lock:
            if self._reader is None:
                return
            self._reader.forward()
            if self.halted and self._reader.read > _RECOVERED:
                logger.warning("%s responds again", self.gpu)
                self.halted, self.retry_pause = False, _FIRST_RETRY

    def halt(self, error: CapabilityError, now: float) -> None:
        """Stop polling for a while, because the driver hangs."""
        self.collect()
        self.follow(None)
        self.halted = True
        self.retry_at = now + self.retry_pause
        self.retry_pause = min(2 * self.retry_pause, _LONGEST_RETRY)
        self.estimator.take_status(self.estimator.status._replace(trouble=error))

    def expedite(self, due: float) -> None:
        """Poll no later than this instant, because a window has begun."""
        if not self._followed():
            self._poller.expedite(due)

    def forget(self, before: float) -> None:
        """Drop samples older than an instant."""
        self.estimator.forget(before)

    def keep_response(self) -> None:
        """Store the learned response of the power meter for later runs."""
        kept = self.estimator.response.kept()
        if kept not in (None, self._kept):
            self._kept = kept
            save_response(self.gpu, kept)


def _max_power(gpu: Gpu) -> float:
    try:
        return gpu.power_limits().maximum
    except CapabilityError:
        return _COMMON_POWER


class Helper:
    """A running helper process."""

    def __init__(self, sources: Sequence[SampleSource]) -> None:
        """Start the process; raise `OSError` if no process can be started."""
        import subprocess  # noqa: PLC0415  (not needed before there is a GPU to poll)

        self.sources = tuple(sources)
        self._started_at = time.monotonic()
        self.ring = SampleRing(len(self.sources))
        self._front = self.ring.front
        self._woken_at = -math.inf
        read_end, self._requests = os.pipe()
        os.set_blocking(self._requests, False)
        root = str(Path(__file__).resolve().parents[2])
        keys = [source.gpu.key for source in self.sources]
        try:
            # -P keeps the working directory off the path: files there may shadow modules.
            command = [sys.executable, "-P", "-c", _HELPER, root]
            command += [str(self.ring.descriptor), str(read_end), *keys]
            self._process = subprocess.Popen(
                command,
                env={**os.environ, HELPER_VARIABLE: "0"},  # it never starts a helper itself
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self.ring.descriptor, read_end),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._requests)
            raise
        finally:
            os.close(read_end)
            self.ring.close_descriptor()
        logger.info("GPU counters are polled by helper process %d", self._process.pid)
        #: Ends the process; at most once, as its descriptor's number may be reused later.
        self.end = weakref.finalize(self, _end, self._process, self._requests, os.getpid())

    def ready(self) -> bool:
        """Return whether it polls already."""
        return self._front[Slot.STATE] == State.READY

    def failed(self) -> bool:
        """Return whether it has exited or could not start."""
        return self._front[Slot.STATE] == State.FAILED or self._process.poll() is not None

    def window_begins(self, now: float) -> None:
        """Announce a new window, and request a poll inside it unless one is due anyway."""
        front = self._front
        front[Slot.YOUNGEST] = now + _POLL_DELAY
        if front[Slot.NEXT_POLL] > now + _SOON and now - self._woken_at > _SOON:
            # Waking the helper may preempt this thread, which would delay the measured work
            # itself: only if there would be no sample otherwise.
            self._woken_at = now
            if front[Slot.ACTIVE_UNTIL] < now + 1:
                front[Slot.ACTIVE_UNTIL] = now + _ACTIVE_AHEAD
            self._wake()

    def stay_active(self, now: float) -> None:
        """Ask the helper to keep polling for a while."""
        idle = self._front[Slot.ACTIVE_UNTIL] < now
        self._front[Slot.ACTIVE_UNTIL] = now + _ACTIVE_AHEAD
        if idle:
            self._wake()

    def stuck_source(self, now: float) -> SampleSource | None:
        """Return the GPU whose driver call hangs, if one does."""
        reading = int(self._front[Slot.READING])
        if not self.ready():
            hangs = time.monotonic() - self._started_at > _START_TIMEOUT and len(self.sources) == 1
            return self.sources[0] if hangs else None
        if reading < 0 or now - self._front[Slot.READING_SINCE] < HANG_TIMEOUT:
            return None
        return self.sources[reading]

    def _wake(self) -> None:
        with suppress(OSError):  # full: it wakes anyway; broken: its exit is noticed elsewhere
            os.write(self._requests, b".")


def _end(process: subprocess.Popen[bytes], requests: int, owner: int) -> None:
    import subprocess  # noqa: PLC0415

    os.close(requests)
    if os.getpid() != owner:
        return  # a forked child: the process is the parent's
    process.kill()  # it holds no state to restore; a stuck one ignores other signals
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        # Stuck in the kernel. A thread must reap its exit code later, or a warning follows.
        threading.Thread(target=process.wait, daemon=True).start()


class SampleSources:
    """The sources of a node, and their helpers: one for all GPUs that never hung."""

    def __init__(self, clock: Clock, edges: WindowEdges) -> None:
        self._clock = clock
        self._edges = edges
        self._sources: dict[str, SampleSource] = {}
        self._helpers: tuple[Helper, ...] = ()
        self._lock = threading.RLock()
        self._usable = not clock.virtual and helper_possible()

    def of(self, gpus: Sequence[Gpu]) -> tuple[SampleSource, ...]:
        """Return the sources of these GPUs, shared by all monitors."""
        with self._lock:
            new = [gpu for gpu in gpus if gpu.key not in self._sources]
            for gpu in new:
                self._sources[gpu.key] = SampleSource(gpu, self._clock, self._edges)
            if new:
                self._start([each for each in self._sources.values() if not each.halted])
            return tuple(self._sources[gpu.key] for gpu in gpus)

    def _start(self, sources: Sequence[SampleSource]) -> None:
        """Start a helper for these GPUs, in place of their previous ones."""
        for helper in self._helpers:
            if not set(helper.sources).isdisjoint(sources):
                self._leave(helper)
        if not self._usable or not sources:
            return
        try:
            helper = Helper(sources)
        except OSError as error:
            logger.warning("no helper process can be started (%s): polling from a thread", error)
            self._usable = False
            return
        self._helpers += (helper,)
        for number, source in enumerate(sources):
            source.follow(helper, number)

    def _leave(self, helper: Helper) -> None:
        helper.end()
        self._helpers = tuple(each for each in self._helpers if each is not helper)
        for source in helper.sources:
            source.collect()
            source.follow(None)

    @property
    def followed(self) -> bool:
        """Whether a helper polls already."""
        return any(helper.ready() for helper in self._helpers)

    def window_begins(self, now: float) -> None:
        """Have the helpers poll right after a window begins."""
        for helper in self._helpers:
            helper.window_begins(now)

    def check(self, now: float) -> None:
        """Keep the helpers active, and continue without one that has failed or hangs."""
        with self._lock:
            for helper in self._helpers:
                self._check(helper, now)
            for source in self._sources.values():
                source.keep_response()
                if source.halted and source.retry_at <= now:
                    source.retry_at = math.inf
                    self._start([source])

    def _check(self, helper: Helper, now: float) -> None:
        stuck = helper.stuck_source(now)
        if stuck is not None:
            error = CapabilityError(
                Reason.HANGS, f"a driver call did not return within {HANG_TIMEOUT:g} s"
            )
            logger.error("%s: %s; trying again in %g s", stuck.gpu, error, stuck.retry_pause)
            self._leave(helper)
            stuck.halt(error, now)
            self._start([source for source in helper.sources if source is not stuck])
        elif helper.failed():
            logger.warning("the helper process has exited: polling from a thread instead")
            self._usable = False
            self._leave(helper)
            for source in helper.sources:
                source.halted = False  # a thread's calls are guarded
        else:
            helper.stay_active(now)

    def end(self) -> None:
        """End the helpers. A later use starts new ones."""
        with self._lock:
            for helper in self._helpers:
                self._leave(helper)
            for source in self._sources.values():
                source.keep_response()
            self._sources.clear()

    def forget_helper(self) -> None:
        """Reset in a forked child: the helpers belong to the parent."""
        self._lock = threading.RLock()
        self._helpers = ()
        for source in self._sources.values():
            source.estimator.lock = threading.RLock()
            source.follow(None)
            source.halted = False
        self._usable = False


def helper_possible() -> bool:
    """Return whether this program can start a Python interpreter for a helper.

    In a frozen application, or one that only embeds Python, `sys.executable` is that application
    (or nothing): starting it would run the user's program again, and so on without end.
    """
    if os.environ.get(HELPER_VARIABLE) == "0" or getattr(sys, "frozen", False):
        return False
    name = Path(sys.executable or "").name.lower()
    return name.startswith(("python", "pypy")) and os.access(sys.executable, os.X_OK)
