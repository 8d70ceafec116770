"""A GPU for users: its readings, holds on its knobs, and what of that can be used here."""

from __future__ import annotations

from collections.abc import Callable

from zeus.device._base import Capability, GpuDriver, Support, suppress_unsupported, unsupported
from zeus.device._guarded_gpu import GuardedGpu
from zeus.device._hold import Hold, rewrite_power_limit
from zeus.device._records import GRAPHICS_CLOCK
from zeus.errors import CapabilityError, KnobError, Reason


class Gpu(GuardedGpu):
    """One GPU, numbered as the frameworks do.

    Its knobs are changed under a `hold` only. Every reading that fails raises `CapabilityError`,
    which says why; `support` finds out beforehand.
    """

    def hold(
        self,
        *,
        power_limit: float | None = None,
        graphics_clock: int | tuple[int, int] | None = None,
        memory_clock: int | tuple[int, int] | None = None,
    ) -> Hold:
        """Change knobs temporarily; the previous values are always restored.

        Use as ``with gpu.hold(power_limit=200): ...``. They are restored on leaving the
        block, on an exception, on SIGTERM, and after SIGKILL when Zeus next starts on this
        machine (or on ``zeus restore``). A clock lock set by another program is known only
        if the driver reports it. NVIDIA's does not: there, clocks are unlocked afterwards.

        Args:
            power_limit: Watts.
            graphics_clock: MHz, or (lowest, highest) MHz.
            memory_clock: MHz, or (lowest, highest) MHz.

        Raises:
            KnobError: If a value is outside the range that this GPU accepts.
            CapabilityError: If the GPU or the permissions do not allow it.
        """
        return Hold(self, power_limit, graphics_clock, memory_clock)

    def support(self, capability: Capability) -> Support:
        """Find out whether a capability can be used here, by trying it without side effects."""
        try:
            _PROBES[capability](self)
        except CapabilityError as error:
            return Support.refused(error)
        except KnobError as error:
            return Support(False, Reason.UNSUPPORTED, str(error))
        return Support(True)


def _clock_control(gpu: Gpu) -> None:
    # Not every driver reports locks, so trying one could undo another program's. Locking clocks
    # needs the same permission as setting the power limit, which can be tried safely.
    gpu.supported_clocks()
    if gpu.driver.holds is not None:
        gpu.driver.holds.probe(GRAPHICS_CLOCK)
        return
    if type(gpu.driver).lock_graphics_clock is GpuDriver.lock_graphics_clock:
        raise unsupported(Capability.LOCK_CLOCKS)
    with suppress_unsupported():
        rewrite_power_limit(gpu)


_PROBES: dict[Capability, Callable[[Gpu], object]] = {
    Capability.ENERGY_COUNTER: Gpu.energy,
    Capability.INSTANT_POWER: Gpu.instant_power,
    Capability.AVERAGE_POWER: Gpu.average_power,
    Capability.MEMORY_POWER: Gpu.memory_power,
    Capability.TEMPERATURE: Gpu.temperature,
    Capability.UTILIZATION: Gpu.utilization,
    Capability.MEMORY: Gpu.memory,
    Capability.PROCESSES: Gpu.processes,
    Capability.CLOCKS: Gpu.current_clocks,
    Capability.POWER_LIMIT: Gpu.power_limit,
    Capability.PERSISTENCE: Gpu.persistence,
    Capability.SET_POWER_LIMIT: rewrite_power_limit,
    Capability.LOCK_CLOCKS: _clock_control,
}
