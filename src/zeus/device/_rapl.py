"""CPU and DRAM energy through Linux powercap (RAPL), on Intel and AMD.

The kernel keeps a tree of zones, each with a counter in microjoules that wraps. A zone is
identified by its `name` only: directory numbers follow the order in which drivers were loaded.
Counted are the packages of the control type `intel-rapl` and the memory below them. The same
packages through `intel-rapl-mmio`, the whole platform (`psys`) and the parts of a package (`core`,
`uncore`) would count the same joules twice.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zeus.device._base import Cpu, CpuDriver, Problem, unsupported
from zeus.errors import CapabilityError, Reason

POWERCAP = Path("/sys/class/powercap")

#: More than any package or its memory draws, in watts: bounds how fast a counter wraps.
_GENEROUS_POWER = 1000.0
_MICRO = 1e6

_CONTROL_TYPE = "intel-rapl"
_ZONE_DIRECTORY = re.compile(r"intel-rapl(:\d+)+")
_PACKAGE_NAME = re.compile(r"package-(\d+)(-die-\d+)?")
_X86 = frozenset({"x86_64", "amd64", "i386", "i686"})


class EnergyCounter:
    """One `energy_uj` file, made monotonic.

    The file stays open: reading it costs one system call, which works alike in every thread and
    forked process because it passes its own position. Between two readings the
    counter may wrap once. A counter that restarts at 0 (some machines do so on suspend) cannot be
    distinguished from one that wrapped: such a reading is up to one range too high.

    Args:
        path: The `energy_uj` file.
        range_uj: The highest value of the counter before it wraps to 0, in µJ.
        descriptor: The file, opened by a process that may; closed with this object.

    Raises:
        OSError: If the file cannot be opened.
    """

    def __init__(self, path: Path, range_uj: int, descriptor: int | None = None) -> None:
        self.path = path
        self.range_uj = range_uj
        self.descriptor = os.open(path, os.O_RDONLY) if descriptor is None else descriptor
        # Not at exit: threads may still be reading then, and the kernel closes it anyway.
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        # Last raw value and the µJ of all wraps before it. One object, replaced at once, so that
        # a fork in the middle of a reading never leaves a wrap counted but not remembered.
        self._state = (0, 0)

    def read(self) -> int:
        """Microjoules since the counter was at 0 before the first reading.

        Raises:
            CapabilityError: If the file is gone or contains no plausible number.
        """
        if os.getpid() != self._process:
            # Another thread may have held the lock at the fork: it would stay locked here.
            self._lock = threading.Lock()
            self._process = os.getpid()
        # The system call belongs inside: an older value processed after a newer one would count
        # as a wrap.
        with self._lock:
            raw = self._raw()
            previous, wrapped = self._state
            if raw < previous:
                # 0 to range_uj are range_uj + 1 values.
                wrapped += self.range_uj + 1
            self._state = (raw, wrapped)
        return wrapped + raw

    def _raw(self) -> int:
        try:
            content = os.pread(self.descriptor, 32, 0)
        except OSError as error:
            raise _obstacle(self.path, error) from error
        return _integer(self.path, content, self.range_uj)


class RaplCpuDriver(CpuDriver):
    """The energy of one package: the sum over its dies.

    Args:
        dies: The package counters, one per die.
        dram: The memory counters, if there are any.
        dram_obstacle: Why the memory counters that exist cannot be used.
    """

    def __init__(
        self,
        dies: Sequence[EnergyCounter],
        dram: Sequence[EnergyCounter] = (),
        dram_obstacle: CapabilityError | None = None,
    ) -> None:
        self.dies = tuple(dies)
        self.dram = tuple(dram)
        self._dram_obstacle = dram_obstacle
        smallest_range = min(counter.range_uj for counter in (*self.dies, *self.dram))
        self.wrap_period = smallest_range / _MICRO / _GENEROUS_POWER

    def energy(self) -> float:
        """Joules of the package, all dies together."""
        return _joules(self.dies)

    def dram_energy(self) -> float:
        """Joules of the memory attached to this package, which `energy` does not contain."""
        if self._dram_obstacle is not None:
            raise self._dram_obstacle.fresh()
        if not self.dram:
            raise unsupported("DRAM energy counter", "this CPU reports none")
        return _joules(self.dram)


def discover(
    root: Path = POWERCAP, *, system: str | None = None, machine: str | None = None
) -> tuple[list[Cpu], list[Problem]]:
    """Find the CPU packages whose energy can be read.

    Args:
        root: Directory of the kernel's powercap zones.
        system: Name of the operating system, by default this one's.
        machine: Name of the processor architecture, by default this one's.

    Returns:
        The packages in the order of their numbers, and problems. On platforms that never have
        RAPL both are empty. A package with an unreadable die is not listed: its energy would be
        incomplete.
    """
    try:
        directories, hidden = _zone_directories(root)
    except PermissionError as error:
        return [], [Problem("CPU energy", _obstacle(root, error, _chmod("a+rx", root, [root])))]
    if not directories:
        absence = _absence(root, hidden, system or platform.system(), machine or platform.machine())
        return [], [] if absence is None else [Problem("CPU energy", absence)]

    packages, problems = _packages(root, directories)
    cpus = []
    cure = _chmod("a+r", root, (path / "energy_uj" for each in packages for path in each.zones()))
    for package in packages:
        driver, obstacles = _driver(package, cure)
        problems += obstacles
        if driver is not None:
            cpus.append(Cpu(package.number, package.name, driver))
    if not cpus and not problems:
        nothing = unsupported("package energy counter", f"no zone in {root} has one")
        problems.append(Problem("CPU energy", nothing))
    return cpus, problems


@dataclass
class _Package:
    """The zone directories of one package: each die by its name, and their memory."""

    number: int
    dies: dict[str, Path] = field(default_factory=dict)
    dram: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"package-{self.number}"

    def zones(self) -> list[Path]:
        return [*self.dies.values(), *self.dram]


def _zone_directories(root: Path) -> tuple[dict[str, Path], bool]:
    """Return every zone once, parents first, and whether there are dangling links.

    The kernel lists a subzone inside its zone and again beside it; the directory name is the
    same and unique.
    """
    found: dict[str, Path] = {}
    hidden = False
    pending = [root, root / _CONTROL_TYPE]
    for directory in pending:
        for entry in _entries(directory, may_refuse=directory is root):
            path = directory / entry
            if not _ZONE_DIRECTORY.fullmatch(entry) or entry in found:
                continue
            if path.is_dir():
                found[entry] = path
                pending.append(path)
            else:
                hidden = True
    numbers = {entry: [int(number) for number in entry.split(":")[1:]] for entry in found}
    return {entry: found[entry] for entry in sorted(found, key=numbers.__getitem__)}, hidden


def _entries(directory: Path, *, may_refuse: bool) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  (names are wanted, not paths)
    except PermissionError:
        if may_refuse:
            raise
        return []
    except OSError:
        return []


def _absence(root: Path, hidden: bool, system: str, machine: str) -> CapabilityError | None:
    """Return why there are no zones, unless none are expected."""
    if hidden:
        return CapabilityError(
            Reason.DRIVER_ABSENT,
            f"the zones in {root} are dangling links: this container hides them",
            "docker run --security-opt systempaths=unconfined ...",
        )
    if system != "Linux" or machine.lower() not in _X86:
        return None
    return CapabilityError(
        Reason.DRIVER_ABSENT,
        f"no powercap zones in {root}; virtual machines usually have none",
        "sudo modprobe -a intel_rapl_common intel_rapl_msr",
    )


def _packages(root: Path, directories: dict[str, Path]) -> tuple[list[_Package], list[Problem]]:
    """Sort the zones into packages, by their names."""
    packages: dict[int, _Package] = {}
    owners: dict[str, _Package] = {}
    problems = []
    for entry, path in directories.items():
        try:
            name = (path / "name").read_text().strip()
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            cure = _chmod("a+r", root, [path / "name"])
            obstacle = _obstacle(path / "name", error, cure)
            problems.append(Problem(f"powercap zone {entry}", obstacle))
            continue
        parent = owners.get(entry.rpartition(":")[0])
        package_name = _PACKAGE_NAME.fullmatch(name)
        if package_name:
            number = int(package_name[1])
            package = packages.setdefault(number, _Package(number))
            # The same die under a second directory is a duplicate: its joules are counted already.
            if name not in package.dies:
                package.dies[name] = path
                owners[entry] = package
        elif name == "dram" and parent is not None:
            parent.dram.append(path)
    return [packages[number] for number in sorted(packages)], problems


def _driver(package: _Package, cure: str) -> tuple[RaplCpuDriver | None, list[Problem]]:
    try:
        dies = _counters(package.dies.values(), cure)
    except CapabilityError as error:
        return None, [Problem(f"energy of CPU {package.number}", error.fresh())]
    if not dies:
        return None, []
    try:
        return RaplCpuDriver(dies, _counters(package.dram, cure)), []
    except CapabilityError as error:
        obstacle = error.fresh()
    problem = Problem(f"DRAM energy of CPU {package.number}", obstacle)
    return RaplCpuDriver(dies, dram_obstacle=obstacle), [problem]


def _counters(zones: Iterable[Path], cure: str) -> list[EnergyCounter]:
    """Open the counters of these zones, except zones that have none.

    Raises:
        CapabilityError: If there is one that cannot be used.
    """
    counters = []
    for zone in zones:
        path = zone / "energy_uj"
        try:
            counter = EnergyCounter(path, _range(zone)) if path.exists() else None
        except OSError as error:
            raise _obstacle(path, error, cure) from error
        if counter is not None:
            # Some failures appear only on reading.
            counter.read()
            counters.append(counter)
    return counters


def _range(zone: Path) -> int:
    path = zone / "max_energy_range_uj"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise unsupported("energy counter", f"{path} is missing, so wraps show as losses") from None
    except OSError as error:
        raise _obstacle(path, error, f"sudo chmod a+r {shlex.quote(str(path))}") from error
    value = _integer(path, content)
    if value == 0:
        raise CapabilityError(Reason.IMPLAUSIBLE, f"{path} contains 0")
    return value


def _integer(path: Path, content: bytes, highest: int | None = None) -> int:
    try:
        value = int(content)
    except ValueError:
        value = -1
    if value < 0 or (highest is not None and value > highest):
        bounds = "0 or more" if highest is None else f"from 0 to {highest}"
        raise CapabilityError(
            Reason.IMPLAUSIBLE, f"{path} must contain a number {bounds}, but contains {content!r}"
        )
    return value


def _joules(counters: Iterable[EnergyCounter]) -> float:
    # Added as integers: the sum is exact, and so are differences of it.
    return sum([counter.read() for counter in counters]) / _MICRO


def _obstacle(path: Path, error: Exception, cure: str = "") -> CapabilityError:
    """Return the error for a failed access to a file."""
    if isinstance(error, PermissionError):
        known = path.name == "energy_uj"
        why = "; Linux lets only root read it since CVE-2020-8694" if known else ""
        return CapabilityError(Reason.NO_PERMISSION, f"{path}: {error.strerror}{why}", cure)
    return CapabilityError(Reason.LOST, f"{path}: {error}")


def _chmod(mode: str, root: Path, paths: Iterable[Path]) -> str:
    """Return the command that changes the mode of these files in every zone, until reboot."""
    patterns = {
        "/".join(
            f"{_CONTROL_TYPE}:*" if _ZONE_DIRECTORY.fullmatch(part) else part
            for part in path.relative_to(root).parts
        )
        for path in paths
    }
    start = shlex.quote(str(root))
    files = [f"{start}/{pattern}" if pattern else start for pattern in sorted(patterns)]
    return f"sudo chmod {mode} {' '.join(files)}"
