"""The knobs of one GPU, and the leases on them."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from zeus.agent._peer import Peer
from zeus.agent._policy import Bounds, GpuName
from zeus.device import Gpu
from zeus.device._base import GpuDriver
from zeus.device._hold import KnobRange, knob_setter, read_knob, rewrite_power_limit, shared_journal
from zeus.device._records import KNOBS, POWER_LIMIT, Entry, Value
from zeus.errors import CapabilityError, KnobError, Reason

logger = logging.getLogger(__name__)


@dataclass
class Lease:
    """A hold of a client on one knob of one GPU.

    Attributes:
        gpu: The GPU.
        knob: The knob.
        peer: The process that holds it.
        entry: Its entry in the journal.
        longest: Seconds after which it ends.
        since: When it began, in seconds since 1970.
        changes: How often its value was changed since.
        ended: Why it has ended; empty while it is in force.
        restored: Whether its end has restored `entry.previous`; no lease above it, no refusal.
    """

    gpu: GpuName
    knob: str
    peer: Peer
    entry: Entry
    longest: float
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    since: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    changes: int = 0
    ended: str = ""
    restored: bool = False

    @property
    def expires(self) -> float:
        """The `time.monotonic()` instant at which it ends by itself."""
        return self.began + self.longest

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "lease": self.id,
            "gpu": {"index": self.gpu.index, "key": self.gpu.key, "name": self.gpu.name},
            "knob": self.knob,
            "value": self.entry.value,
            "previous": self.entry.previous,
            "original": self.entry.original,
            "since": self.since,
            "changes": self.changes,
            "holder": self.peer.to_dict(),
        }


class KnobKeeper:
    """Sets the knobs of one GPU for clients, one request at a time.

    Each GPU has a lock of its own: a driver that hangs costs no other GPU anything.

    Args:
        index: Number of the GPU on the machine.
        driver: Its driver.
        on_end: Called with each lease that has ended.
    """

    def __init__(self, index: int, driver: GpuDriver, on_end: Callable[[Lease], None]) -> None:
        self.gpu = Gpu(index, driver)
        self.name = GpuName(index, driver.identity.key, driver.identity.name)
        self._on_end = on_end
        self._section = threading.RLock()
        self._journal = shared_journal(self.gpu, self._section)
        self._range = KnobRange(self.gpu)
        self._leases: dict[str, Lease] = {}
        self._ceilings: dict[str, Entry] = {}  # holds of the agent itself, below all leases
        self._closed = False
        #: Whether a value could not be restored, and is to be tried again.
        self.failed = False

    def leases(self) -> list[Lease]:
        """Return the leases, in the order in which they began."""
        return sorted(self._leases.copy().values(), key=lambda lease: lease.began)

    def checked(self, knob: str, value: object) -> Value:
        """Return a value of a knob, if the GPU accepts it.

        Raises:
            KnobError: If not.
            CapabilityError: If the GPU does not report what it accepts.
        """
        if knob not in KNOBS:
            raise KnobError(f"a knob must be one of {', '.join(KNOBS)}, but got {knob!r:.40}")
        if knob == POWER_LIMIT:
            if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
                raise KnobError(f"power_limit must be a number of watts, but got {value!r:.40}")
        elif value is None or isinstance(value, bool | float | str | dict):
            raise KnobError(f"{knob} must be whole MHz or a pair of them, but got {value!r:.40}")
        return self._range.checked(**{knob: value})[knob]  # type: ignore[arg-type]

    def hold(self, peer: Peer, knob: str, value: Value, bounds: Bounds) -> Lease:
        """Set a knob for a client.

        Raises:
            CapabilityError: If the GPU refuses, or the hold cannot be recorded.
            KnobError: If the driver does not accept the value.
            ConnectionError: If the agent ends.
        """
        with self._section, _recording():
            self._check_open()
            entry = self._journal.push(knob, value, lambda: read_knob(self.gpu, knob))
            lease = Lease(self.name, knob, peer, entry, bounds.longest)
            self._leases[lease.id] = lease
            return lease

    def change(self, lease: Lease, value: Value) -> bool:
        """Set the knob of a lease again; returns whether the value is in force.

        Raises:
            As `hold`.
        """
        with self._section, _recording():
            self._check_open()
            if lease.ended:
                return False
            in_force = self._journal.change(lease.knob, lease.entry, value)
            lease.changes += 1
            if (above := self._next_above(lease)) is not None:
                above.entry.previous = value
            return in_force

    def _next_above(self, lease: Lease) -> Lease | None:
        order = lease.entry.order
        above = [
            each
            for each in self._leases.values()
            if each.knob == lease.knob and each.entry.order > order
        ]
        return min(above, key=lambda each: each.entry.order, default=None)

    def above(self, lease: Lease) -> Lease | Entry | None:
        """Return what is in force in place of a lease; `None` if the lease is."""
        with self._section:
            found = self._journal.above(lease.knob, lease.entry.id)
        if found is None:
            return None
        held = [each for each in self.leases() if each.entry.id == found.id]
        return held[0] if held else found

    def end(self, lease: Lease, why: str) -> None:
        """End a lease: restore the previous value, unless a later one overrides it."""
        with self._section:
            if lease.ended:
                return
            lease.ended = why
            self._leases.pop(lease.id, None)
            if (above := self._next_above(lease)) is not None:
                above.entry.previous = lease.entry.previous
            try:
                self._journal.pop(lease.knob, lease.entry.id)
                lease.restored = above is None
            except (CapabilityError, KnobError, OSError) as error:
                self.failed = True
                logger.error("could not restore the %s of %s: %s", lease.knob, self.gpu, error)
        self._on_end(lease)

    def retry(self) -> None:
        """Try again to restore what could not be restored."""
        with self._section, suppress(CapabilityError, KnobError, OSError):
            self._journal.recover()
            self.failed = False

    def probe(self, knob: str) -> None:
        """Find out whether the agent may set a knob, without changing it."""
        with self._section:
            if knob != POWER_LIMIT:
                self.gpu.supported_clocks()
            rewrite_power_limit(self.gpu)

    def values(self) -> dict[str, Value]:
        """Return the values that the knobs have without leases and ceilings, where known."""
        found: dict[str, Value] = {}
        with self._section:
            for knob in KNOBS:
                entries = [lease.entry for lease in self.leases() if lease.knob == knob]
                if knob in self._ceilings:
                    entries.append(self._ceilings[knob])
                with suppress(CapabilityError, KnobError):
                    found[knob] = entries[0].original if entries else read_knob(self.gpu, knob)
        return found

    def put_back(self, values: dict[str, Value]) -> dict[str, tuple[Value, Value]]:
        """Set knobs that nobody holds to earlier values; returns those that differed: from, to.

        A ceiling that came meanwhile is not exceeded.
        """
        changed: dict[str, tuple[Value, Value]] = {}
        with self._section:
            held = {lease.knob for lease in self.leases()}
            for knob, earlier in values.items():
                if knob in held:
                    continue
                value = self._ceilings[knob].value if knob in self._ceilings else earlier
                try:
                    now = read_knob(self.gpu, knob)
                    if now != value:
                        knob_setter(self.gpu)(knob, value)
                        changed[knob] = now, value
                except (CapabilityError, KnobError) as error:
                    logger.error("could not put back the %s of %s: %s", knob, self.gpu, error)
        return changed

    def limit(self, ceilings: dict[str, float]) -> None:
        """Keep knobs at or below the operator's ceilings, also when no client holds them."""
        with self._section:
            for knob in KNOBS:
                try:
                    self._limit(knob, ceilings.get(knob, math.inf))
                except (CapabilityError, KnobError, OSError) as error:
                    logger.error("no ceiling on the %s of %s: %s", knob, self.gpu, error)

    def _limit(self, knob: str, highest: float) -> None:
        with self._below_all(knob):
            old = self._ceilings.pop(knob, None)
            if old is not None:
                self._journal.pop(knob, old.id)
            value = self._ceiling(knob, highest)
            if value is not None:
                self._ceilings[knob] = self._journal.push(
                    knob, value, lambda: read_knob(self.gpu, knob)
                )

    def _ceiling(self, knob: str, highest: float) -> Value:
        """Return the value that keeps a knob at or below a ceiling; `None` if it is already."""
        if math.isinf(highest):
            return None
        if knob == POWER_LIMIT:
            limits = self.gpu.power_limits()
            current = self.gpu.power_limit()
            return max(highest, limits.minimum) if current > highest else None
        clocks = self.gpu.supported_clocks()
        known = clocks.graphics if knob != KNOBS[2] else clocks.memory
        allowed = [clock for clock in known if clock <= highest] or list(known[-1:])
        if not allowed or known[0] <= highest:
            return None
        return [known[-1], allowed[0]]

    @contextmanager
    def _below_all(self, knob: str) -> Iterator[None]:
        """Lift the leases on a knob, and let them begin again above what the body holds."""
        lifted = [lease for lease in self.leases() if lease.knob == knob]
        try:
            for lease in reversed(lifted):
                self._journal.pop(knob, lease.entry.id)
            yield
        finally:
            for lease in lifted:
                lease.entry = self._journal.push(
                    knob, lease.entry.value, lambda: read_knob(self.gpu, knob)
                )

    def close(self, why: str) -> None:
        """End all leases, and the ceilings; none begins from now on."""
        with self._section:
            self._closed = True
            for lease in reversed(self.leases()):
                self.end(lease, why)
            self.limit({})

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError("the node agent ends")


@contextmanager
def _recording() -> Iterator[None]:
    """Say what it means for a client that the record cannot be written."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise CapabilityError(
            Reason.BLOCKED,
            f"the node agent cannot record the change, so it makes none: {error}",
            "an administrator can make room for its records, in /run/zeus",
        ) from None
