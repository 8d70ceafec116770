"""This process's control of the knobs of its GPUs.

Each knob has one controller at a time: that of a run that was not closed, as when a notebook cell
is interrupted and run again, is released when the next one begins.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zeus.device import Gpu
from zeus.device._guarded_gpu import GuardedGpu
from zeus.device._hold import Hold
from zeus.device._vendors import vendor_named
from zeus.errors import CapabilityError, Reason
from zeus.optimizer.training._knobs import GpuKnobInfo, Knob

logger = logging.getLogger(__name__)


class KnobController:
    """Sets one knob of some GPUs, under holds that restore the previous setting.

    Attributes:
        infos: Settings and limits of each GPU, by its key.
    """

    def __init__(
        self,
        knob: Knob,
        gpus: Sequence[Gpu],
        *,
        simulated: bool,
        raise_limit: bool = False,
        on_takeover: Callable[[], None] = lambda: None,
    ) -> None:
        """Query the GPUs' settings.

        Args:
            knob: The knob to set.
            gpus: GPUs of this process.
            simulated: Whether the GPUs are simulated.
            raise_limit: Whether settings above the present one may be tried.
            on_takeover: Called when another controller of this process takes the knob of a GPU.

        Raises:
            CapabilityError: If a GPU cannot report them, or this program must not set its knob.
        """
        for gpu in gpus:
            _refuse_slice(gpu, knob.name)
        self._knob = knob
        self._gpus = tuple(gpus)
        self._on_takeover = on_takeover
        _take_over(knob.name, self._gpus)
        self.infos = {
            gpu.key: GpuKnobInfo.of(gpu, knob, simulated=simulated, raise_limit=raise_limit)
            for gpu in self._gpus
        }
        self._holds: dict[str, Hold] = {}
        self._settings: dict[str, float] = {}

    def try_control(self) -> None:
        """Check whether the knob may be set, by setting it to its present value.

        Raises:
            CapabilityError: If it may not.
        """
        try:
            for gpu in self._gpus:
                self._set(gpu, self.infos[gpu.key].present)
        finally:
            self.release()

    def apply(self, setting: Any) -> None:
        """Set the knob of every GPU; `None` restores the previous setting.

        Args:
            setting: A number, or numbers by GPU model.

        Raises:
            CapabilityError: If a GPU refuses.
            KnobError: If a GPU does not accept the value.
        """
        if setting is None:
            self.release()
            return
        for gpu in self._gpus:
            model = self.infos[gpu.key].model
            self._set(gpu, setting[model] if isinstance(setting, Mapping) else setting)

    def values_to_log(self) -> dict[str, float]:
        """Return the setting in force under the name of the knob; by GPU index where they differ.

        It is the last one that this controller has set, or the one before the run.
        """
        settings = [self._settings.get(key, info.present) for key, info in self.infos.items()]
        if len(set(settings)) == 1:
            return {self._knob.name: settings[0]}
        gpus = zip(self._gpus, settings, strict=True)
        return {f"{self._knob.name}/{gpu.index}": setting for gpu, setting in gpus}

    def check_in_force(self) -> None:
        """Verify that the GPUs run at the setting of this controller.

        Raises:
            CapabilityError: If another process's hold overrides this one.
        """
        for hold in self._holds.values():
            other = hold.overridden_by()
            if other is not None:
                raise CapabilityError(
                    Reason.BLOCKED,
                    f"process {other.pid} has set the {self._knob.name.replace('_', ' ')} of "
                    f"{hold.gpu.name} after this one did",
                )

    def release(self) -> None:
        """Restore the previous settings."""
        for hold in self._holds.values():
            hold.release()
        self._holds.clear()
        self._settings.clear()
        _active.discard(self)

    def hand_over(self, knob_name: str, gpus: Iterable[Gpu]) -> None:
        """Release the knob if it is the same one of any of these GPUs."""
        held = {_identity(hold.gpu) for hold in self._holds.values()}
        if self._knob.name != knob_name or held.isdisjoint(map(_identity, gpus)):
            return
        logger.warning(
            "a previous run was not closed: the %s from before that run is restored",
            knob_name.replace("_", " "),
        )
        try:
            self._on_takeover()
        finally:
            self.release()

    def _set(self, gpu: Gpu, setting: float) -> None:
        if self._settings.get(gpu.key) == setting:
            return
        hold = self._holds.get(gpu.key)
        if hold is None:
            hold = self._knob.hold(gpu, setting)
            hold.acquire()
            self._holds[gpu.key] = hold
            _active.add(self)
        else:
            self._knob.change(hold, setting)
        self._settings[gpu.key] = setting


#: The controllers of this process with active holds.
_active: weakref.WeakSet[KnobController] = weakref.WeakSet()


def _take_over(knob_name: str, gpus: Sequence[Gpu]) -> None:
    for controller in list(_active):
        controller.hand_over(knob_name, gpus)


def _refuse_slice(gpu: Gpu, knob_name: str) -> None:
    if gpu.identity.whole_module and vendor_named(gpu.identity.vendor).shares_modules:
        raise CapabilityError(
            Reason.UNSUPPORTED,
            f"the {knob_name.replace('_', ' ')} of {gpu.name} is that of all its slices, which may "
            "belong to other users",
            "use the GPU as a whole, or optimize by hand with Gpu.hold",
        )


def _identity(gpu: GuardedGpu) -> tuple[str, int]:
    # Simulated GPUs of this process may have the same key in different nodes.
    return gpu.key, 0 if gpu.driver.shared else id(gpu.driver)
