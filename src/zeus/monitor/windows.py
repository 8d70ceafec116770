"""Measurement windows: the time and energy of any stretch of code.

Beginning or ending a window takes the time and nothing else that could wait for a driver: one
background sampler follows the GPUs' counters, and a measurement's energies are worked out from it
when they are asked for.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from zeus.errors import WindowError
from zeus.monitor import ranks
from zeus.monitor.host import HostMeter, HostSnapshot
from zeus.monitor.measurement import GPU, Measurement, Reading
from zeus.monitor.sampler import sampler_of
from zeus.monitor.sync import synchronizer
from zeus.monitor.track import HORIZON

if TYPE_CHECKING:
    from zeus.device.node import Node
    from zeus.monitor.log import WindowLog
    from zeus.monitor.sampler import Channel

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_LINGER = 1.0  # seconds to go on looking after the last window: the next is often near
_SETTLE_AFTER = HORIZON / 3  # seconds; measurements nobody asked about are worked out by then
_MAX_UNSETTLED = 20_000
_LONGEST_TICK = 0.25  # seconds
_TICK_PAUSE = 0.01  # seconds between looks for a tick that is awaited


class _Window:
    """A window from its beginning to its measurement."""

    __slots__ = ("begin", "end", "heads", "host", "name")

    def __init__(self, name: str, begin: float, host: HostSnapshot | None) -> None:
        self.name = name
        self.begin = begin
        self.end = math.nan
        self.host = host
        #: What it keeps of each GPU, by index, once it is old.
        self.heads: dict[int, Any] = {}


class ZeusMonitor:
    """Measures windows on this machine's GPUs, CPUs and memory.

    Windows may nest and overlap, and may be begun and ended from any thread.

    One shorter than about 25 ms may pass between two looks at a GPU. Its energy is then estimated
    from what was seen around it, as its reading says; of work in bursts that is too little. What
    many such steps take is better told by one window around all of them.

    Args:
        gpu_indices: GPUs to measure, numbered as frameworks do. By default all that are visible;
            in a process started by a launcher with one rank per GPU, this rank's GPU.
        cpu_indices: CPU packages to measure. By default all; under a launcher only by the first
            rank of a node.
        approx_instant_energy: On GPUs whose power meter moves only with the energy counter, what
            a window shorter than a tick used is known when the next tick comes, up to 100 ms
            later, and asking for its energy waits for that. `True` takes an approximation by
            power at once instead. Elsewhere it makes no difference.
        log_file: CSV file to which every window is appended.
        sync_execution_with: Framework to wait for at both ends of a window: "torch", "jax",
            "cupy", "auto" for whichever the program has imported, `None` for none.
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
        from zeus.device.node import current_node  # noqa: PLC0415  (devices are not needed before)
        from zeus.device.state import job_wide  # noqa: PLC0415

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
        self._sync = synchronizer(sync_execution_with, self.gpu_indices)
        self._log = _opened(log_file, self.gpu_indices) if log_file is not None else None
        self._now = self.node.clock.now
        self._sampler = sampler_of(self.node)
        feeds = self._sampler.feeds.of(self.gpus)
        self._tracks = tuple(feed.track for feed in feeds)
        self._channels: tuple[Channel, ...] = (
            *feeds,
            *(self._host.channels if self._host else ()),
        )
        self._open: dict[Any, _Window] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._unsettled: deque[weakref.ref[Measurement]] = deque()
        self._last_end = self._now()  # learn the counters' ticks before the first window
        self._sampler.join(self)
        if self._channels:
            self._sampler.wake()

    # --- the published interface ------------------------------------------------------------

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: Names it.
            sync_execution: Wait for the accelerator first.
            restart: If the window is open already, begin it anew instead of raising.

        Raises:
            ValueError: If a window of this name is open, or the monitor is closed.
        """
        if sync_execution:
            self._sync()
        with self._lock:
            if key in self._open and not restart:
                raise WindowError(
                    f"window {key!r} is open already (restart=True begins it anew); "
                    f"{self._list_open()}"
                )
            self._begin(key, key)

    def end_window(
        self, key: str, sync_execution: bool = True, cancel: bool = False
    ) -> Measurement:
        """End a window and get what it measured.

        Args:
            key: Names it.
            sync_execution: Wait for the accelerator first.
            cancel: Forget the window: it is not logged, and its measurement is of no use.

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
        """Forget all open windows."""
        now = self._now()
        with self._lock:
            for window in self._open.values():
                self._sampler.edges.end(window.name, now)
            self._open.clear()
        self._last_end = now

    # --- on top of it -----------------------------------------------------------------------

    def window(
        self,
        name: str,
        sync_execution: bool = True,
        callback: Callable[[Measurement], None] | None = None,
    ) -> WindowScope:
        """A window as a ``with`` block, an ``async with`` block or a decorator.

        Any number of windows of one name may be open at once, in several threads or tasks::

            with monitor.window("epoch") as w:
                train()
            print(w.measurement)

            @monitor.window("step")
            def step(batch): ...

            step(batch)
            print(step.measurements[-1])

        Args:
            name: Names it in the log.
            sync_execution: Wait for the accelerator at both ends.
            callback: Called with each measurement.
        """
        return WindowScope(self, name, sync_execution, callback)

    def open_scope(self, name: str, sync_execution: bool) -> object:
        """Begin a window that is known by the returned token instead of its name.

        Raises:
            ValueError: If the monitor is closed.
        """
        if sync_execution:
            self._sync()
        token = object()
        with self._lock:
            self._begin(token, name)
        return token

    def close_scope(self, token: object, sync_execution: bool, cancel: bool) -> Measurement | None:
        """End the window behind a token; `None` if `reset_windows` has forgotten it."""
        if sync_execution:
            self._sync()
        now = self._now()
        window = self._open.pop(token, None)
        return None if window is None else self._end(window, now, cancel)

    def close(self) -> None:
        """Stop looking at the devices for this monitor and close its log. No window follows."""
        self._closed = True
        self.reset_windows()
        self._settle_old(math.inf)
        self._sampler.leave(self)
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> ZeusMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------

    def _list_open(self) -> str:
        names = [window.name for window in list(self._open.values())]
        return f"open windows: {', '.join(map(repr, names))}" if names else "no window is open"

    def _begin(self, key: object, name: str) -> None:
        if self._closed:  # nobody looks any more, and what was seen before says nothing
            raise WindowError(f"window {name!r} cannot begin: its monitor is closed")
        host = self._host.snapshot() if self._host is not None else None
        now = self._now()
        replaced = self._open.get(key)
        if replaced is not None:
            self._sampler.edges.end(replaced.name, now)
        self._open[key] = _Window(name, now, host)
        self._sampler.edges.begin(name, now)
        if self._channels:
            # Only after the window is known as open: that is what keeps the sampler busy.
            self._sampler.look_soon(now)

    def _end(self, window: _Window, now: float, cancel: bool) -> Measurement:
        window.end = now
        self._last_end = now
        self._sampler.edges.end(window.name, now)
        host = self._host
        readings: tuple[Reading, ...] = ()
        if host is not None and window.host is not None:
            readings = host.readings(window.host, host.snapshot(), window.begin, now)
        measurement = Measurement.deferred(
            now - window.begin, functools.partial(self._resolve, window, readings)
        )
        if cancel:
            return measurement
        if self._log is not None:
            self._write_log(window, measurement)
        else:
            self._unsettled.append(weakref.ref(measurement))
            if len(self._unsettled) > _MAX_UNSETTLED:
                self._settle_old(math.inf)
        return measurement

    def _resolve(self, window: _Window, host: tuple[Reading, ...]) -> tuple[Reading, ...]:
        self._sampler.settle(window.end)
        if not self.approx_instant_energy:
            self._await_ticks(window)
        readings = []
        for gpu, track, key in zip(self.gpus, self._tracks, self._keys, strict=True):
            energy = track.energy(window.begin, window.end, window.heads.get(gpu.index))
            readings.append(Reading.of(GPU, gpu.index, gpu.name, energy, key=key))
        if self._host is not None:
            host = self._host.completed(host, window.begin, window.end)
        return (*readings, *host)

    def _await_ticks(self, window: _Window) -> None:
        """Let the tick after a short window come, where nothing is known of it before that."""
        if self.node.clock.virtual or not any(
            track.lacks_tick(window.begin, window.end) for track in self._tracks
        ):
            return
        deadline = window.end + _LONGEST_TICK
        while self._now() < deadline:
            self.node.clock.sleep(_TICK_PAUSE)
            self._sampler.settle(self._now())
            if not any(track.lacks_tick(window.begin, window.end) for track in self._tracks):
                return

    def _write_log(self, window: _Window, measurement: Measurement) -> None:
        from zeus.monitor.log import LoggedWindow  # noqa: PLC0415

        assert self._log is not None
        energies = {
            reading.index: reading.energy
            for reading in measurement.readings
            if reading.domain == GPU and isinstance(reading.index, int)
        }
        self._log.write(LoggedWindow(window.begin, window.name, measurement.time, energies))

    # --- the sampler's side -----------------------------------------------------------------

    def channels_wanted(self, now: float) -> tuple[Channel, ...]:
        """Look while a window is open and for a moment after."""
        if self._open or now - self._last_end < _LINGER:
            return self._channels
        return ()

    def housekeeping(self, now: float) -> None:
        """Save from windows that began long ago, or that nobody asked about, what is needed."""
        for window in list(self._open.values()):
            if now - window.begin > _SETTLE_AFTER and len(window.heads) < len(self.gpus):
                self._keep_heads(window)
        self._settle_old(now - _SETTLE_AFTER)

    def _keep_heads(self, window: _Window) -> None:
        for gpu, track in zip(self.gpus, self._tracks, strict=True):
            if gpu.index not in window.heads:  # a GPU that does not answer has none yet
                head = track.head(window.begin)
                if head is not None:
                    window.heads[gpu.index] = head

    def _settle_old(self, before: float) -> None:
        while self._unsettled:
            measurement = self._unsettled[0]()
            if measurement is not None and not measurement.settled:
                if _end_of(measurement) > before:
                    return
                measurement.readings  # noqa: B018  (asking settles)
            try:
                self._unsettled.popleft()
            except IndexError:  # another thread was quicker
                return


