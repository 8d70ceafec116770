"""Synchronizes with the accelerator, so that a window contains the work launched inside it.

Frameworks launch work asynchronously. Before a window's edge is recorded, the framework in use is
synchronized. Which one that is follows from the program's imports; none is required, and a build
without accelerator has nothing to wait for.

Windows wait for all streams of a GPU, because their energies are those of the whole GPU. Waiting
for the current stream alone lets messages and copies on other streams go on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from zeus.device import Gpu
from zeus.device._vendors import vendor_named

#: GPUs as frameworks know them: the name of their module in a framework, and their number in it.
Places = Sequence[tuple[str, int]]
#: Waits for these GPUs with a framework.
Wait = Callable[[ModuleType, Places], None]

FRAMEWORKS = ("torch", "jax", "cupy")


def synchronizer(framework: str | None, gpus: Sequence[Gpu]) -> Callable[[], None]:
    """Return a function that waits for the accelerator.

    Args:
        framework: "torch", "jax" or "cupy"; "auto" for those imported; `None` for none.
        gpus: The GPUs to wait for.

    Raises:
        ValueError: If the framework is not one of these.
    """
    return _waiting(framework, gpus, _WAITS)


def stream_synchronizer(framework: str | None, gpus: Sequence[Gpu]) -> Callable[[], None]:
    """Return a function that waits for the work on the current stream of each GPU only.

    It records an event on the stream that is current when it is called, and waits for that event.
    Streams other than this one, such as those of messages between ranks, are not waited for. JAX
    has one stream for computations, which is the one waited for.

    Args:
        framework: As for `synchronizer`.
        gpus: The GPUs whose current streams to wait for.

    Raises:
        ValueError: If the framework is not one of these.
    """
    return _waiting(framework, gpus, _STREAM_WAITS)


def _waiting(
    framework: str | None, gpus: Sequence[Gpu], waits_of: Mapping[str, Wait]
) -> Callable[[], None]:
    if framework is None:
        return lambda: None
    if framework != "auto" and framework not in FRAMEWORKS:
        raise ValueError(
            f"sync_execution_with must be one of {', '.join(FRAMEWORKS)}, 'auto' or None, "
            f"but got {framework!r}"
        )
    names = FRAMEWORKS if framework == "auto" else (framework,)
    waits = [(name, waits_of[name]) for name in names]
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
    _wait_apple(torch)


def _wait_torch_streams(torch: ModuleType, places: Places) -> None:
    for name, ordinal in places:
        backend = getattr(torch, name, None)
        if backend is not None and backend.is_initialized():
            event = backend.Event()
            event.record(backend.current_stream(ordinal))
            event.synchronize()
    _wait_apple(torch)


def _wait_apple(torch: ModuleType) -> None:
    # The GPU of an Apple chip has no index, and is never initialized beside the others. It has one
    # stream.
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


def _wait_cupy_streams(cupy: ModuleType, places: Places) -> None:
    for name, ordinal in places:
        backend = getattr(cupy, name, None)
        if backend is not None and backend.is_available():
            with backend.Device(ordinal):  # an event belongs to the device that is current
                event = backend.Event(disable_timing=True)
                event.record(backend.get_current_stream())
            event.synchronize()


_WAITS: dict[str, Wait] = {"torch": _wait_torch, "jax": _wait_jax, "cupy": _wait_cupy}
_STREAM_WAITS: dict[str, Wait] = {
    "torch": _wait_torch_streams,
    "jax": _wait_jax,  # its small operation is one of the stream that computes
    "cupy": _wait_cupy_streams,
}
