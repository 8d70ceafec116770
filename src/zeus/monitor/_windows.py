"""Measurement windows: the time and energy of any section of code.

Beginning or ending a window reads the clock and never waits for a GPU driver: one background
sampler polls the GPUs' sensors. A window's energies are final once the counter has ticked after its
end, at most 0.1 s later on all known GPUs; read before, they are returned at once, with a larger
uncertainty.
"""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.errors import WindowError
from zeus.monitor import _ranks as ranks
from zeus.monitor._host import HostMeter, HostSnapshot
from zeus.monitor._means import EnergyMeans
from zeus.monitor._measurement import GPU, Measurement, Reading
from zeus.monitor._pacing import HANG_TIMEOUT, HORIZON
from zeus.monitor._sampler import sampler_of
from zeus.monitor._samples import Energy
from zeus.monitor._scopes import ScopeMonitor
from zeus.monitor._sync import synchronizer

if TYPE_CHECKING:
    from zeus.device._node import Node
    from zeus.monitor._levels import Integral
    from zeus.monitor._log import WindowLog
    from zeus.monitor._requests import RequestMonitor
    from zeus.monitor._sampler import Channel

logger = logging.getLogger(__name__)

_LINGER = 1.0  # seconds to keep polling after the last window: the next is often near
_CHECKPOINT_AFTER = HORIZON / 3  # seconds; longer windows keep a checkpoint
_MAX_AT_ONCE = 200  # windows that are computed in one round, unless they get old
_OLD = 5.0  # seconds after its end
_LONGEST_TICK = 0.3  # seconds to wait for the tick that makes the last windows final
_SETTLE_PAUSE = 0.005  # seconds between checking whether energies are final
_FIRST_POLL_PAUSE = 1e-3  # seconds between checks for the first poll


class _Window:
    """A window from its beginning to its measurement."""

    __slots__ = (
        "begin", "checkpoints", "counted", "end", "host", "host_readings", "name", "provisional",
        "readings",
    )  # fmt: skip

    def __init__(self, name: str, begin: float, host: HostSnapshot | None) -> None:
        self.name = name
        self.begin = begin
        self.end = math.nan
        self.host = host
        self.host_readings: tuple[Reading, ...] = ()
        #: Whether it counts for the log and for means.
        self.counted = True
        #: Its checkpoint for each GPU, by index, once it is old.
        self.checkpoints: dict[int, Any] = {}
        #: Its readings once they are final; before, `provisional` has the last ticks and readings.
        self.readings: tuple[Reading, ...] | None = None
        self.provisional: tuple[float, tuple[Reading, ...]] | None = None


