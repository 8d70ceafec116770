"""AMD's own Python binding `amdsmi`: loading it, finding its GPUs and calling its functions.

The binding is imported only after its C library has loaded: without it, or with one of another
release, importing it prints to stdout and fails in several ways. Its errors and its placeholders
for unknown values are converted to `CapabilityError` here.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from zeus.device._base import Capability, implausible, unsupported
from zeus.errors import CapabilityError, KnobError, Reason

LIBRARY = "libamd_smi.so"
_INSTALL_LIBRARY = "install AMD SMI, which ROCm packages as amd-smi-lib"
_MATCH_RELEASES = "install the amdsmi release of this ROCm: pip install /opt/rocm/share/amd_smi"
_GRANT_READING = "join the groups that may read it, `usermod -aG render,video $USER`, or use root"
_GRANT_CONTROL = (
    "an administrator starts the node agent (sudo zeus agent run, or systemctl enable --now "
    "zeus-agent); or run as root: the amdgpu driver accepts settings from root only"
)

# A field with all bits set is not supported by this part. The binding replaces most of them by
# "N/A", but not in every width.
ALL_64_BITS = 2**64 - 1
NOT_FILLED_IN = ("N/A", 2**16 - 1, 2**32 - 1, ALL_64_BITS)

# The compute partition in which the framework sees a package as one GPU.
_WHOLE_PACKAGE = "SPX"

# Numbers of amdsmi_status_t.
_INVALID, _OUT_OF_BOUNDS = 1, 17
_NOT_FOUND, _NOT_INITIALIZED = 31, 32
_DRIVER_NOT_LOADED = 34
_REASONS = {
    4: Reason.DRIVER_ABSENT,  # FAIL_LOAD_MODULE
    8: Reason.HANGS,  # TIMEOUT
    10: Reason.NO_PERMISSION,  # NO_PERM
    12: Reason.LOST,  # IO, the kernel's error for a GPU that fell off the bus
    18: Reason.DRIVER_ABSENT,  # INIT_ERROR
    _NOT_FOUND: Reason.LOST,
    _NOT_INITIALIZED: Reason.DRIVER_ABSENT,
    33: Reason.LOST,  # NO_SLOT
    _DRIVER_NOT_LOADED: Reason.DRIVER_ABSENT,
    42: Reason.IMPLAUSIBLE,  # UNEXPECTED_SIZE
    43: Reason.IMPLAUSIBLE,  # UNEXPECTED_DATA
    51: Reason.DRIVER_ABSENT,  # NO_DRV
    54: Reason.LOST,  # AMDGPU_RESTART_ERR
}


class UnusableLibraryError(CapabilityError):
    """The library is installed, but its binding is missing or does not match it."""


class _StaleHandleError(CapabilityError):
    """The library was shut down, and perhaps started again, since the handle was made."""


def load_binding() -> Any:
    """Import the binding, suppressing its output on failure.

    Raises:
        CapabilityError: If the library or the binding is missing, or they do not match.
    """
    if "amdsmi" not in sys.modules and not _library_loads():
        raise CapabilityError(Reason.DRIVER_ABSENT, f"{LIBRARY} cannot be loaded", _INSTALL_LIBRARY)
    try:
        with quiet_stdout():
            return importlib.import_module("amdsmi")
    except ImportError as error:
        from zeus._installation import add_extras  # noqa: PLC0415  (for an error only)

        raise UnusableLibraryError(Reason.DRIVER_ABSENT, str(error), add_extras("amd")) from error
    except Exception as error:
        # A library of another release lacks symbols, which the binding resolves all at once.
        detail = f"{LIBRARY} and the amdsmi package do not match: {error}"
        raise UnusableLibraryError(Reason.DRIVER_ABSENT, detail, _MATCH_RELEASES) from error


def _library_loads() -> bool:
    """Whether the library is on the binding's search path, in its order."""
    rocm = os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH"))
    places = [str(Path(rocm) / "lib" / LIBRARY)] if rocm else []
    places.append(LIBRARY)
    package = _package_folder()
    if package is not None:
        places.append(str(package / LIBRARY))
    places.append(str(Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib" / LIBRARY))
    return any(_loads(place) for place in places)


def _loads(place: str) -> bool:
    try:
        ctypes.CDLL(place)
    except OSError:
        return False
    return True


def _package_folder() -> Path | None:
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("amdsmi")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).resolve().parent
    return None


class _QuietStdout:
    """Standard output that discards this thread's output and passes on that of the others."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        if self._stream is None or threading.get_ident() == self._thread:
            return len(text)
        return self._stream.write(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Discard the standard output of this thread, but not of others."""
    quiet: Any = _QuietStdout(sys.stdout)
    with contextlib.redirect_stdout(quiet):
        yield


class GpuHandle:
    """The binding's handle of one GPU, renewed when the library was restarted.

    Attributes:
        binding: The module, for its enumerations.
        pci_address: PCI address of the GPU, or `None` if the library does not report it.
    """

    def __init__(self, binding: Any, handle: Any) -> None:
        self.binding = binding
        self._handle = handle
        self.pci_address: str | None = self.answer("amdsmi_get_gpu_device_bdf")

    def call(self, function: str, *arguments: Any, cure: str = _GRANT_READING) -> Any:
        """Call a function of the binding on this GPU.

        Raises:
            CapabilityError: If the call fails.
            KnobError: If the library does not accept an argument.
        """
        try:
            return _call(self.binding, function, self._handle, *arguments, cure=cure)
        except _StaleHandleError:
            self._find_again()
            return _call(self.binding, function, self._handle, *arguments, cure=cure)

    def control(self, function: str, *arguments: Any) -> None:
        """Call a function that changes the GPU; raises what `call` does."""
        self.call(function, *arguments, cure=_GRANT_CONTROL)

    def answer(self, function: str) -> Any:
        """Return the result of a function for this GPU, without a retry; `None` if it fails."""
        return _answer(self.binding, function, self._handle)

    # Identity.

    def key(self) -> str:
        """The UUID or, without one, the PCI address.

        Raises:
            CapabilityError: If the GPU has neither.
        """
        uuid: str = self.answer("amdsmi_get_gpu_device_uuid") or ""
        key = uuid or self.pci_address
        if key is None:
            raise CapabilityError(Reason.LOST, "a GPU reports neither UUID nor PCI address")
        return key

    def product_name(self, market_name: str) -> str:
        """Return the market name or, without one, that of the board."""
        if market_name != "N/A":
            return market_name
        with contextlib.suppress(CapabilityError):
            board_name: str = self.call("amdsmi_get_gpu_board_info")["product_name"]
            if board_name != "N/A":
                return board_name
        return "AMD GPU"

    def is_partition(self) -> bool:
        """Whether the framework sees only a part of the package as this GPU."""
        with contextlib.suppress(CapabilityError):
            mode = self.call("amdsmi_get_gpu_compute_partition")
            return mode not in ("", "N/A", _WHOLE_PACKAGE)
        return False

    def _find_again(self) -> None:
        # The library has no reference count: when another part of the program shuts it down, it is
        # shut down for us too, and the handles of the next start are new ones.
        _call(self.binding, "amdsmi_init")
        for handle in _call(self.binding, "amdsmi_get_processor_handles"):
            address = _answer(self.binding, "amdsmi_get_gpu_device_bdf", handle)
            if address is not None and address == self.pci_address:
                self._handle = handle
                return
        raise CapabilityError(Reason.LOST, f"no GPU responds at {self.pci_address} any more")


def start(binding: Any) -> list[GpuHandle]:
    """Start the library and return its GPUs, in HIP's order.

    That order comes from the library where it reports it (since ROCm 6.4), else from PCI addresses.

    Raises:
        CapabilityError: If the library does not start or lists nothing.
    """
    _call(binding, "amdsmi_init")
    listed = _call(binding, "amdsmi_get_processor_handles")
    handles = [GpuHandle(binding, handle) for handle in listed]
    numbers = [_hip_number(handle) for handle in handles]
    if None not in numbers and len(set(numbers)) == len(numbers):
        places = sorted(range(len(handles)), key=lambda i: numbers[i] or 0)
        return [handles[place] for place in places]
    if any(handle.pci_address is None for handle in handles):
        return handles
    return sorted(handles, key=lambda handle: handle.pci_address or "")


def _hip_number(handle: GpuHandle) -> int | None:
    info = handle.answer("amdsmi_get_gpu_enumeration_info")
    number = info.get("hip_id") if info else None
    return number if isinstance(number, int) else None


def _answer(binding: Any, function: str, handle: Any) -> Any:
    """Return the result of a function, or `None` if it fails."""
    with contextlib.suppress(CapabilityError):
        return _call(binding, function, handle)
    return None


def _call(binding: Any, function: str, *arguments: Any, cure: str = _GRANT_READING) -> Any:
    """Call a function of the binding, converting its errors.

    Raises:
        CapabilityError: If the call fails.
        KnobError: If the library does not accept an argument.
    """
    call: Callable[..., Any] | None = getattr(binding, function, None)
    if call is None:
        raise unsupported(function, "this release of amdsmi does not have it")
    try:
        return call(*arguments)
    except binding.AmdSmiException as error:
        raise _translated(function, error, cure) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The binding fails on unexpected values from the library.
        raise implausible(function, f"{type(error).__name__}: {error}") from error


def _translated(function: str, error: Any, cure: str) -> CapabilityError | KnobError:
    code = getattr(error, "err_code", None)
    detail = f"{function}: {getattr(error, 'err_info', error)}"
    if code in (_INVALID, _OUT_OF_BOUNDS) and "_set_" in function:
        return KnobError(detail)
    reason = _REASONS.get(code, Reason.UNSUPPORTED) if code is not None else Reason.UNSUPPORTED
    if code in (_NOT_INITIALIZED, _NOT_FOUND):
        return _StaleHandleError(reason, detail)
    return CapabilityError(reason, detail, cure if reason is Reason.NO_PERMISSION else "")


def filled_in(what: Capability, value: int | str) -> int:
    """Return the value of a field.

    Raises:
        CapabilityError: If this part does not report it.
    """
    if value in NOT_FILLED_IN or isinstance(value, str):
        raise unsupported(what, "this part does not report it")
    return value
