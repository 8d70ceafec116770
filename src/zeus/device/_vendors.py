"""The vendors of GPUs, one entry each.

A new vendor is one entry at the end of this file and one module with its `GpuDriver`, or the same
in another distribution (docs/extending.md). Only a name and a discovery are needed: without the
rest, the vendor's GPUs are visible in the order of their driver, and windows wait for no framework
that runs on them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus._extensions import GPU_VENDORS, extensions
from zeus._rules import shown
from zeus.device._base import GpuDriver, Problem
from zeus.device._visible import (
    Candidate,
    Visible,
    visible_all,
    visible_amd,
    visible_intel,
    visible_nvidia,
)
from zeus.errors import CapabilityError, ExtensionError, Reason

logger = logging.getLogger(__name__)

DRM_VARIABLE = "ZEUS_DRM_ROOT"
"""Another directory than the kernel's of graphics cards."""

Discovered = tuple[list[GpuDriver], list[Problem]]


def _no_gpus() -> Discovered:
    return [], []


@dataclass(frozen=True)
class GpuVendor:
    """Everything that depends on the vendor of a GPU, apart from its driver.

    Attributes:
        name: As in `GpuIdentity.vendor`.
        discover: Finds all its GPUs, as the driver numbers them, and problems. What it raises is
            a problem with all its GPUs.
        visible: Which of them a framework sees, in its order, in an environment.
        variables: Environment variables that `visible` depends on.
        kernel_driver: Name of its kernel driver; empty if unknown.
        framework_module: Module through which PyTorch and CuPy offer its GPUs, such as "cuda" for
            `torch.cuda`; empty if unknown.
        shares_modules: Whether a GPU that is one part of a module (`GpuIdentity.whole_module`) may
            share it with other users.
    """

    name: str
    discover: Callable[[], Discovered] = _no_gpus
    visible: Callable[[Sequence[Candidate], Mapping[str, str]], list[Visible]] = visible_all
    variables: tuple[str, ...] = ()
    kernel_driver: str = ""
    framework_module: str = ""
    shares_modules: bool = True

    def gpus(self) -> Discovered:
        """Find all its GPUs, and problems. Never raises."""
        try:
            drivers, problems = self.discover()
            for driver in drivers:
                if driver.identity.vendor != self.name:
                    raise CapabilityError(  # it would be ordered, and hidden, by another's rule
                        Reason.IMPLAUSIBLE,
                        f"`identity.vendor` of its GPUs must be {self.name!r}, but is "
                        f"{driver.identity.vendor!r}",
                    )
            return drivers, problems
        except CapabilityError as error:
            obstacle = error
        except Exception as error:  # which costs this vendor's GPUs, and no other's
            failure = f"discovery failed: {type(error).__name__}: {error}"
            obstacle = CapabilityError(Reason.DRIVER_ABSENT, failure)
        return [], [Problem(f"{self.name} GPUs", obstacle)]

    def seen(
        self, candidates: Sequence[Candidate], environment: Mapping[str, str]
    ) -> list[Visible]:
        """Apply `visible`. Never raises: GPUs of which it is not known are not offered.

        Args:
            candidates: The GPUs of this vendor, as its driver numbers them.
            environment: The environment variables.
        """
        try:
            found = self.visible(candidates, environment)
            for each in found:
                candidates[each.position]
        except Exception as error:  # of code that may not be ours
            logger.warning(
                "which %s GPUs are visible is unknown: %s: %s",
                self.name,
                type(error).__name__,
                error,
            )
            return []
        return found


_registered: dict[str, GpuVendor] = {}


def register(vendor: GpuVendor) -> None:
    """Add a vendor, whose GPUs come after those of the vendors before it."""
    _registered[vendor.name] = vendor


def vendors() -> tuple[GpuVendor, ...]:
    """Return the registered vendors, in the order of their GPUs."""
    return (*_registered.values(), *_others().values())


def vendor_named(name: str) -> GpuVendor:
    """Return a vendor by name; one about which nothing is known if it is not registered."""
    return _registered.get(name) or _others().get(name) or GpuVendor(name)


def _others() -> dict[str, GpuVendor]:
    """Return the vendors that other distributions add, by name."""
    return extensions(GPU_VENDORS, _registered, _usable)


def _usable(name: str, vendor: Any) -> GpuVendor:
    if not isinstance(vendor, GpuVendor):
        raise ExtensionError(f"it must be a GpuVendor, but is {shown(vendor)}")
    if vendor.name != name:
        raise ExtensionError(f"`name` must be that of its entry point, but is {vendor.name!r}")
    return vendor


def visibility_variables() -> list[str]:
    """Return the environment variables that hide or reorder GPUs."""
    return list(dict.fromkeys(name for vendor in vendors() for name in vendor.variables))


def discover_gpus() -> Discovered:
    """Find the GPUs of all vendors, and problems. Never raises."""
    found = [vendor.gpus() for vendor in vendors()]
    return (
        [driver for drivers, _ in found for driver in drivers],
        [problem for _, problems in found for problem in problems],
    )


# Driver modules are imported on discovery: a simulated node needs none of them.


def _nvidia_gpus() -> Discovered:
    from zeus.device._nvml import discover  # noqa: PLC0415

    return discover()


def _amd_gpus() -> Discovered:
    from zeus.device._amd import discover  # noqa: PLC0415

    return discover()


def _intel_gpus() -> Discovered:
    from zeus.device._intel import discover  # noqa: PLC0415

    root = os.environ.get(DRM_VARIABLE)
    return discover(Path(root)) if root else discover()


register(
    GpuVendor(
        "NVIDIA",
        discover=_nvidia_gpus,
        visible=visible_nvidia,
        variables=("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        kernel_driver="nvidia",
        framework_module="cuda",
    )
)
register(
    GpuVendor(
        "AMD",
        discover=_amd_gpus,
        visible=visible_amd,
        variables=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        kernel_driver="amdgpu",
        framework_module="cuda",  # ROCm builds offer AMD's GPUs under CUDA's name
        shares_modules=False,  # two dies of a board usually belong to one job
    )
)
register(
    GpuVendor(
        "Intel",
        discover=_intel_gpus,
        visible=visible_intel,
        variables=("ZE_FLAT_DEVICE_HIERARCHY", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
        framework_module="xpu",
        shares_modules=False,  # the tiles of a card usually belong to one job
    )
)
