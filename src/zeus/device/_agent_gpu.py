"""GPUs and CPUs of a machine with a node agent, as its clients see them.

Readings are taken from the vendor's library as without an agent, where this process can load it,
and through the agent otherwise. Knobs are changed by the agent only: a hold is a lease there.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.device._agent_client import AgentClient, AgentLostError
from zeus.device._agent_place import agent_socket
from zeus.device._agent_wire import READINGS, implausible_answer
from zeus.device._base import Cpu, GpuDriver, GpuIdentity, Problem, unsupported
from zeus.device._rapl import EnergyCounter, RaplCpuDriver
from zeus.device._records import Entry, Value
from zeus.errors import CapabilityError, KnobError, Reason

logger = logging.getLogger(__name__)

_CONFIRMED = 1.0  # seconds for which a hold that was in force is taken to be so still
_RESTART = "systemctl restart zeus-agent"


@contextlib.contextmanager
def _as_capability_error() -> Iterator[None]:
    try:
        yield
    except AgentLostError as error:
        raise CapabilityError(Reason.LOST, str(error), _RESTART) from None


class AgentHolds:
    """The holds of this process on one GPU, kept by the agent as leases.

    In place of a `Journal`, with the same methods. An agent that is lost raises no error after
    a hold has begun: its end restores the knobs, and when it is there again, the holds that have
    not ended begin again.
    """

    def __init__(self, client: AgentClient, gpu_key: str) -> None:
        self._client = client
        self._gpu_key = gpu_key
        # By the id of the entry, which stays: a lease lasts as long as the connection.
        self._held: dict[str, _Held] = {}
        self._confirmed: dict[str, float] = {}  # when each hold was last known to be in force

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Do nothing: the agent lets no two clients change a knob at the same time."""
        yield

    def probe(self, knob: str) -> None:
        """Find out whether this process may hold a knob, without changing it.

        Raises:
            CapabilityError: If not.
            KnobError: If the driver does not accept the current value.
        """
        with _as_capability_error():
            self._client.request("probe", gpu=self._gpu_key, knob=knob)

    def push(self, knob: str, value: Value, read: Callable[[], Value]) -> Entry:  # noqa: ARG002
        """Set a knob; the agent records its previous value.

        Args:
            knob: Name of the knob.
            value: Value to set.
            read: Not needed: the agent reads the current value.

        Raises:
            CapabilityError: If the agent is lost, or refuses.
            KnobError: If the value is not accepted.
        """
        with _as_capability_error(), self._client.steady():
            lease, entry = self._lease(knob, value)
            self._held[entry.id] = _Held(knob, entry, lease)
        self._note(entry.id, in_force=True)
        self._client.keep_alive()
        return entry

    def change(self, knob: str, entry: Entry, value: Value) -> bool:
        """Set a knob again under an existing hold; returns whether the value is in force."""
        entry.value = value
        try:
            with self._client.steady():
                held = self._held.get(entry.id)
                if held is None:
                    return False
                result = self._client.request("change", lease=held.lease, value=value)
        except AgentLostError:
            return False
        ended = result.get("ended")
        if ended:
            self._held.pop(entry.id, None)
            logger.warning("the hold on the %s was ended: %s", knob.replace("_", " "), ended)
        return self._note(entry.id, in_force=bool(result.get("in_force")))

    def above(self, knob: str, entry_id: str) -> Entry | None:  # noqa: ARG002
        """Return the hold that is in force instead of this one; `None` if this one is."""
        with _as_capability_error(), self._client.steady():
            held = self._held.get(entry_id)
            lease = entry_id if held is None else held.lease
            found = self._client.request("above", lease=lease)
        self._note(entry_id, in_force=found is None)
        return None if found is None else _entry(found.get("value"), found)

    def in_force(self, knob: str, entry_id: str) -> bool:  # noqa: ARG002
        """Whether the agent said within the last second that a hold is in force."""
        return time.monotonic() - self._confirmed.get(entry_id, -math.inf) < _CONFIRMED

    def pop(self, knob: str, entry_id: str) -> None:  # noqa: ARG002
        """End a hold: the agent restores the previous value, unless a later hold overrides it."""
        # Forgotten before an agent is reached that is new: it is not to begin again there.
        with self._client.alone():
            held = self._held.pop(entry_id, None)
            self._confirmed.pop(entry_id, None)
            if held is not None and self._client.connected:
                with contextlib.suppress(AgentLostError):  # whose end restores it
                    self._client.request("end", lease=held.lease)

    def begin_again(self) -> None:
        """Take the holds again from an agent that has started anew.

        Raises:
            AgentLostError: If it is lost again; the holds that are left begin with the next.
        """
        for held in list(self._held.values()):
            try:
                held.lease, _ = self._lease(held.knob, held.entry.value)
            except (CapabilityError, KnobError) as error:
                del self._held[held.entry.id]
                logger.warning("the %s is no longer held: %s", held.knob.replace("_", " "), error)

    def _lease(self, knob: str, value: Value) -> tuple[str, Entry]:
        found = self._client.request("hold", gpu=self._gpu_key, knob=knob, value=value)
        entry = _entry(value, found)
        return entry.id, entry

    def _note(self, entry_id: str, *, in_force: bool) -> bool:
        if in_force:
            self._confirmed[entry_id] = time.monotonic()
        else:
            self._confirmed.pop(entry_id, None)
        return in_force


@dataclass
class _Held:
    """A hold of this process, and its lease at the agent that is connected."""

    knob: str
    entry: Entry
    lease: str


