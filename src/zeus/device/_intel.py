"""Intel GPUs, through the files of the Linux drivers `i915` and `xe`.

Discrete GPUs have `hwmon` sensors (Linux 6.2 and later): an energy counter in microjoules, a limit
on sustained power in microwatts (PL1), temperatures. There is no power meter. With `xe`, channel 1
is the whole card and channel 2 the GPU's package; older GPUs have only the latter. Clocks are
bounds of each tile (`xe`) or GT (`i915`), in MHz. What is known of these files is from the kernel's
documentation (sysfs-driver-intel-i915-hwmon, sysfs-driver-intel-xe-hwmon) and sources.

The kernel adds up a 32-bit register, so that 262 kJ are lost whenever a GPU takes more than that
(4 minutes at 1000 W) without being read. It is polled more often while anything is measured.
"""

from __future__ import annotations

import math
import platform
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from zeus.device._base import (
    AbsentGpuDriver,
    Capability,
    ClockRange,
    CurrentClocks,
    GpuDriver,
    GpuIdentity,
    PowerLimits,
    Problem,
    SupportedClocks,
    clock_refused,
    limit_refused,
    unsupported,
)
from zeus.device._visible import CARD
from zeus.errors import CapabilityError, Reason

DRM = Path("/sys/class/drm")

_VENDOR = "Intel"
_PCI_VENDOR = 0x8086
_DRIVERS = ("i915", "xe")
_CARD = re.compile(r"card\d+")
_NUMBER = re.compile(r"\d+")
_MICRO = 1e-6
_MILLI = 1e-3

# Of the whole card, then of the GPU's package; `i915` has only the former.
_CHANNELS = (1, 2)
# Limits are kept in steps of 1/8 W or so.
_LIMIT_STEP = 0.5
# Clocks are multiples of 50/3 MHz.
_CLOCKS_PER_50_MHZ = 3
# No lower bound of the power limit is published, and limits below it are silently raised. So we
# offer less than there may be.
_LEAST_SHARE = 0.5

# Where a card's `hwmon` lies is the same for both drivers, where its clocks are is not.
_XE_CLOCKS = "{}_freq"
_I915_CLOCKS = "rps_{}_freq_mhz"

_NAMES = {
    0x0BD5: "Data Center GPU Max 1550",
    0x0BDA: "Data Center GPU Max 1100",
    0x4905: "Iris Xe MAX",
    0x5690: "Arc A770M",
    0x5691: "Arc A730M",
    0x5692: "Arc A550M",
    0x5693: "Arc A370M",
    0x5694: "Arc A350M",
    0x56A0: "Arc A770",
    0x56A1: "Arc A750",
    0x56A2: "Arc A580",
    0x56A5: "Arc A380",
    0x56A6: "Arc A310",
    0x56C0: "Data Center GPU Flex 170",
    0x56C1: "Data Center GPU Flex 140",
    0xE20B: "Arc B580",
    0xE20C: "Arc B570",
    0xE211: "Arc Pro B60",
    0xE212: "Arc Pro B50",
}
"""Product names by PCI device number, without "Intel"."""


@dataclass(frozen=True)
class _Clocks:
    """The bounds of one tile's or GT's clock: a directory, and how its files are called."""

    directory: Path
    pattern: str

    def path(self, what: str) -> Path:
        return self.directory / self.pattern.format(what)

    def read(self, what: str) -> int:
        return _integer(self.path(what), Capability.CLOCKS)

    def offered(self) -> ClockRange:
        """The range of the hardware."""
        low, high = ("rpn", "rp0") if self.pattern == _XE_CLOCKS else ("RPn", "RP0")
        return ClockRange(self.read(low), self.read(high))

    def usual(self) -> ClockRange:
        """The range after the driver was loaded: a part of `offered`, which i915 shows."""
        kept = _Clocks(self.directory / ".defaults", self.pattern)
        return kept.in_force() if kept.path("min").exists() else self.offered()

    def in_force(self) -> ClockRange:
        return ClockRange(self.read("min"), self.read("max"))

    def set(self, clock: ClockRange) -> None:
        """Set both bounds, in an order in which the lower never exceeds the upper."""
        _write(self.path("min"), self.offered().minimum)
        _write(self.path("max"), clock.maximum)
        if self.path("boost").exists():  # i915 goes there, whatever the bounds, if a program waits
            _write(self.path("boost"), clock.maximum)
        _write(self.path("min"), clock.minimum)


