"""Synchronizes with the accelerator, so that a window contains the work launched inside it.

Frameworks launch work asynchronously. Before a window's edge is recorded, the framework in use is
synchronized. Which one that is follows from the program's imports; none is required, and a build
without accelerator has nothing to wait for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType

from zeus.device import Gpu
from zeus.device._vendors import vendor_named

#: GPUs as frameworks know them: the name of their module in a framework, and their number in it.
Places = Sequence[tuple[str, int]]

FRAMEWORKS = ("torch", "jax", "cupy")


def synchronizer(framework: str | None, gpus: Sequence[Gpu]) -> Callable[[], None]:
    """Return a function that waits for the accelerator.

    Args:
        framework: "torch", "jax" or "cupy"; "auto" for those imported; `None` for none.
        gpus: The GPUs to wait for.

    Raises:
        ValueError: If the framework is not one of these.
    """
    if framework is None:
        return lambda: None
    if framework != "auto" and framework not in FRAMEWORKS:
        raise ValueError(
            f"sync_execution_with must be one of {', '.join(FRAMEWORKS)}, 'auto' or None, "
            f"but got {framework!r}"
        )
    names = FRAMEWORKS if framework == "auto" else (framework,)
    waits = [(name, _WAITS[name]) for name in names]
    modules = sys.modules
    places = [(vendor_named(gpu.identity.vendor).framework_module, gpu.ordinal) for gpu in gpus]

    def wait() -> None:
        for name, wait_for in waits:
            module = modules.get(name)
            if module is not None:
                wait_for(module, places)

    return wait


def _wait_torch(torch: ModuleType, places: Places) -> None:
    for name, ordinal in places:
        backend = getattr(torch, name, None)
        # Before initialization nothing has been launched, and synchronizing would initialize it.
        if backend is not None and backend.is_initialized():
            backend.synchronize(ordinal)
    # The GPU of an Apple chip has no index, and is never initialized beside the others.
    if sys.platform == "darwin" and torch.backends.mps.is_available():
        torch.mps.synchronize()


def _wait_jax(jax: ModuleType, places: Places) -> None:
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and not getattr(bridge, "_backends", True):
        return  # imported but not started
    ordinals = [ordinal for _, ordinal in places]
    for device in jax.local_devices():
        # `id` counts over all processes of a job; `local_hardware_id` is the driver's index.
        local = getattr(device, "local_hardware_id", None)
        if device.platform != "cpu" and (device.id if local is None else local) in ordinals:
            # A device runs its work in order: a last small operation ends after the rest.
            (jax.device_put(0.0, device) + 0).block_until_ready()


def _wait_cupy(cupy: ModuleType, places: Places) -> None:
    for name, ordinal in places:
        backend = getattr(cupy, name, None)
        if backend is not None and backend.is_available():
            backend.Device(ordinal).synchronize()


_WAITS: dict[str, Callable[[ModuleType, Places], None]] = {
    "torch": _wait_torch,
    "jax": _wait_jax,
    "cupy": _wait_cupy,
}
