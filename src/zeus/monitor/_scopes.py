"""Windows as blocks of code, and as calls of a function."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from zeus.errors import WindowError
from zeus.monitor._measurement import Measurement

F = TypeVar("F", bound=Callable[..., Any])


class ScopeMonitor(ABC):
    """A monitor whose windows can be blocks of code. A ``with`` block closes it at its end."""

    @abstractmethod
    def open_scope(self, name: str, sync_execution: bool) -> object:
        """Begin a window that is identified by the returned token instead of its name."""

    @abstractmethod
    def close_scope(self, token: object, sync_execution: bool, cancel: bool) -> Measurement | None:
        """End the window with a token; `None` if `reset_windows` has discarded it."""

    @abstractmethod
    def close(self) -> None:
        """Stop measuring. No window can follow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def window(
        self,
        name: str,
        sync_execution: bool = True,
        callback: Callable[[Measurement], None] | None = None,
    ) -> WindowScope:
        """Return a window for a ``with`` or ``async with`` statement, or a decorator.

        Any number of windows of one name may be open at once, in several threads or tasks::

            with monitor.window("epoch") as w:
                train()
            print(w.measurement)

            @monitor.window("step")
            def step(batch): ...

            step(batch)
            print(step.measurements[-1])

        Args:
            name: Its name in the log.
            sync_execution: Wait for the accelerator at both ends.
            callback: Called with each measurement.
        """
        return WindowScope(self, name, sync_execution, callback)


class WindowScope:
    """A window bound to a block of code or to the calls of a function.

    Args:
        monitor: Measures the block.
        name: Name of the window.
        sync_execution: Whether to synchronize accelerators at both ends.
        callback: Called with the measurement.

    Attributes:
        measurement: Measurement of the block, once it has ended.
    """

    def __init__(
        self,
        monitor: ScopeMonitor,
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
                "call monitor.window() again for another one"
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
