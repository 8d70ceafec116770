"""What clients may ask of the agent, and how each request is answered."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from zeus.agent._audit import Audit
from zeus.agent._jobs import Jobs, ScheduledJob
from zeus.agent._keeper import KnobKeeper, Lease
from zeus.agent._peer import Peer
from zeus.agent._policy import Bounds, GpuName, Policy
from zeus.device import Node
from zeus.device._agent_wire import PROTOCOL, READINGS, Message, WireError, encode_value
from zeus.device._process_owner import owner_of
from zeus.device._rapl import RaplCpuDriver
from zeus.device._records import KNOBS, Value
from zeus.errors import CapabilityError, KnobError, Reason

logger = logging.getLogger(__name__)

Answer = tuple[Any, Sequence[int]]
_MAX_POWER_SAMPLES = 10_000


class Session:
    """One connection: its process, and its leases.

    Args:
        peer: The process at its other end.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.leases: dict[str, Lease] = {}
        self.greeted = False

    def expires(self) -> float | None:
        """Return the `time.monotonic()` instant of the earliest end of a lease, if any."""
        return min((each.expires for each in self.leases.values()), default=None)


class Agent:
    """The knobs of a node, for its clients.

    Args:
        node: The machine.
        policy: Who may do what.
        audit: Log of changes.
        jobs: GPUs that the scheduler has given to jobs.
        version: Version of Zeus, for clients.
    """

    def __init__(
        self, node: Node, policy: Policy, audit: Audit, jobs: Jobs, *, version: str = ""
    ) -> None:
        self._version = version
        self.policy = policy
        self._node = node
        self._audit = audit
        self._jobs = jobs
        self._started = time.time()
        self._owner = owner_of(os.getpid())
        self._lock = threading.Lock()
        self._sessions: set[Session] = set()
        self._closing = False
        self._keepers = {
            driver.identity.key: KnobKeeper(index, driver, self._lease_ended)
            for index, driver in enumerate(node.drivers)
        }
        self._requests: dict[str, Callable[[Session, Message], Any]] = {
            "above": self._above,
            "beat": lambda _session, _request: None,
            "change": self._change,
            "end": self._end,
            "hold": self._hold,
            "job_begin": self._job_begin,
            "job_end": self._job_end,
            "leases": self._leases,
            "probe": self._probe,
            "read": self._read,
            "revoke": self._revoke,
            "status": self._status,
        }
        audit.write("agent started", version=version, gpus=len(self._keepers))
        self._enforce()
        self._end_missed_jobs()

    # --- connections ------------------------------------------------------------------------

    def admit(self, peer: Peer) -> Session | None:
        """Begin a session; `None` if the policy does not let this process in."""
        peer = replace(peer, slurm_job=peer.slurm_job or self._jobs.only_job_of(peer.uid))
        if not self.policy.admits(peer, self._trusted(peer)):
            self._audit.refused(peer.uid, who=peer.to_dict(), why="not admitted by the policy")
            return None
        session = Session(peer)
        with self._lock:
            self._sessions.add(session)
        return session

    def _trusted(self, peer: Peer) -> frozenset[int]:
        """Return the users whom no rule need allow a knob: root, and the agent's own.

        None in another container, where a program is root without anything of root's: whoever
        starts a container chooses its user.
        """
        own = self._owner
        places = {("", ""), (own.container, own.pod) if own is not None else ("", "")}
        known = peer.pid > 0 and (peer.container, peer.pod) in places
        return frozenset({0, os.getuid()}) if known else frozenset()

    def leave(self, session: Session, why: str) -> None:
        """End a session and its leases, the latest first."""
        with self._lock:
            self._sessions.discard(session)
        for lease in reversed(list(session.leases.values())):
            self._keepers[lease.gpu.key].end(lease, why)
        session.leases.clear()

    def expire(self, session: Session) -> None:
        """End the leases of a session that have reached their longest duration."""
        now = time.monotonic()
        for lease in list(session.leases.values()):
            if lease.expires <= now:
                self._keepers[lease.gpu.key].end(lease, f"its {lease.longest:g} s were over")

    def answer(self, session: Session, request: Message) -> Answer:
        """Answer a request.

        Returns:
            The result, in the form of JSON, and file descriptors beside it.

        Raises:
            WireError: If it is no request that a client of this version makes.
            CapabilityError: If it is not allowed, or cannot be done.
            KnobError: If a value is not accepted.
            ConnectionError: If the agent ends: its clients find their leases ended with it, and
                take them again from the next one.
        """
        answer = self._answer(session, request)
        if self._closing:
            raise ConnectionAbortedError("the node agent ends")
        return answer

    def _answer(self, session: Session, request: Message) -> Answer:
        do = _text(request, "do")
        if not session.greeted:
            if do != "hello":
                raise WireError(f"the first request must be hello, but is {do!r:.40}")
            return self._hello(session, request)
        handler = self._requests.get(do)
        if handler is None:
            raise WireError(f"a request must be one of {', '.join(self._requests)}, not {do!r:.40}")
        return handler(session, request), ()

    # --- readings ---------------------------------------------------------------------------

    def _hello(self, session: Session, request: Message) -> Answer:
        if request.get("protocol") != PROTOCOL:
            raise CapabilityError(
                Reason.UNSUPPORTED,
                f"this node agent (zeus {self._version}) has version {PROTOCOL} of the protocol, "
                f"the client {request.get('protocol')!r:.40}",
                "use the same version of Zeus for both",
            )
        session.greeted = True
        cpus, descriptors = self._cpus(session.peer)
        about = {
            "zeus": self._version,
            "simulated": self._node.simulated,
            "heartbeat": self.policy.heartbeat,
            "gpus": [_about(keeper) for keeper in self._keepers.values()],
            "cpus": cpus,
        }
        return about, descriptors

    def _cpus(self, peer: Peer) -> tuple[list[dict[str, Any]], list[int]]:
        cpus: list[dict[str, Any]] = []
        descriptors: list[int] = []
        if not self.policy.cpu_energy(peer, self._trusted(peer)):
            return cpus, descriptors
        for cpu in self._node.cpus:
            if not isinstance(cpu.driver, RaplCpuDriver):
                continue
            kinds = {"dies": cpu.driver.dies, "dram": cpu.driver.dram}
            about = {
                kind: [(str(counter.path), counter.range_uj) for counter in counters]
                for kind, counters in kinds.items()
            }
            cpus.append({"index": cpu.index, "name": cpu.name, **about})
            descriptors += [each.descriptor for group in kinds.values() for each in group]
        return cpus, descriptors

    def _read(self, _session: Session, request: Message) -> Any:
        keeper = self._keeper(request)
        reading = _text(request, "reading")
        if reading not in READINGS:
            raise WireError(f"a reading must be one of {', '.join(READINGS)}, not {reading!r:.40}")
        arguments = request.get("arguments", [])
        expected = 1 if reading in ("power_samples", "process_usage") else 0
        if not (
            isinstance(arguments, list)
            and len(arguments) == expected
            and all(type(each) in (int, float) for each in arguments)
        ):
            raise WireError(f"{reading} takes {expected} numbers, but got {arguments!r:.100}")
        value = getattr(keeper.gpu, reading)(*arguments)
        return encode_value(value[-_MAX_POWER_SAMPLES:] if isinstance(value, list) else value)

    # --- leases -----------------------------------------------------------------------------

    def _hold(self, session: Session, request: Message) -> Any:
        keeper, knob = self._keeper(request), _text(request, "knob")
        value = keeper.checked(knob, request.get("value"))
        bounds = self._allowed(session.peer, keeper, knob, value)
        lease = keeper.hold(session.peer, knob, value, bounds)
        session.leases[lease.id] = lease
        self._audit.write(
            "lease began",
            **_audited(lease),
            before=lease.entry.previous,
            after=value,
        )
        return {
            "lease": lease.id,
            "previous": lease.entry.previous,
            "original": lease.entry.original,
            "pid": session.peer.pid,
        }

    def _change(self, session: Session, request: Message) -> Any:
        lease = self._lease(session, request)
        if isinstance(lease, str):
            return {"ended": lease}
        keeper = self._keepers[lease.gpu.key]
        value = keeper.checked(lease.knob, request.get("value"))
        self._allowed(session.peer, keeper, lease.knob, value)
        in_force = keeper.change(lease, value)
        return {"ended": lease.ended} if lease.ended else {"in_force": in_force}

    def _above(self, session: Session, request: Message) -> Any:
        lease = self._lease(session, request)
        if isinstance(lease, str):
            raise CapabilityError(Reason.BLOCKED, f"the lease was ended: {lease}")
        found = self._keepers[lease.gpu.key].above(lease)
        if found is None:
            return None
        entry = found.entry if isinstance(found, Lease) else found
        pid = found.peer.pid if isinstance(found, Lease) else entry.pid
        return {
            "lease": found.id,
            "value": entry.value,
            "previous": entry.previous,
            "original": entry.original,
            "pid": pid,
        }

    def _end(self, session: Session, request: Message) -> Any:
        lease = self._lease(session, request)
        if not isinstance(lease, str):
            self._keepers[lease.gpu.key].end(lease, "released")
        session.leases.pop(_text(request, "lease"), None)

    def _probe(self, session: Session, request: Message) -> Any:
        keeper, knob = self._keeper(request), _text(request, "knob")
        if knob not in KNOBS:
            raise KnobError(f"a knob must be one of {', '.join(KNOBS)}, but got {knob!r:.40}")
        self._bounds(session.peer, keeper, knob)  # a question, so a refusal is not for the log
        keeper.probe(knob)

    def _lease(self, session: Session, request: Message) -> Lease | str:
        """Return a lease of this session, or why it has ended."""
        lease = session.leases.get(_text(request, "lease"))
        if lease is None:
            return "this connection has no such lease"
        return lease.ended or lease

    def _lease_ended(self, lease: Lease) -> None:
        self._audit.write(
            "lease ended",
            **_audited(lease),
            value=lease.entry.value,
            **({"restored": lease.entry.previous} if lease.restored else {}),
            changes=lease.changes,
            seconds=round(time.monotonic() - lease.began, 3),
            why=lease.ended,
        )

    def _allowed(self, peer: Peer, keeper: KnobKeeper, knob: str, value: Value) -> Bounds:
        try:
            bounds = self._bounds(peer, keeper, knob)
        except CapabilityError as error:
            self._refused(peer, keeper.name, knob, value, error.detail)
            raise
        refusal = bounds.refusal(knob, value)
        if refusal:
            self._refused(peer, keeper.name, knob, value, refusal)
            raise KnobError(refusal)
        return bounds

    def _bounds(self, peer: Peer, keeper: KnobKeeper, knob: str) -> Bounds:
        own = self._jobs.gpus_of(peer.uid, peer.slurm_job)
        bounds = self.policy.bounds(peer, keeper.name, knob, own, self._trusted(peer))
        if bounds is None:
            why = f"the node agent's policy does not let {peer.user} set the {knob} of {keeper.gpu}"
            raise CapabilityError(
                Reason.NO_PERMISSION,
                why,
                f"an administrator can allow it: [[rule]] users = [{peer.user!r}], {knob} = true, "
                "in /etc/zeus/agent.toml",
            )
        return bounds

    def _refused(self, peer: Peer, gpu: GpuName, knob: str, value: Value, why: str) -> None:
        self._audit.refused(
            peer.uid, who=peer.to_dict(), gpu=gpu.index, knob=knob, value=value, why=why
        )

    def _keeper(self, request: Message) -> KnobKeeper:
        key = _text(request, "gpu")
        keeper = self._keepers.get(key)
        if keeper is None:
            raise CapabilityError(Reason.LOST, f"the node agent has no GPU {key!r:.80}")
        return keeper

    # --- for people and the scheduler -------------------------------------------------------

    def leases(self) -> list[Lease]:
        """Return all leases, GPU by GPU."""
        return [lease for keeper in self._keepers.values() for lease in keeper.leases()]

    def _leases(self, _session: Session, _request: Message) -> Any:
        return [lease.to_dict() for lease in self.leases()]

    def _status(self, _session: Session, _request: Message) -> Any:
        return {
            "zeus": self._version,
            "pid": os.getpid(),
            "started": self._started,
            "simulated": self._node.simulated,
            "gpus": [asdict(keeper.name) for keeper in self._keepers.values()],
            "clients": len(self._sessions),
            "leases": len(self.leases()),
            "audit": None if self._audit.path is None else str(self._audit.path),
            "jobs": self._jobs.to_list(),
        }

    def _revoke(self, session: Session, request: Message) -> Any:
        peer = session.peer
        if not self.policy.operator(peer, self._trusted(peer)):
            self._audit.refused(peer.uid, who=peer.to_dict(), why="not an operator")
            raise CapabilityError(
                Reason.NO_PERMISSION, f"{peer.user} is not an operator of this node agent"
            )
        names = ("lease", "user", "slurm_job", "gpu")
        wanted = {name: str(request[name]) for name in names if request.get(name) is not None}
        if not wanted:
            raise WireError("a request to revoke must name a lease, user, Slurm job or GPU")
        chosen = [lease for lease in self.leases() if _is_wanted(lease, wanted)]
        for lease in reversed(chosen):
            self._keepers[lease.gpu.key].end(lease, f"revoked by {peer.user}")
        return [lease.to_dict() for lease in chosen]

    def _job_begin(self, session: Session, request: Message) -> Any:
        self._root_only(session, "register jobs")
        self._end_missed_jobs()  # one that is queued again keeps its number
        gpus, uid = request.get("gpus", []), request.get("uid")
        if not isinstance(gpus, list) or type(uid) is not int:
            raise WireError(
                f"a job has a uid and a list of gpus, but got {uid!r:.40}, {gpus!r:.80}"
            )
        keepers = [self._numbered(each) for each in gpus]
        job = ScheduledJob(
            _text(request, "job"),
            uid,
            {keeper.name.key: keeper.values() for keeper in keepers},
        )
        self._jobs.add(job)
        self._audit.write(
            "job began", job=job.id, uid=job.uid, gpus=[each.name.index for each in keepers]
        )
        return {"gpus": [keeper.name.key for keeper in keepers]}

    def _job_end(self, session: Session, request: Message) -> Any:
        self._root_only(session, "register jobs")
        return self._end_job(_text(request, "job"))

    def _end_missed_jobs(self) -> None:
        for name in self._jobs.missed_ends():
            self._end_job(name)

    def _end_job(self, name: str) -> dict[str, Any]:
        """End what a job holds, and put back what it left changed."""
        job = self._jobs.remove(name)
        for lease in reversed(self.leases()):
            if lease.peer.slurm_job == name:
                self._keepers[lease.gpu.key].end(lease, f"job {name} ended")
        changed: dict[str, Any] = {}
        for key, values in (job.values if job else {}).items():
            keeper = self._keepers.get(key)
            if keeper is not None and (found := keeper.put_back(values)):
                changed[key] = found
        self._audit.write("job ended", job=name, known=job is not None, put_back=changed)
        return {"known": job is not None, "put_back": changed}

    def _root_only(self, session: Session, what: str) -> None:
        if session.peer.uid not in self._trusted(session.peer):
            self._audit.refused(session.peer.uid, who=session.peer.to_dict(), why=f"may not {what}")
            raise CapabilityError(
                Reason.NO_PERMISSION, f"only root may {what}, but {session.peer.user} asked"
            )

    def _numbered(self, which: object) -> KnobKeeper:
        for keeper in self._keepers.values():
            if which in (keeper.name.index, str(keeper.name.index), keeper.name.key):
                return keeper
        raise CapabilityError(Reason.LOST, f"the node agent has no GPU {which!r:.80}")

    # --- the agent itself -------------------------------------------------------------------

    def adopt(self, policy: Policy) -> None:
        """Follow another policy from now on: leases that it does not allow end."""
        self.policy = policy
        self._audit.write("policy read")
        for lease in reversed(self.leases()):
            keeper = self._keepers[lease.gpu.key]
            own = self._jobs.gpus_of(lease.peer.uid, lease.peer.slurm_job)
            trusted = self._trusted(lease.peer)
            bounds = policy.bounds(lease.peer, lease.gpu, lease.knob, own, trusted)
            if bounds is None or bounds.refusal(lease.knob, lease.entry.value):
                keeper.end(lease, "the policy changed")
        self._enforce()

    def _enforce(self) -> None:
        for keeper in self._keepers.values():
            keeper.limit({knob: self.policy.ceiling(keeper.name, knob) for knob in KNOBS})

    def failing(self) -> bool:
        """Whether values are still to be restored that could not be."""
        return any(keeper.failed for keeper in self._keepers.values())

    def retry(self) -> None:
        """Try to restore them again."""
        for keeper in self._keepers.values():
            if keeper.failed:
                keeper.retry()

    def close(self, why: str) -> None:
        """End all leases: every knob has its previous value again."""
        self._closing = True
        for keeper in self._keepers.values():
            keeper.close(why)
        self._audit.write("agent ended", why=why)
        self._audit.close()


def _text(request: Message, field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str):
        raise WireError(f"{field} must be a text, but is {value!r:.100}")
    return value


def _about(keeper: KnobKeeper) -> dict[str, Any]:
    driver = keeper.gpu.driver
    names = ("visible_uuid", "speed", "slice_uuids", "counter_period", "meter_period")
    return {
        "identity": asdict(driver.identity),
        **{name: getattr(driver, name) for name in names},
    }


def _audited(lease: Lease) -> dict[str, Any]:
    return {
        "lease": lease.id,
        "who": lease.peer.to_dict(),
        "gpu": lease.gpu.index,
        "key": lease.gpu.key,
        "knob": lease.knob,
    }


def _is_wanted(lease: Lease, wanted: dict[str, str]) -> bool:
    names = {
        "lease": {lease.id},
        "user": {lease.peer.user, str(lease.peer.uid)},
        "slurm_job": {lease.peer.slurm_job},
        "gpu": {str(lease.gpu.index), lease.gpu.key},
    }
    return all(value in names[name] for name, value in wanted.items())
