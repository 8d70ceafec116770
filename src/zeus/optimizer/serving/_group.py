"""The knobs of a service's GPUs: one setting for all GPUs of a group, under holds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from zeus.device import Gpu, Hold
from zeus.errors import CapabilityError, KnobError
from zeus.optimizer.training._knobs import ClockKnob, GpuKnobInfo, Knob, Ladder, PowerLimitKnob

logger = logging.getLogger(__name__)

KNOBS: dict[str, Knob] = {"clock": ClockKnob(1.0), "power-limit": PowerLimitKnob(1.0)}
"""Knobs by their name on the command line."""

_STEP = 0.95  # of the setting above
_LOWEST = 0.35  # of the highest clock: below, GPUs become slower without drawing less


def settings_of(gpus: Iterable[Gpu], knob: str) -> tuple[float, ...]:
    """Return the settings that all GPUs accept, about 5 % apart, from the present one down.

    Raises:
        KnobError: If there is no such knob or GPU, GPUs are of several models, or have no setting
            in common.
        CapabilityError: If a GPU does not report its settings.
    """
    if knob not in KNOBS:
        raise KnobError(f"the knob must be one of {', '.join(KNOBS)}, but got {knob!r}")
    gpus = list(gpus)
    infos = {gpu.key: GpuKnobInfo.of(gpu, KNOBS[knob], simulated=False) for gpu in gpus}
    ladder = Ladder(infos).limits(Ladder(infos).knobs)
    if ladder is None:
        names = sorted({gpu.name for gpu in gpus})
        raise KnobError(f"the GPUs of a service must be of one model, but are {', '.join(names)}")
    chosen = ladder[:1]
    for setting in ladder[1:]:
        if setting <= chosen[-1] * _STEP and setting >= _LOWEST * ladder[0]:
            chosen.append(setting)
    return tuple(chosen)


class GpuGroup:
    """GPUs that have the same setting at all times.

    Args:
        gpus: The GPUs.
        knob: "clock" or "power-limit".
    """

    def __init__(self, gpus: Sequence[Gpu], knob: str) -> None:
        self.gpus = tuple(gpus)
        self._knob = KNOBS[knob]
        self._holds: list[Hold] = []
        self._setting: float | None = None
        self.overridden = False

    @property
    def setting(self) -> float | None:
        """The setting that is held; `None` if none is."""
        return self._setting

    def set(self, setting: float) -> None:
        """Hold a setting on all GPUs.

        Raises:
            CapabilityError: If a GPU refuses; then all have the previous setting again.
            KnobError: Likewise.
        """
        try:
            if not self._holds:
                for gpu in self.gpus:
                    hold = self._knob.hold(gpu, setting)
                    hold.acquire()
                    self._holds.append(hold)
            elif setting != self._setting:
                for hold in self._holds:
                    self._knob.change(hold, setting)
        except BaseException:
            self.release()
            raise
        self._setting = setting
        self.overridden = not all(hold.surely_in_force() for hold in self._holds) and any(
            _overridden(hold) for hold in self._holds
        )

    def release(self) -> None:
        """Restore the previous setting of all GPUs."""
        holds, self._holds, self._setting = self._holds, [], None
        for hold in holds:
            hold.release()


def _overridden(hold: Hold) -> bool:
    try:
        return hold.overridden_by() is not None
    except (CapabilityError, KnobError):
        return False
