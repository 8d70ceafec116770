"""This process's hand on the knobs of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zeus.device.base import Gpu
from zeus.device.hold import Hold
from zeus.optimizer.jit.knobs import Card, Knob


class Grip:
    """Sets one knob of some GPUs, under holds that put back what was there before.

    Attributes:
        cards: What is known of each GPU, by its key.
    """

    def __init__(self, knob: Knob, gpus: Sequence[Gpu], *, simulated: bool) -> None:
        """Ask the GPUs what they offer.

        Raises:
            CapabilityError: If one cannot tell.
        """
        self._knob = knob
        self._gpus = tuple(gpus)
        self.cards = {gpu.key: Card.of(gpu, knob, simulated=simulated) for gpu in self._gpus}
        self._holds: dict[str, Hold] = {}
        self._settings: dict[str, float] = {}

    def try_control(self) -> None:
        """Find out whether the knob may be turned, by setting it to its present value.

        Raises:
            CapabilityError: If it may not.
        """
        try:
            for gpu in self._gpus:
                self._set(gpu, self.cards[gpu.key].present)
        finally:
            self.release()

    def apply(self, setting: Any) -> None:
        """Set the knob of every GPU; `None` puts back what was there before.

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
            model = self.cards[gpu.key].model
            self._set(gpu, setting[model] if isinstance(setting, Mapping) else setting)

    def release(self) -> None:
        """Put back what was there before."""
        for hold in self._holds.values():
            hold.release()
        self._holds.clear()
        self._settings.clear()

    def _set(self, gpu: Gpu, setting: float) -> None:
        if self._settings.get(gpu.key) == setting:
            return
        hold = self._holds.get(gpu.key)
        if hold is None:
            hold = self._knob.hold(gpu, setting)
            hold.acquire()
            self._holds[gpu.key] = hold
        else:
            self._knob.change(hold, setting)
        self._settings[gpu.key] = setting
