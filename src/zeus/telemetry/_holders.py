"""Processes that hold knobs of GPUs: from the records of holds on this machine, and its agent."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from zeus.device import Node
from zeus.device._agent_client import AgentLostError
from zeus.device._agent_gpu import NodeAgent
from zeus.device._agent_wire import implausible_answer
from zeus.device._guard import Guard
from zeus.device._record_places import places
from zeus.device._records import Entry, Stacks, record_name, recorded_stacks
from zeus.errors import CapabilityError
from zeus.telemetry._owners import OWNER_LABELS, Owner, owner_in

_COARSE = 0.1  # seconds
_AGENT_TIMEOUT = 1.0  # seconds; Prometheus waits for ten, and an agent answers within 1 ms


@dataclass(frozen=True)
class Holder:
    """A hold that is in force.

    Attributes:
        knob: `power_limit`, `graphics_clock` or `memory_clock`.
        value: Watts, or the highest clock in MHz.
        pid: The process, by its number in its own PID namespace.
        owner: Its user, Slurm job and pod.
    """

    knob: str
    value: float
    pid: int
    owner: Owner


class Holders:
    """The holds on the GPUs of a node. Records are read again only after they changed."""

    def __init__(self, node: Node) -> None:
        self._private = [gpu for gpu in node.gpus if not gpu.driver.shared]
        self._keys = {record_name(gpu.key): gpu.key for gpu in node.gpus if gpu.driver.shared}
        self._state: tuple[object, ...] | None = None
        self._stacks: dict[str, Stacks] = {}
        self._error = ""
        self._agent = node.agent
        self._guard = Guard("the node agent", _AGENT_TIMEOUT)

    def read(self) -> tuple[dict[str, tuple[Holder, ...]], str]:
        """Return the holds in force by key of the GPU, and why some are unknown, if so.

        Raises:
            OSError: If the records cannot be listed.
        """
        files = [file for place in places() for file in place.all_files()] if self._keys else []
        state: tuple[object, ...] | None = tuple(map(_state, files))
        if state != self._state:
            self._stacks, unreadable = recorded_stacks()
            self._error = "; ".join(f"{record.path} {record.why}" for record in unreadable)
            # Timestamps of files are coarse: a value may change again without another timestamp.
            self._state = None if _recent(files) else state
        processes = _Processes()
        found = {
            self._keys[name]: _in_force(stacks, processes)
            for name, stacks in self._stacks.items()
            if name in self._keys
        }
        found |= {gpu.key: _in_force(gpu.held, processes) for gpu in self._private}
        if self._agent is None:
            return found, self._error
        leases, error = self._leases(self._agent)
        for key, holders in leases.items():
            # The agent's own record of a lease names the agent as its holder.
            leased = {holder.knob for holder in holders}
            others = (each for each in found.get(key, ()) if each.knob not in leased)
            found[key] = (*others, *holders)
        return found, "; ".join(filter(None, (self._error, error)))

    def _leases(self, agent: NodeAgent) -> tuple[dict[str, tuple[Holder, ...]], str]:
        try:
            return self._guard.call(lambda: _leases(agent))
        except CapabilityError as error:
            return {}, error.detail


def _leases(agent: NodeAgent) -> tuple[dict[str, tuple[Holder, ...]], str]:
    """Return the leases in force by key of the GPU, and why they are unknown, if so."""
    try:
        rows = agent.client.request("leases")
    except (AgentLostError, CapabilityError) as error:
        return {}, str(error)
    found: dict[str, dict[str, Holder]] = {}
    try:
        for row in rows:  # in the order in which they began: the last one is in force
            peer, value = row["holder"], row["value"]
            highest = float(value[-1] if isinstance(value, list) else value)
            owner = Owner(*(str(peer.get(name, "")) for name in OWNER_LABELS))
            holder = Holder(str(row["knob"]), highest, int(peer["pid"]), owner)
            found.setdefault(str(row["gpu"]["key"]), {})[holder.knob] = holder
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return {}, str(implausible_answer(rows))
    return {key: tuple(holders.values()) for key, holders in found.items()}, ""


def _state(file: Path) -> tuple[object, ...]:
    try:
        status = file.stat()
    except OSError:
        return (file,)
    return (file, status.st_ino, status.st_mtime_ns, status.st_size)


def _recent(files: list[Path]) -> bool:
    with contextlib.suppress(OSError):
        return any(time.time() - file.stat().st_mtime < _COARSE for file in files)
    return True


class _Processes:
    """Which processes live and who owns them, found out once: one may hold all GPUs of a node."""

    def __init__(self) -> None:
        self._ended: dict[tuple[object, ...], bool] = {}
        self._owners: dict[tuple[object, ...], Owner] = {}

    def ended(self, entry: Entry) -> bool:
        key = _process(entry)
        if key not in self._ended:
            self._ended[key] = entry.abandoned()
        return self._ended[key]

    def owner(self, entry: Entry) -> Owner:
        key = _process(entry)
        if key not in self._owners:
            self._owners[key] = _owner(entry)
        return self._owners[key]


def _process(entry: Entry) -> tuple[object, ...]:
    directory = entry.file.rpartition("/")[0]  # of its user
    place = (directory, entry.sign_of_life)
    return (entry.pid, entry.started, entry.boot, entry.namespace, *place)


def _in_force(stacks: Stacks, processes: _Processes) -> tuple[Holder, ...]:
    found = []
    for knob, stack in stacks.items():
        entry = next((each for each in reversed(stack) if not processes.ended(each)), None)
        if entry is None or entry.value is None:
            continue
        value = entry.value[-1] if isinstance(entry.value, list) else entry.value
        found.append(Holder(knob, float(value), entry.pid, processes.owner(entry)))
    return tuple(found)


def _owner(entry: Entry) -> Owner:
    try:
        uid = Path(entry.file).stat().st_uid if entry.file else os.getuid()
    except OSError:  # the hold has ended meanwhile
        return Owner()
    return owner_in(entry.namespace, entry.pid, entry.started, uid)
