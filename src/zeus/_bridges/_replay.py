"""A log of windows in place of a monitor, which also drives an optimizer of power limits.

zeus 0.16 logged one window for each power limit that it profiled, by names that end in watts. They
say what a step takes at each limit. No step is run: one passes whenever the optimizer reads the
clock, which it does at the beginning of every step that it measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._simulated_models import MODELS
from zeus.errors import LogFileError, UnknownDeviceError, WindowError
from zeus.monitor import Measurement, Method, Reading
from zeus.monitor._measurement import GPU
from zeus.monitor._sums import joined, since
from zeus.state._files import job_wide
from zeus.testing import ProfileNode, RecordedProfile, ReplayMonitor

_STEPS = 40  # of a window: the documented default of `profile_steps`


class ReplayError(WindowError, RuntimeError):
    """A window out of order; a `RuntimeError`, as documented."""


class ReplayZeusMonitor(ReplayMonitor):
    """Replaces a `ZeusMonitor` and returns the windows of its log, in order of their ends.

    Args:
        gpu_indices: GPUs of the log; by default all.
        approx_instant_energy: Ignored, as documented.
        log_file: The log; required.
        ignore_sync_execution: Ignored: nothing runs.
        match_window_name: Whether a window's name must match the one in the log.

    Raises:
        ValueError: If there is no log, or it is of other GPUs.
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        approx_instant_energy: bool = False,
        log_file: str | Path | None = None,
        ignore_sync_execution: bool = False,  # noqa: ARG002
        match_window_name: bool = True,
    ) -> None:
        if log_file is None:
            raise LogFileError("`log_file` must be given")
        super().__init__(log_file, match_window_name)
        if gpu_indices is not None and list(gpu_indices) != self.gpu_indices:
            raise UnknownDeviceError(
                f"`gpu_indices` must be those of the log, {self.gpu_indices}, "
                f"but got {list(gpu_indices)}"
            )
        self.approx_instant_energy = approx_instant_energy
        self._passed = Measurement(0.0)  # by all steps so far
        self._begun: dict[object, Measurement] = {}
        self._just_read = False

    # --- windows of the program: from the log -----------------------------------------------

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begin a window; raise `RuntimeError` if it is open."""
        try:
            super().begin_window(key, sync_execution, restart)
        except WindowError as error:
            raise ReplayError(str(error)) from None

    def end_window(
        self, key: str, sync_execution: bool = True, cancel: bool = False
    ) -> Measurement:
        """End a window; raise `RuntimeError` if it is not the log's next one."""
        try:
            return super().end_window(key, sync_execution, cancel)
        except WindowError as error:
            raise ReplayError(str(error)) from None

    # --- windows of an optimizer: the steps that have passed --------------------------------

    @cached_property
    def node(self) -> ProfileNode:
        """A node with simulated GPUs that accept the power limits of the log.

        Raises:
            ValueError: If the log does not have the energy of every GPU at power limits.
        """
        rows = {}
        for row in self._rows:
            watts = re.search(r"_(\d+(?:\.\d+)?)$", row.name)
            if watts and all(row.gpu_energy.values()):
                powers = tuple(
                    (joules or 0) / row.elapsed_time for joules in row.gpu_energy.values()
                )
                rows[float(watts[1])] = (row.elapsed_time / _STEPS, powers)
        if not rows or not self.gpu_indices:
            raise LogFileError(
                f"to drive an optimizer, {self._path} must have windows whose names end in watts, "
                "with the energy of every GPU, but it has none"
            )
        model = self._path.stem.partition("+")[0].lower()
        limits = tuple(sorted(rows))
        node = ProfileNode(
            RecordedProfile(
                self._path.stem,
                model if model in MODELS else "v100",
                limits,
                tuple(rows[limit][0] for limit in limits),
                tuple(rows[limit][1] for limit in limits),
            )
        )
        node.clock = _StepClock(self._step)
        return node

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of `node`."""
        return tuple(self.node.gpus)

    def open_scope(self, name: str, sync_execution: bool) -> object:
        """Begin a window that is identified by a token."""
        token = super().open_scope(name, sync_execution)
        self._begun[token] = self._passed
        self._just_read = False
        return token

    def peek_scope(self, token: object, sync_execution: bool) -> Measurement | None:  # noqa: ARG002
        """Return what the steps since its beginning took; `None` if it was forgotten."""
        begun = self._begun.get(token)
        self._just_read = True
        return None if token not in self._open or begun is None else since(self._passed, begun)

    def close_scope(self, token: object, sync_execution: bool, cancel: bool) -> Measurement | None:
        """End a window: from the log, or as `peek_scope` if the log does not have it."""
        steps = self.peek_scope(token, sync_execution)
        logged = super().close_scope(token, sync_execution, cancel)
        del self._begun[token]
        return steps if cancel else logged

    def change_setting(self, setting: str) -> None:
        """Do nothing: the GPUs know their power limit."""

    def settle(self, timeout: float = 1.0) -> bool:  # noqa: ARG002
        """Return true: every energy is final."""
        return True

    def _step(self) -> float:
        """Let a step pass, and return when it began."""
        began = self._passed.time
        if self._just_read:
            self._just_read = False  # this is the end of the steps that were just measured
            return began
        profile = self.node.profile
        time = max(map(profile.step_time, self.gpus))
        readings = [
            Reading(
                GPU,
                gpu.index,
                gpu.name,
                time * profile.power_at(gpu.driver.power_limit(), place),
                Method.COUNTER,
                note="from the log",
                key=job_wide(gpu.key),
            )
            for place, gpu in enumerate(self.gpus)
        ]
        self._passed = joined([self._passed, Measurement.of(time, readings)])
        return began


class _StepClock(VirtualClock):
    """A clock on which a step begins whenever it is read."""

    def __init__(self, step: Callable[[], float]) -> None:
        super().__init__()
        self._step = step

    def now(self) -> float:
        """Return when the step that begins now does."""
        return self._step()