class IntelGpuDriver(GpuDriver):
    """One card.

    Args:
        card: Its directory below `/sys/class/drm`.
        address: Its PCI address.
        tiles: Number of its tiles.
    """

    def __init__(self, card: Path, address: str, tiles: int = 1) -> None:
        self._device = card / "device"
        self._sensors = _sensors(self._device)
        self._clocks = _clocks(card)
        self._kernel_driver = _kernel_driver(self._device)
        self.identity = GpuIdentity(address, _name(self._device), _VENDOR, address)
        self.slice_uuids = tuple(f"tile{number}" for number in range(tiles)) if tiles > 1 else ()
        self._highest_limit = 0.0
        self._lock = threading.Lock()
        self._counted, self._latest = 0, 0  # µJ before the counter restarted, and since

    def seen_as_slice(self, slice_uuid: str) -> GpuDriver:
        """Return the card as the first of its tiles that a framework sees, or another tile."""
        if slice_uuid == CARD:
            driver = IntelGpuDriver(self._device.parent, self.identity.key, len(self.slice_uuids))
            driver.identity = replace(self.identity, whole_module=True)
            return driver
        identity = replace(
            self.identity,
            key=f"{self.identity.key}/{slice_uuid}",
            name=f"{self.identity.name} ({slice_uuid})",
            whole_module=True,
        )
        whole = unsupported(slice_uuid, "the first tile of this card reports and sets it for all")
        return AbsentGpuDriver(identity, whole)

    def version(self) -> str:
        return f"{self._kernel_driver} {platform.release()}"

    # Energy and power.

    def energy(self) -> float:
        """Joules. The counter restarts when the driver is loaded again; what was counted stays."""
        path = self._sensor("energy{}_input", Capability.ENERGY_COUNTER)
        with self._lock:  # an older value processed after a newer one would count as a restart
            value = _integer(path, Capability.ENERGY_COUNTER)
            if value < self._latest:
                self._counted += self._latest
            self._latest = value
            return (self._counted + value) * _MICRO

    def temperature(self) -> float:
        labels = sorted(self._files("temp*_label"))
        package = [path for path in labels if _text(path) == "pkg"]
        inputs = [path.with_name(path.name.replace("label", "input")) for path in package]
        for path in inputs or sorted(self._files("temp*_input")):
            return _integer(path, Capability.TEMPERATURE) * _MILLI
        raise unsupported(Capability.TEMPERATURE)

    def power_limit(self) -> float:
        path = self._limit()
        watts = _integer(path, Capability.POWER_LIMIT) * _MICRO
        if watts == 0:
            raise CapabilityError(
                Reason.UNSUPPORTED,
                f"{Capability.POWER_LIMIT}: {path} contains 0, so no limit is in force",
                f"write a limit in microwatts to {shlex.quote(str(path))}",
            )
        self._highest_limit = max(self._highest_limit, watts)
        return watts

    def power_limits(self) -> PowerLimits:
        """Range of the power limit: from half of the highest, as no lower bound is published.

        The highest is that of the board where it is shown; otherwise the highest that was in force.
        """
        rated = self._limit().with_name(self._limit().name.replace("_max", "_rated_max"))
        if rated.exists():
            highest = _integer(rated, Capability.POWER_LIMIT) * _MICRO
        else:
            self.power_limit()
            highest = self._highest_limit
        return PowerLimits(minimum=_LEAST_SHARE * highest, maximum=highest, default=highest)

    def set_power_limit(self, watts: float) -> None:
        """Set the power limit. The kernel raises or lowers what the hardware does not accept."""
        before = self.power_limit()
        _write(self._limit(), round(watts / _MICRO))
        kept = self.power_limit()
        if abs(kept - watts) > _LIMIT_STEP:
            _write(self._limit(), round(before / _MICRO))
            limits = self.power_limits()
            if kept > watts:
                limits = replace(limits, minimum=kept)
            else:
                limits = replace(limits, maximum=kept)
            raise limit_refused(self.identity.name, limits, watts)

    # Clocks.

    def current_clocks(self) -> CurrentClocks:
        """The clock of the fastest tile; 0 while all of them sleep."""
        return CurrentClocks(max(each.read("act") for each in self._tiles()), None)

    def supported_clocks(self) -> SupportedClocks:
        offered = self._tiles()[0].offered()
        steps = range(
            math.ceil(offered.minimum * _CLOCKS_PER_50_MHZ / 50),
            offered.maximum * _CLOCKS_PER_50_MHZ // 50 + 1,
        )
        clocks = {round(step * 50 / _CLOCKS_PER_50_MHZ) for step in steps}
        within = {each for each in clocks if offered.minimum <= each <= offered.maximum}
        return SupportedClocks(
            tuple(sorted(within | {offered.minimum, offered.maximum}, reverse=True)), ()
        )

    def locked_graphics_clock(self) -> ClockRange | None:
        """The range in force, unless it is that which the driver begins with."""
        if not self._clocks:
            return None
        first = self._clocks[0]
        in_force = first.in_force()
        return None if in_force == first.usual() else in_force

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        """Lock the clocks of all tiles; `None` returns to the range that the driver begins with."""
        for each in self._tiles():
            wanted, offered = clock or each.usual(), each.offered()
            if not offered.minimum <= wanted.minimum <= wanted.maximum <= offered.maximum:
                clocks = self.supported_clocks().graphics
                raise clock_refused(self.identity.name, "graphics clock", clocks, wanted)
        for each in self._tiles():
            each.set(clock or each.usual())

    # Files.

    def _tiles(self) -> list[_Clocks]:
        if not self._clocks:
            raise unsupported(Capability.CLOCKS, f"{self._device} shows none")
        return self._clocks

    def _limit(self) -> Path:
        return self._sensor("power{}_max", Capability.POWER_LIMIT)

    def _files(self, pattern: str) -> Iterator[Path]:
        return iter(()) if self._sensors is None else self._sensors.glob(pattern)

    def _sensor(self, pattern: str, what: Capability) -> Path:
        if self._sensors is None:
            detail = f"{self._device} has no hwmon of {' or '.join(_DRIVERS)}; it needs Linux 6.2"
            raise unsupported(what, detail)
        for channel in _CHANNELS:
            path = self._sensors / pattern.format(channel)
            if path.exists():
                return path
        raise unsupported(what, f"{self._sensors} has no {pattern.format('1')}")