class ZeusMonitor(ScopeMonitor):
    """Measures windows on this machine's GPUs, CPUs and memory.

    Windows may nest and overlap, and may be begun and ended from any thread.

    The sensors of GPUs are refreshed every 20 to 100 ms. Power in between is estimated from the
    edges of windows and the energies of other windows of the same name; each energy states its
    uncertainty. The mean of many short windows (`mean_energy`) is more accurate than each of them.

    Args:
        gpu_indices: GPUs to measure, numbered as frameworks do. By default all that are visible;
            in a process started by a launcher with one rank per GPU, this rank's GPU.
        cpu_indices: CPU packages to measure. By default all; under a launcher only in the first
            rank of a node.
        approx_instant_energy: Accepted for compatibility. Energies are returned at once in any
            case, and are never 0 because the counter has not ticked.
        log_file: CSV file to which every window is appended.
        sync_execution_with: Framework to synchronize at both ends of a window: "torch", "jax",
            "cupy", "auto" for those the program has imported, `None` for none.
        node: Measure on this node, for instance a simulated one, instead of this machine.

    Raises:
        ValueError: If an index names no device, or the log file is another monitor's.
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        approx_instant_energy: bool = False,
        log_file: str | Path | None = None,
        sync_execution_with: str | None = "auto",
        *,
        node: Node | None = None,
    ) -> None:
        from zeus.device._node import current_node  # noqa: PLC0415  (devices are not needed before)
        from zeus.state._files import job_wide  # noqa: PLC0415

        self.approx_instant_energy = approx_instant_energy
        self.node = node or current_node()
        if gpu_indices is None:
            gpu_indices = ranks.own_gpus(len(self.node.gpus))
        else:
            ranks.warn_if_shared(gpu_indices, len(self.node.gpus))
        self.gpus = self.node.gpus.select(gpu_indices)
        self.gpu_indices = [gpu.index for gpu in self.gpus]
        self._keys = [job_wide(gpu.key) for gpu in self.gpus]
        measures_host = cpu_indices is not None or ranks.owns_host()
        self._host = HostMeter(self.node, cpu_indices) if measures_host else None
        if self._host is not None and self._host.empty:
            self._host = None
        self.cpu_indices = [cpu.index for cpu in self._host.cpus] if self._host else []
        self._sync = synchronizer(sync_execution_with, self.gpus)
        self._log = _opened(log_file, self.gpu_indices) if log_file is not None else None
        self._now = self.node.clock.now
        self._sampler = sampler_of(self.node)
        self._sources = self._sampler.sources.of(self.gpus)
        self._estimators = tuple(source.estimator for source in self._sources)
        self._channels: tuple[Channel, ...] = (
            *self._sources,
            *(self._host.channels if self._host else ()),
        )
        self._open: dict[Any, _Window] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._pending: deque[tuple[_Window, weakref.ref[Measurement]]] = deque()
        self._settling = threading.RLock()
        self._means = EnergyMeans()
        self._requests: RequestMonitor | None = None
        self._last_end = self._now()  # learn the counters' ticks before the first window
        self._sampler.join(self)
        if self._channels:
            self._sampler.wake()
        if self._log is not None:
            atexit.register(_close_at_exit, weakref.ref(self), os.getpid())

    # --- Zeus's published API ---------------------------------------------------------------

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: Its name.
            sync_execution: Wait for the accelerator first.
            restart: If the window is open already, begin it again instead of raising.

        Raises:
            ValueError: If a window of this name is open, or the monitor is closed.
        """
        if sync_execution:
            self._sync()
        with self._lock:
            if key in self._open and not restart:
                raise WindowError(
                    f"window {key!r} is open already (restart=True begins it again); "
                    f"{self._list_open()}"
                )
            self._begin(key, key)

    def end_window(
        self, key: str, sync_execution: bool = True, cancel: bool = False
    ) -> Measurement:
        """End a window and return its measurement.

        Args:
            key: Its name.
            sync_execution: Wait for the accelerator first.
            cancel: Discard the window: it is not logged, and its measurement should be ignored.

        Raises:
            ValueError: If no window of this name is open.
        """
        if sync_execution:
            self._sync()
        now = self._now()
        window = self._open.pop(key, None)
        if window is None:
            raise WindowError(f"window {key!r} is not open; {self._list_open()}")
        return self._end(window, now, cancel)

    def reset_windows(self) -> None:
        """Discard all open windows."""
        now = self._now()
        with self._lock:
            for window in self._open.values():
                self._sampler.edges.end(window.name, now)
            self._open.clear()
        self._last_end = now

    # --- extensions -------------------------------------------------------------------------

    def open_scope(self, name: str, sync_execution: bool) -> object:
        """Begin a window that is identified by the returned token instead of its name.

        Args:
            name: Name of the window.
            sync_execution: Whether to synchronize accelerators first.

        Raises:
            ValueError: If the monitor is closed.
        """
        if sync_execution:
            self._sync()
        token = object()
        with self._lock:
            self._begin(token, name)
        return token

    def peek_window(self, key: str, sync_execution: bool = True) -> Measurement:
        """Return the measurement of an open window so far; it stays open.

        Args:
            key: Its name.
            sync_execution: Wait for the accelerator first.

        Raises:
            ValueError: If no window of this name is open.
        """
        measurement = self.peek_scope(key, sync_execution)
        if measurement is None:
            raise WindowError(f"window {key!r} is not open; {self._list_open()}")
        return measurement

    def peek_scope(self, token: object, sync_execution: bool) -> Measurement | None:
        """Return the measurement so far of the window with a token; `None` if there is none.

        Args:
            token: From `open_scope`.
            sync_execution: Whether to synchronize accelerators first.
        """
        if sync_execution:
            self._sync()
        self.catch_up()
        window = self._open.get(token)
        if window is None:
            return None
        so_far = _Window(window.name, window.begin, window.host)
        so_far.end = self._now()
        so_far.checkpoints = window.checkpoints
        if self._host is not None and window.host is not None:
            now = self._host.snapshot()
            so_far.host_readings = self._host.readings(window.host, now, window.begin, so_far.end)
        self._await_first_poll()
        readings = [reading for reading, _ in self._compute([so_far])[0]]
        return Measurement.of(so_far.end - so_far.begin, readings)

    def close_scope(self, token: object, sync_execution: bool, cancel: bool) -> Measurement | None:
        """End the window with a token; `None` if `reset_windows` has discarded it.

        Args:
            token: From `open_scope`.
            sync_execution: Whether to synchronize accelerators first.
            cancel: Whether to keep the window out of logs and means.
        """
        if sync_execution:
            self._sync()
        now = self._now()
        window = self._open.pop(token, None)
        return None if window is None else self._end(window, now, cancel)

    def mean_energy(self, name: str) -> Measurement | None:
        """Return the mean time and energy of the windows of one name that have ended so far.

        It is accurate to about 1 % where single windows, shorter than a counter tick, are not.
        Canceled windows do not count.

        Args:
            name: Name of the windows.

        Returns:
            A measurement of the means; `None` if no such window is final yet.
        """
        self.sampled()
        with self._settling:
            return self._means.mean(name)

    def change_setting(self, setting: str) -> None:
        """Report that a knob of the GPUs was changed, which changes the power of windows.

        Windows of one name are assumed to be alike only under the same setting. Code that changes
        a knob while windows are measured must call this; Zeus's optimizers do.

        Args:
            setting: Its name, for instance "power limit 200 W"; empty if unknown.
        """
        self._sampler.edges.change_setting(setting, self._now())

    def integrals(self, gpu_index: int, since: float, until: float) -> list[Integral]:
        """Return the energies that a GPU's sensors have shown, each of an interval of time.

        Args:
            gpu_index: Index of the GPU.
            since: Only intervals that end after this instant, in seconds.
            until: Only intervals that end at this instant or before.
        """
        at = [gpu.index for gpu in self.gpus].index(gpu_index)
        return self._estimators[at].integrals(since, until)

    @property
    def requests(self) -> RequestMonitor:
        """The energy of requests to a server of language models that runs on these GPUs.

        From the first use on, the sensors are polled until the monitor is closed, so that idle
        energy is known, too.

        Raises:
            ValueError: If the monitor is closed.
        """
        if self._requests is None:
            from zeus.monitor._requests import RequestMonitor  # noqa: PLC0415

            with self._lock:
                if self._closed:
                    raise WindowError("requests cannot be measured: their monitor is closed")
                if self._requests is None:
                    self._requests = RequestMonitor(
                        self._now if self.node.clock.virtual else time.monotonic,
                        [estimator.counted for estimator in self._estimators],
                        virtual=self.node.clock.virtual,
                        refresh=self.catch_up,
                    )
            if self._channels:
                self._sampler.wake()
        return self._requests

    def catch_up(self) -> None:
        """Collect the samples taken so far; in virtual time, poll now.

        This happens several times a second automatically. Callers that use energies right after a
        window's end get better values for its last moments this way.
        """
        for source in self._sources:
            source.catch_up()

    def settle(self, timeout: float = 1.0) -> bool:
        """Wait until the energies of all windows that have ended are final.

        Args:
            timeout: Maximum seconds to wait; virtual ones in virtual time.

        Returns:
            Whether they are.
        """
        clock, end = self.node.clock, self._last_end
        deadline = clock.now() + timeout
        while not self._settled(end):
            if clock.now() > deadline:
                return False
            clock.sleep(_SETTLE_PAUSE)
            self.catch_up()
        return True

    def close(self) -> None:
        """Stop polling the devices for this monitor and close its log. No window can follow."""
        self._closed = True
        self.reset_windows()
        if self._pending and not self.node.clock.virtual:
            self.settle(_LONGEST_TICK)
        self._compute_pending(all_of_them=True)
        self._sampler.leave(self)
        if self._log is not None:
            self._log.close()

    # --- internal ---------------------------------------------------------------------------

    def _list_open(self) -> str:
        names = [window.name for window in list(self._open.values())]
        return f"open windows: {', '.join(map(repr, names))}" if names else "no window is open"

    def _begin(self, key: object, name: str) -> None:
        if self._closed:  # polling has stopped, and earlier samples do not apply
            raise WindowError(f"window {name!r} cannot begin: its monitor is closed")
        host = self._host.snapshot() if self._host is not None else None
        now = self._now()
        replaced = self._open.get(key)
        if replaced is not None:
            self._sampler.edges.end(replaced.name, now)
        self._open[key] = _Window(name, now, host)
        self._sampler.edges.begin(name, now)
        if self._channels:
            # Only after the window is registered as open: that keeps the sampler busy.
            self._sampler.window_begins(now)

    def _end(self, window: _Window, now: float, cancel: bool) -> Measurement:
        window.end = now
        self._last_end = now
        self._sampler.edges.end(window.name, now)
        host = self._host
        if host is not None and window.host is not None:
            window.host_readings = host.readings(window.host, host.snapshot(), window.begin, now)
        window.counted = not cancel
        measurement = Measurement.deferred(
            now - window.begin, functools.partial(self._resolve, window)
        )
        self._pending.append((window, weakref.ref(measurement)))
        return measurement

    # --- computing energies -----------------------------------------------------------------------

    def _resolve(self, window: _Window) -> tuple[tuple[Reading, ...], bool]:
        """Return the readings of a window, and whether they are final."""
        if window.readings is None:
            self._await_first_poll()
            ticks = sum(estimator.ticks_seen for estimator in self._estimators)
            if window.provisional is None or window.provisional[0] != ticks:
                final = self._settled(window.end)
                readings = tuple([reading for reading, _ in self._compute([window])[0]])
                window.provisional = ticks, readings
                if final:
                    window.readings = readings
        if window.readings is not None:
            return window.readings, True
        assert window.provisional is not None
        return window.provisional[1], False

    def _await_first_poll(self) -> None:
        """Wait until every GPU has been polled once."""
        if all(estimator.seen for estimator in self._estimators):
            return
        if self.node.clock.virtual:
            self._sampler.fire()
        deadline = time.monotonic() + HANG_TIMEOUT
        while not all(estimator.seen for estimator in self._estimators):
            if self.node.clock.virtual or time.monotonic() > deadline:
                return
            time.sleep(_FIRST_POLL_PAUSE)

    def _settled(self, end: float) -> bool:
        return all(estimator.settled(end) for estimator in self._estimators) and (
            self._host is None or self._host.settled(end)
        )

    def _compute(self, windows: Sequence[_Window]) -> list[list[tuple[Reading, Energy]]]:
        """Compute the readings of windows, each also as an energy."""
        found: list[list[tuple[Reading, Energy]]] = [[] for _ in windows]
        for gpu, estimator, key in zip(self.gpus, self._estimators, self._keys, strict=True):
            index, name = gpu.index, gpu.name
            energies = estimator.energies(
                [(each.begin, each.end, each.checkpoints.get(index)) for each in windows]
            )
            for readings, energy in zip(found, energies, strict=True):
                readings.append((Reading.of(GPU, index, name, energy, key=key), energy))
        for readings, window in zip(found, windows, strict=True):
            host = window.host_readings
            if self._host is not None:
                host = self._host.completed(host, window.begin, window.end)
            readings += [(reading, reading.to_energy()) for reading in host]
        return found

    def _compute_pending(self, *, all_of_them: bool = False) -> None:
        """Compute windows whose energies have become final, oldest first."""
        old = self._now() - _OLD
        ready: list[_Window] = []
        with self._settling:
            while self._pending:
                window, reference = self._pending[0]
                if not (all_of_them or self._settled(window.end)):
                    break
                wanted = reference() is not None or self._log is not None
                crowded = len(ready) >= _MAX_AT_ONCE and not all_of_them
                if crowded and wanted and window.end > old:
                    break
                self._pending.popleft()
                if wanted or (window.counted and not crowded):
                    ready.append(window)
            for window, computed in zip(ready, self._compute(ready), strict=True):
                window.readings = tuple([reading for reading, _ in computed])
                if window.counted:
                    self._means.add(window.name, window.end - window.begin, computed)
                    if self._log is not None:
                        self._write_log(window)

    def _write_log(self, window: _Window) -> None:
        from zeus.monitor._log import LoggedWindow  # noqa: PLC0415

        assert self._log is not None
        energies = {
            reading.index: reading.energy
            for reading in window.readings or ()
            if reading.domain == GPU and isinstance(reading.index, int)
        }
        seconds = window.end - window.begin
        self._log.write(LoggedWindow(window.begin, window.name, seconds, energies))

    # --- called by the sampler --------------------------------------------------------------------

    def channels_wanted(self, now: float) -> tuple[Channel, ...]:
        """Return the channels while a window is open, and for a short time after.

        Args:
            now: Time by the monitor's clock, in seconds.
        """
        busy = self._open or self._pending or (self._requests is not None and not self._closed)
        if busy or now - self._last_end < _LINGER:
            return self._channels
        return ()

    def sampled(self) -> None:
        """Compute windows whose energies have become final."""
        if self._pending and self._settled(self._pending[0][0].end):
            self._compute_pending()
        if self._requests is not None:
            self._requests.process()

    def housekeeping(self, now: float) -> None:
        """Store checkpoints for windows that began long ago.

        Args:
            now: Time by the monitor's clock, in seconds.
        """
        for window in list(self._open.values()):
            if now - window.begin > _CHECKPOINT_AFTER:
                self._keep_checkpoints(window)

    def _keep_checkpoints(self, window: _Window) -> None:
        for gpu, estimator in zip(self.gpus, self._estimators, strict=True):
            if gpu.index not in window.checkpoints:  # a GPU that does not respond has none yet
                checkpoint = estimator.checkpoint(window.begin)
                if checkpoint is not None:
                    window.checkpoints[gpu.index] = checkpoint


def _close_at_exit(reference: weakref.ref[ZeusMonitor], process: int) -> None:
    """Write the ended windows to the log at exit, except in a forked child: each only once."""
    monitor = reference()
    if monitor is not None and not monitor._closed and os.getpid() == process:
        monitor.close()


def _opened(log_file: str | Path, gpu_indices: Sequence[int]) -> WindowLog:
    from zeus.monitor._log import WindowLog  # noqa: PLC0415  (most monitors keep no log)

    return WindowLog(log_file, gpu_indices)
