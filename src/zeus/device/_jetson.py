"""Power of the rails of an NVIDIA Jetson board, from its INA3221 power monitors.

Each monitor chip meters up to three rails. Newer kernels expose them as `hwmon` voltage and
current, older ones as `iio` power. There is no energy counter, so a sampler must integrate power.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zeus.device._base import Problem, Soc
from zeus.errors import CapabilityError, Reason

_DRIVERS = ("sys/bus/i2c/drivers/ina3221", "sys/bus/i2c/drivers/ina3221x")
_CHIP = re.compile(r"\d+-[0-9a-f]{4}")
_DEVICE_TREE = "proc/device-tree"

#: From 4 on, `hwmon` numbers are shunt voltages and sums of the channels before them.
_HWMON_CHANNELS = (1, 2, 3)
_IIO_CHANNELS = (0, 1, 2)

#: Labels of channels to which nothing is connected.
_NOTHING = ("", "nc")
#: Labels of the rail that feeds all others, the outermost first: the development kit of
#: the TX2 meters both its own input (VDD_MUX) and that of the module on it (VDD_IN).
_TOTAL_RAILS = ("vdd_mux", "sys_vin", "vin", "pom_5v_in", "vdd_in")


@dataclass(frozen=True)
class Channel:
    """One channel of a monitor chip.

    Attributes:
        label: The file with the name of its rail.
        files: The files whose product is the power: voltage and current, or power itself.
        divisor: Divisor that converts that product to watts.
    """

    label: Path
    files: tuple[Path, ...]
    divisor: float

    def power(self) -> float:
        """Current watts. Around 0, noise of the meter may make it slightly negative.

        Raises:
            CapabilityError: If a file cannot be read or contains no number.
        """
        return math.prod(_integer(path) for path in self.files) / self.divisor


class JetsonSoc(Soc):
    """A Jetson board.

    Attributes:
        name: The model from its device tree.
        rails: The rails that can be read, by the lower-case label.
        total_rail: The rail that feeds all others, or `None` if the board has no such meter. It
            contains the other rails (which may contain each other): never add it to them.
    """

    def __init__(self, name: str, rails: Mapping[str, Channel]) -> None:
        self.name = name
        self.rails = dict(rails)
        self.total_rail = next((total for total in _TOTAL_RAILS if total in self.rails), None)

    def powers(self) -> dict[str, float]:
        """Current watts of each rail. A rail that cannot be read now is omitted.

        Raises:
            CapabilityError: If no rail can be read.
        """
        powers = {}
        obstacle = None
        for name, channel in self.rails.items():
            try:
                powers[name] = channel.power()
            except CapabilityError as error:
                obstacle = error
        if obstacle is not None and not powers:
            raise obstacle
        return powers


def discover(root: Path = Path("/")) -> tuple[Soc | None, list[Problem]]:
    """Find the power rails of this board.

    Args:
        root: The directory that contains `sys` and `proc`.

    Returns:
        The board (a `JetsonSoc`), or `None` if it has no readable rail, and problems. Both are
        empty on a machine that is not a Jetson.
    """
    rails: dict[str, Channel] = {}
    problems: list[Problem] = []
    seen: Counter[str] = Counter()
    for chip in _chips(root):
        named, obstacles = _readable(chip)
        problems += obstacles
        for name, channel in named:
            seen[name] += 1
            # Two chips may use the same label; both rails must be listed.
            rails[name if seen[name] == 1 else f"{name}_{seen[name]}"] = channel
    if rails:
        return JetsonSoc(_device_tree(root, "model") or "Jetson", rails), problems
    if not problems and "nvidia,tegra" in _device_tree(root, "compatible"):
        problems.append(Problem("power rails", _no_monitor(root)))
    return None, problems


def _no_monitor(root: Path) -> CapabilityError:
    places = " or ".join(str(root / driver) for driver in _DRIVERS)
    return CapabilityError(
        Reason.DRIVER_ABSENT, f"no INA3221 power monitor in {places}", "sudo modprobe ina3221"
    )


def _chips(root: Path) -> Iterator[Path]:
    """Yield the directories of the monitor chips, each named by bus and address."""
    for driver in _DRIVERS:
        for chip in _listing(root / driver):
            if _CHIP.fullmatch(chip.name):
                yield chip


def _readable(chip: Path) -> tuple[list[tuple[str, Channel]], list[Problem]]:
    """Return the readable channels of a chip with their names, and problems with the others.

    A kernel may expose the same chip in both layouts: the first with any channel is used.
    """
    for layout in (_hwmon_channels, _iio_channels):
        named = []
        problems = []
        for channel in layout(chip):
            try:
                name = _name(channel.label)
                if name in _NOTHING:
                    continue
                channel.power()
            except CapabilityError as error:
                problems.append(_problem(channel, error))
            else:
                named.append((name, channel))
        if named or problems:
            return named, problems
    return [], []


def _hwmon_channels(chip: Path) -> Iterator[Channel]:
    for monitor in _listing(chip / "hwmon"):
        for number in _HWMON_CHANNELS:
            if not _switched_off(monitor / f"in{number}_enable"):
                # mV times mA are µW.
                files = (monitor / f"in{number}_input", monitor / f"curr{number}_input")
                yield Channel(monitor / f"in{number}_label", files, 1e6)


def _iio_channels(chip: Path) -> Iterator[Channel]:
    for monitor in _listing(chip):
        if monitor.name.startswith("iio:device"):
            for number in _IIO_CHANNELS:
                files = (monitor / f"in_power{number}_input",)
                yield Channel(monitor / f"rail_name_{number}", files, 1e3)


def _switched_off(enable: Path) -> bool:
    try:
        return _text(enable) == "0"
    except (OSError, ValueError):
        # Older kernels have no such switch.
        return False


def _name(label: Path) -> str:
    try:
        return _text(label).lower()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise _obstacle(label, error) from error


def _integer(path: Path) -> int:
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        raise _obstacle(path, error) from error
    try:
        return int(text)
    except ValueError:
        raise CapabilityError(
            Reason.IMPLAUSIBLE, f"{path} must contain a number, but contains {text!r}"
        ) from None


def _obstacle(path: Path, error: Exception) -> CapabilityError:
    refused = isinstance(error, PermissionError)
    return CapabilityError(Reason.NO_PERMISSION if refused else Reason.LOST, f"{path}: {error}")


def _problem(channel: Channel, error: CapabilityError) -> Problem:
    cure = ""
    if error.reason is Reason.NO_PERMISSION:
        # The numbers of the channels become wildcards, so that one command fixes them all.
        directory = shlex.quote(str(channel.label.parent))
        names = [re.sub(r"\d+", "*", path.name) for path in (channel.label, *channel.files)]
        cure = "sudo chmod a+r " + " ".join(f"{directory}/{name}" for name in names)
    fresh = CapabilityError(error.reason, error.detail, cure)
    return Problem(f"power rail of {channel.label}", fresh)


def _listing(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    return path.read_text().strip()


def _device_tree(root: Path, name: str) -> str:
    """Return a property of the device tree, whose strings end in NUL; empty if missing."""
    try:
        return (root / _DEVICE_TREE / name).read_text().replace("\0", " ").strip()
    except (OSError, ValueError):
        return ""