def discover(root: Path = DRM) -> tuple[list[GpuDriver], list[Problem]]:
    """Find the discrete Intel GPUs, by PCI address.

    Args:
        root: The kernel's directory of graphics cards.

    Returns:
        The GPUs, and a problem for each that is integrated: its energy is that of the CPU.
    """
    drivers: list[GpuDriver] = []
    problems = []
    for address, card in sorted(_cards(root)):
        device = card / "device"
        if _sensors(device) is None and address.startswith("0000:00:"):
            reason = unsupported("integrated GPU", "its energy is in that of the CPU package")
            problems.append(Problem(f"{_name(device)} at {address}", reason))
            continue
        tiles = len(_numbered(device, "tile")) or 1
        drivers.append(IntelGpuDriver(card, address, tiles))
    return drivers, problems


def _cards(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the Intel cards with their PCI addresses."""
    for card in _listing(root):
        if not _CARD.fullmatch(card.name):
            continue  # a connector, such as card0-DP-1
        try:
            vendor = int(_text(card / "device" / "vendor"), 0)
        except (OSError, ValueError):
            continue
        if vendor == _PCI_VENDOR and _kernel_driver(card / "device") in _DRIVERS:
            yield (card / "device").resolve().name, card


def _sensors(device: Path) -> Path | None:
    """Return the `hwmon` directory of the whole card; i915 has others for its GTs."""
    for directory in _listing(device / "hwmon"):
        try:
            if _text(directory / "name") in _DRIVERS:
                return directory
        except (OSError, ValueError):
            continue
    return None


def _clocks(card: Path) -> list[_Clocks]:
    """Return the clocks of a card, one for each tile; media engines have clocks of their own."""
    found = []
    for tile in _numbered(card / "device", "tile"):
        for gt in _numbered(tile, "gt")[:1]:
            found.append(_Clocks(gt / "freq0", _XE_CLOCKS))
    if not found:
        found = [_Clocks(gt, _I915_CLOCKS) for gt in _numbered(card / "gt", "gt")]
    return [each for each in found if each.path("min").exists()]


def _numbered(directory: Path, name: str) -> list[Path]:
    """Return "name0", "name1" and so on, in this order."""
    found = [path for path in _listing(directory) if re.fullmatch(name + r"\d+", path.name)]
    return sorted(found, key=lambda path: int(_NUMBER.findall(path.name)[-1]))


def _kernel_driver(device: Path) -> str:
    return (device / "driver").resolve().name


def _name(device: Path) -> str:
    try:
        number = int(_text(device / "device"), 0)
    except (OSError, ValueError):
        return "Intel GPU"
    return f"Intel {_NAMES.get(number, f'GPU {number:04x}')}"


def _integer(path: Path, what: Capability) -> int:
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        raise _obstacle(path, error, what, "r") from error
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise CapabilityError(
            Reason.IMPLAUSIBLE, f"{path} must contain a number of at least 0, but contains {text!r}"
        )
    return value


def _write(path: Path, value: int) -> None:
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise _obstacle(path, error, path.name, "w") from error


def _obstacle(path: Path, error: Exception, what: str, mode: str) -> CapabilityError:
    if isinstance(error, PermissionError):
        cure = f"sudo chmod a+{mode} {shlex.quote(str(path))}"
        return CapabilityError(Reason.NO_PERMISSION, f"{path}: {error.strerror}", cure)
    if isinstance(error, FileNotFoundError) and path.parent.exists():
        return unsupported(what, f"{path} is missing")
    return CapabilityError(Reason.LOST, f"{path}: {error}")


def _listing(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    return path.read_text().strip()
