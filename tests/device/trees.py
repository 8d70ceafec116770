"""Directory trees that look like what the kernel shows, and ways to lose access to them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534
RANGE = 262_143_328_850


class Powercap:
    """A sysfs with powercap zones: nested below `devices`, linked side by side in `class`."""

    def __init__(self, sysfs: Path) -> None:
        self.devices = sysfs / "devices/virtual/powercap"
        self.root = sysfs / "class/powercap"
        self.root.mkdir(parents=True)

    def add(
        self,
        zone: str,
        name: str,
        energy: int | str | None = 0,
        maximum: int | str | None = RANGE,
        *,
        control: str = "intel-rapl",
        linked: bool = True,
    ) -> Path:
        """Add zone "0", subzone "0:1" and so on; `None` leaves a file out."""
        directory = self.zone(zone, control)
        directory.mkdir(parents=True)
        (directory / "name").write_text(f"{name}\n")
        for file, value in (("energy_uj", energy), ("max_energy_range_uj", maximum)):
            if value is not None:
                (directory / file).write_text(f"{value}\n")
        # The kernel's own way round in circles.
        (directory / "device").symlink_to("..")
        (directory / "subsystem").symlink_to(os.path.relpath(self.root, directory))
        if linked:
            for target in (self.devices / control, directory):
                link = self.root / target.name
                if not link.is_symlink():
                    link.symlink_to(os.path.relpath(target, self.root))
        return directory

    def zone(self, zone: str, control: str = "intel-rapl") -> Path:
        numbers = zone.split(":")
        nested = [f"{control}:" + ":".join(numbers[: depth + 1]) for depth in range(len(numbers))]
        return self.devices.joinpath(control, *nested)

    def set(self, zone: str, energy: int | str) -> None:
        # In place: the driver keeps the file open.
        (self.zone(zone) / "energy_uj").write_text(f"{energy}\n")


class Jetson:
    """A root directory with INA3221 chips."""

    def __init__(self, root: Path, model: str = "NVIDIA Jetson AGX Orin") -> None:
        self.root = root
        tree = root / "proc/device-tree"
        tree.mkdir(parents=True)
        (tree / "model").write_text(f"{model}\0")
        (tree / "compatible").write_text("nvidia,p3701-0000\0nvidia,tegra234\0")

    def hwmon(self, chip: str, rails: dict[int, tuple[str, int, int]], number: int = 3) -> Path:
        """Add a chip in the newer layout: channel -> label, mV, mA."""
        monitor = self.root / f"sys/bus/i2c/drivers/ina3221/{chip}/hwmon/hwmon{number}"
        monitor.mkdir(parents=True)
        for channel, (label, millivolts, milliamperes) in rails.items():
            (monitor / f"in{channel}_label").write_text(f"{label}\n")
            (monitor / f"in{channel}_input").write_text(f"{millivolts}\n")
            (monitor / f"curr{channel}_input").write_text(f"{milliamperes}\n")
        return monitor

    def iio(self, chip: str, rails: dict[int, tuple[str, int]], driver: str = "ina3221x") -> Path:
        """Add a chip in the older layout: channel -> label, mW."""
        monitor = self.root / f"sys/bus/i2c/drivers/{driver}/{chip}/iio:device0"
        monitor.mkdir(parents=True)
        for channel, (label, milliwatts) in rails.items():
            (monitor / f"rail_name_{channel}").write_text(f"{label}\n")
            (monitor / f"in_power{channel}_input").write_text(f"{milliwatts}\n")
        return monitor


@contextmanager
def open_directory() -> Iterator[Path]:
    """A temporary directory that every user can enter, unlike pytest's own."""
    directory = Path(tempfile.mkdtemp(prefix="zeus tree "))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a while, if root, to whom no file is unreadable."""
    if os.geteuid() != 0:
        yield
        return
    group = os.getegid()
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def lock(*paths: Path) -> None:
    """Let only root read these files, as the kernel does; not even the owner, if not root."""
    for path in paths:
        path.chmod(0o400 if os.geteuid() == 0 else 0)


def follow(cure: str) -> None:
    """Do what a cure says, in a shell, with the rights that this process has already."""
    assert cure.startswith("sudo ")
    subprocess.run(cure.removeprefix("sudo "), shell=True, check=True)


def open_files(root: Path) -> int:
    """How many files below a directory this process has open; others may come and go meanwhile."""
    opened = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one of this very listing
            opened += descriptor.readlink().is_relative_to(root)
    return opened


class Drm:
    """A sysfs with graphics cards: devices by PCI address, linked in `class/drm`.

    Args:
        sysfs: An empty directory.
    """

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.root = sysfs / "class/drm"
        self.root.mkdir(parents=True)

    def card(
        self,
        number: int = 0,
        address: str = "0000:03:00.0",
        *,
        driver: str = "xe",
        device: int = 0xE20B,
        vendor: int = 0x8086,
        sensors: Mapping[str, object] | None = None,
    ) -> Path:
        """Add a card; returns the directory of its device. `None` leaves out its `hwmon`."""
        found = self.sysfs / "devices/pci0000:00" / address
        found.mkdir(parents=True)
        write(found, {"vendor": f"{vendor:#06x}", "device": f"{device:#06x}"})
        drivers = self.sysfs / "bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (found / "driver").symlink_to(os.path.relpath(drivers, found))
        card = self.root / f"card{number}"
        card.mkdir()
        (card / "device").symlink_to(os.path.relpath(found, card))
        (self.root / f"card{number}-DP-1").mkdir()  # a connector
        if sensors is not None:
            write(found / f"hwmon/hwmon{number + 3}", {"name": driver, **sensors})
        return found

    def clocks(self, card: int, *places: str, low: int = 300, high: int = 2400) -> None:
        """Add the files of clocks to "tile0/gt0" (xe) or "gt0" (i915) of a card."""
        for place in places:
            if place.startswith("tile"):
                directory, pattern = self.root / f"card{card}/device" / place / "freq0", "{}_freq"
                limits = {"rpn": low, "rp0": high}
            else:
                directory, pattern = self.root / f"card{card}/gt" / place, "rps_{}_freq_mhz"
                limits = {"RPn": low, "RP0": high, "boost": high}
            values = {"min": low, "max": high, "act": 0, "cur": low, **limits}
            write(directory, {pattern.format(name): value for name, value in values.items()})


def write(directory: Path, files: Mapping[str, object]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        # Not as drivers write: tests replace what the kernel does then.
        (directory / name).write_bytes(f"{content}\n".encode())
    return directory