def _entry(value: Value, found: Any) -> Entry:
    try:
        return Entry(
            value, found["previous"], found["original"], id=found["lease"], pid=found["pid"]
        )
    except (KeyError, TypeError):
        raise implausible_answer(found) from None


class AgentGpuDriver(GpuDriver):
    """A GPU whose knobs the agent sets.

    Args:
        client: The connection to the agent.
        about: The agent's description of the GPU.
        local: The vendor's driver in this process, if it found this GPU as well.
    """

    def __init__(
        self, client: AgentClient, about: dict[str, Any], local: GpuDriver | None = None
    ) -> None:
        self.client = client
        self.local = local
        self._about = about
        self.identity = local.identity if local else GpuIdentity(**about["identity"])
        for name in ("visible_uuid", "speed", "counter_period", "meter_period"):
            setattr(self, name, getattr(local, name) if local else about[name])
        self.slice_uuids = tuple(local.slice_uuids if local else about["slice_uuids"])
        self.may_hang = True if local is None else local.may_hang
        self.holds = self.leases = AgentHolds(client, self.identity.key)

    def beside(self, local: GpuDriver) -> AgentGpuDriver:
        """Return the same GPU, read by a driver of this process."""
        return AgentGpuDriver(self.client, self._about, local)

    def seen_as_slice(self, slice_uuid: str) -> GpuDriver:
        """Return the same GPU for a program that sees only one slice of it."""
        if self.local is None:
            raise unsupported("slices of a GPU", f"{slice_uuid} through the node agent")
        seen = AgentGpuDriver(self.client, self._about, self.local.seen_as_slice(slice_uuid))
        seen.holds = seen.leases = self.leases
        return seen

    def _read(self, reading: str, *arguments: object) -> Any:
        if self.local is not None:
            return getattr(self.local, reading)(*arguments)
        with _as_capability_error():
            found = self.client.request(
                "read", gpu=self.identity.key, reading=reading, arguments=list(arguments)
            )
        try:
            return READINGS[reading](found)
        except (KeyError, TypeError, ValueError):
            raise implausible_answer(found) from None


def _reading(name: str) -> Callable[..., Any]:
    def read(self: AgentGpuDriver, *arguments: object) -> Any:
        return self._read(name, *arguments)

    read.__name__ = name
    read.__doc__ = getattr(GpuDriver, name).__doc__
    return read


for _name in READINGS:
    setattr(AgentGpuDriver, _name, _reading(_name))


class NodeAgent:
    """The agent of this machine.

    Args:
        client: The connection to it.
    """

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        try:
            #: Its `ZEUS_SIMULATE`, or an empty string.
            self.simulated = str(client.hello["simulated"])
            #: Its version of Zeus.
            self.version = str(client.hello["zeus"])
            #: CPU packages whose energy counters it has opened for this process.
            self.cpus = self._opened_cpus()
            own = [AgentGpuDriver(client, about) for about in client.hello["gpus"]]
        except (KeyError, TypeError, ValueError, StopIteration):
            raise implausible_answer(client.hello) from None
        self._own = {driver.identity.key: driver for driver in own}
        self._drivers: list[AgentGpuDriver] = []
        client.on_reconnect = self._begin_again

    @property
    def path(self) -> Path:
        """Its socket."""
        return self.client.path

    def drivers(self, found: Sequence[GpuDriver], *, all_gpus: bool) -> list[GpuDriver]:
        """Return GPUs with the agent's knobs.

        Args:
            found: The GPUs that this process found by itself.
            all_gpus: Whether to add those that only the agent has.
        """
        left = dict(self._own)
        joined: list[GpuDriver] = []
        for driver in found:
            own = left.pop(driver.identity.key, None)
            joined.append(driver if own is None else own.beside(driver))
        if all_gpus:
            joined += left.values()
        self._drivers = [each for each in joined if isinstance(each, AgentGpuDriver)]
        return joined

    def _opened_cpus(self) -> list[Cpu]:
        descriptors = iter(self.client.descriptors)
        return [_cpu(about, descriptors) for about in self.client.hello["cpus"]]

    def _begin_again(self) -> None:
        for driver in self._drivers:
            driver.leases.begin_again()


def _cpu(about: dict[str, Any], descriptors: Iterator[int]) -> Cpu:
    def counters(kind: str) -> list[EnergyCounter]:
        return [
            EnergyCounter(Path(path), range_uj, next(descriptors)) for path, range_uj in about[kind]
        ]

    return Cpu(about["index"], about["name"], RaplCpuDriver(counters("dies"), counters("dram")))


def find_agent() -> tuple[NodeAgent | None, list[Problem]]:
    """Return the agent of this machine, if there is one, and its problems. Never raises."""
    path = agent_socket()
    if path is None:
        return None, []
    try:
        return NodeAgent(AgentClient(path)), []
    except (FileNotFoundError, NotADirectoryError):
        return None, []
    except CapabilityError as error:
        problem = error
    except KnobError as error:
        problem = CapabilityError(Reason.IMPLAUSIBLE, str(error))
    except PermissionError as error:
        problem = CapabilityError(Reason.NO_PERMISSION, f"{path}: {error.strerror}")
    except ConnectionError as error:
        problem = CapabilityError(Reason.DRIVER_ABSENT, f"{path}: {error}", _RESTART)
    except OSError as error:
        problem = CapabilityError(Reason.LOST, f"{path}: {error}")
    return None, [Problem("node agent", problem.fresh())]