def _opened(log_file: str | Path, gpu_indices: Sequence[int]) -> WindowLog:
    from zeus.monitor.log import WindowLog  # noqa: PLC0415  (most monitors keep no log)

    return WindowLog(log_file, gpu_indices)


def _end_of(measurement: Measurement) -> float:
    resolve = measurement._resolve
    window = resolve.args[0] if isinstance(resolve, functools.partial) else None
    return window.end if isinstance(window, _Window) else -math.inf


class ScopeKeeper(Protocol):
    """A monitor, as far as a scope needs it."""

    def open_scope(self, name: str, sync_execution: bool) -> object:
        """Begin a window that is known by the returned token."""

    def close_scope(self, token: object, sync_execution: bool, cancel: bool) -> Measurement | None:
        """End the window behind a token."""


class WindowScope:
    """A window bound to a block of code or to the calls of a function.

    Attributes:
        measurement: What the block measured, once it has ended.
    """

    def __init__(
        self,
        monitor: ScopeKeeper,
        name: str,
        sync_execution: bool,
        callback: Callable[[Measurement], None] | None,
    ) -> None:
        self._monitor = monitor
        self._name = name
        self._sync_execution = sync_execution
        self._callback = callback
        self._token: object | None = None
        self.measurement: Measurement | None = None

    def __enter__(self) -> WindowScope:
        if self._token is not None:
            raise WindowError(
                f"this scope of window {self._name!r} is entered already; "
                "call monitor.window() again for another"
            )
        self._token = self._monitor.open_scope(self._name, self._sync_execution)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        token, self._token = self._token, None
        measurement = self._monitor.close_scope(token, self._sync_execution and kind is None, False)
        self.measurement = measurement
        if measurement is not None and self._callback is not None:
            self._callback(measurement)

    async def __aenter__(self) -> WindowScope:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Measure every call of a function; its `measurements` holds the latest thousand.

        Raises:
            ValueError: If it is a generator function.
        """
        measurements: deque[Measurement] = deque(maxlen=1000)

        def keep(measurement: Measurement) -> None:
            measurements.append(measurement)
            if self._callback is not None:
                self._callback(measurement)

        def scope() -> WindowScope:
            return WindowScope(self._monitor, self._name, self._sync_execution, keep)

        import inspect  # noqa: PLC0415

        wrapper: Any
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise WindowError(
                f"window {self._name!r} must be of a function that ends when it is done, but got "
                f"the generator function {function.__qualname__}: its callers' work would count too"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                async with scope():
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with scope():
                    return function(*args, **kwargs)

        wrapper.measurements = measurements
        wrapped: F = wrapper
        return wrapped
