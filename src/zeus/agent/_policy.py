"""Policy: who may turn which knob of which GPU, within which bounds.

Read from a TOML file::

    default = "read"            # whoever no rule matches: "read" (no knobs), or "none"
    operators = ["@admin"]      # besides root: may end leases of others
    heartbeat = 60              # seconds after which a silent client's leases end
    longest_lease = "24h"

    [[ceiling]]                 # exceeded by nobody, root included
    gpus = ["NVIDIA A100*"]     # numbers, keys or names; all if left out
    power_limit = 300           # W
    graphics_clock = 1410       # MHz

    [[rule]]                    # the first that matches a process and a GPU decides
    users = ["alice"]
    groups = ["ml"]
    cgroups = ["/system.slice/*"]
    slurm_jobs = ["*"]
    pods = ["*"]                # UIDs of Kubernetes' pods
    gpus = ["own"]              # those that the scheduler has given to the job
    power_limit = [150, 300]    # or true: whatever the GPU accepts
    graphics_clock = true
    cpu_energy = true
    longest_lease = "2h"
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from zeus.agent._peer import Peer
from zeus.device._records import GRAPHICS_CLOCK, KNOBS, MEMORY_CLOCK, POWER_LIMIT, Value
from zeus.errors import ZeusError

OWN = "own"
"""Among the GPUs of a rule: those that the scheduler has given to the process's job."""

READ, NONE = "read", "none"
_DAY = 86400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNIT_NAMES = {POWER_LIMIT: "W", GRAPHICS_CLOCK: "MHz", MEMORY_CLOCK: "MHz"}
_LEAST_HEARTBEAT, _MOST_HEARTBEAT = 2.0, 3600.0


class PolicyError(ZeusError, ValueError):
    """A policy breaks a rule; says which, and the value."""


@dataclass(frozen=True)
class GpuName:
    """A GPU by all that a policy may call it.

    Attributes:
        index: Its number on the machine.
        key: UUID or PCI address.
        name: Product name.
    """

    index: int
    key: str
    name: str


@dataclass(frozen=True)
class Bounds:
    """The values of one knob that are allowed.

    Attributes:
        lowest: Watts or MHz.
        highest: Likewise.
        longest: Longest lease, in seconds.
    """

    lowest: float = 0.0
    highest: float = math.inf
    longest: float = _DAY

    def refusal(self, knob: str, value: Value) -> str:
        """Return why a value is not allowed; an empty string if it is."""
        ends = value if isinstance(value, list) else [value]
        # The lower end of a range of clocks only lets the clock fall.
        if value is None or not self.lowest <= _number(ends[-1]) <= self.highest:
            shown = "unlocked" if value is None else f"{_number(ends[-1]):g} {_UNIT_NAMES[knob]}"
            return f"{self.words(knob)} must hold by the node agent's policy, but got {shown}"
        return ""

    def words(self, knob: str) -> str:
        """Return the rule in words."""
        unit = _UNIT_NAMES[knob]
        low = f"{self.lowest:g} {unit} <= " if self.lowest > 0 else ""
        high = f" <= {self.highest:g} {unit}" if math.isfinite(self.highest) else ""
        return f"{low}{knob}{high}" if low or high else f"any {knob}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


@dataclass(frozen=True)
class Rule:
    """What some processes may do with some GPUs.

    Attributes:
        users: Names of users; `None` for any.
        groups: Names of groups; `None` for any.
        cgroups: Patterns of control groups; `None` for any.
        slurm_jobs: Patterns of Slurm jobs' numbers; `None` for any process.
        gpus: Numbers, keys, patterns of names, or `own`; `None` for all.
        knobs: Allowed bounds of each knob that may be held.
        cpu_energy: Whether the CPUs' energy counters may be read.
        pods: Patterns of UIDs of Kubernetes' pods; `None` for any process.
    """

    users: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    cgroups: tuple[str, ...] | None = None
    slurm_jobs: tuple[str, ...] | None = None
    gpus: tuple[int | str, ...] | None = None
    knobs: Mapping[str, Bounds] = field(default_factory=dict)
    cpu_energy: bool = False
    pods: tuple[str, ...] | None = None

    def matches(self, peer: Peer) -> bool:
        """Whether a process is one that it is for."""
        return (
            (self.users is None or peer.user in self.users or str(peer.uid) in self.users)
            and (self.groups is None or not self.groups.isdisjoint(peer.groups))
            and (self.cgroups is None or _any_match(peer.cgroup, self.cgroups))
            and (self.slurm_jobs is None or _any_match(peer.slurm_job, self.slurm_jobs))
            and (self.pods is None or _any_match(peer.pod, self.pods))
        )

    def covers(self, gpu: GpuName, own: frozenset[str]) -> bool:
        """Whether a GPU is one that it is for; `own` are the keys of the job's GPUs."""
        return self.gpus is None or _is_one_of(gpu, self.gpus, own)


def _any_match(text: str, patterns: Sequence[str]) -> bool:
    return text != "" and any(fnmatchcase(text, pattern) for pattern in patterns)


def _is_one_of(
    gpu: GpuName, wanted: Sequence[int | str], own: frozenset[str] = frozenset()
) -> bool:
    return any(
        gpu.index == each
        if isinstance(each, int)
        else (each == OWN and gpu.key in own) or gpu.key == each or fnmatchcase(gpu.name, each)
        for each in wanted
    )


@dataclass(frozen=True)
class Ceiling:
    """The operator's limits for some GPUs, which no lease exceeds."""

    gpus: tuple[int | str, ...] | None = None
    highest: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """All rules of a node.

    Attributes:
        rules: The first that matches decides.
        ceilings: All that match hold.
        default: Access without a rule: "read" or "none".
        operators: Users and, with `@`, groups that may end leases of others.
        heartbeat: Seconds after which a silent client's leases end.
        longest: Longest lease, in seconds.
    """

    rules: tuple[Rule, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    default: str = READ
    operators: frozenset[str] = frozenset()
    heartbeat: float = 60.0
    longest: float = _DAY

    def admits(self, peer: Peer, trusted: frozenset[int]) -> bool:
        """Whether a process may connect at all."""
        return (
            self.default == READ
            or peer.uid in trusted
            or self.operator(peer, trusted)
            or any(rule.matches(peer) for rule in self.rules)
        )

    def operator(self, peer: Peer, trusted: frozenset[int]) -> bool:
        """Whether a process may end leases of others."""
        return (
            peer.uid in trusted
            or peer.user in self.operators
            or any(f"@{group}" in self.operators for group in peer.groups)
        )

    def bounds(
        self,
        peer: Peer,
        gpu: GpuName,
        knob: str,
        own: frozenset[str] = frozenset(),
        trusted: frozenset[int] = frozenset(),
    ) -> Bounds | None:
        """Return the values of a knob that a process may set; `None` if none.

        Args:
            peer: The process.
            gpu: The GPU.
            knob: The knob.
            own: Keys of the GPUs that the scheduler has given to its job.
            trusted: Users, by number, whom a rule may bind, but need not allow a knob.
        """
        rules = (rule for rule in self.rules if rule.matches(peer) and rule.covers(gpu, own))
        rule = next(rules, None)
        found = None if rule is None else rule.knobs.get(knob)
        if found is None:
            if peer.uid not in trusted:
                return None
            found = Bounds(longest=self.longest)
        highest = min(found.highest, self.ceiling(gpu, knob))
        return Bounds(min(found.lowest, highest), highest, min(found.longest, self.longest))

    def ceiling(self, gpu: GpuName, knob: str) -> float:
        """Return the highest value of a knob that nobody may exceed; infinite if there is none."""
        return min(
            (
                each.highest[knob]
                for each in self.ceilings
                if knob in each.highest and (each.gpus is None or _is_one_of(gpu, each.gpus))
            ),
            default=math.inf,
        )

    def cpu_energy(self, peer: Peer, trusted: frozenset[int] = frozenset()) -> bool:
        """Whether a process may read the CPUs' energy counters."""
        return peer.uid in trusted or any(
            rule.cpu_energy for rule in self.rules if rule.matches(peer)
        )


ALL_KNOBS: Mapping[str, Bounds] = dict.fromkeys(KNOBS, Bounds())

DEFAULT = Policy(
    rules=(Rule(groups=frozenset({"zeus"}), knobs=ALL_KNOBS, cpu_energy=True),),
)
"""Without a file: members of the group `zeus` may do everything, others may read."""


# --- reading ------------------------------------------------------------------------------------


def parse_policy(text: str) -> Policy:
    """Return the policy in a TOML document.

    Raises:
        PolicyError: If it is none; with the rule and the value.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(f"the policy is not TOML: {error}") from None
    table = _Table("", document)
    longest = table.take("longest_lease", _duration, _DAY)
    policy = Policy(
        default=table.take("default", _one_of(READ, NONE), READ),
        operators=frozenset(table.take("operators", _texts, ())),
        heartbeat=table.take("heartbeat", _heartbeat, 60.0),
        longest=longest,
        ceilings=tuple(
            _ceiling(_Table(f"ceiling[{number}].", each))
            for number, each in enumerate(table.take("ceiling", _tables, ()))
        ),
        rules=tuple(
            _rule(_Table(f"rule[{number}].", each), longest)
            for number, each in enumerate(table.take("rule", _tables, ()))
        ),
    )
    table.done()
    return policy


class _Table:
    """A table of the document, from which known keys are taken."""

    def __init__(self, path: str, found: dict[str, Any]) -> None:
        self._path = path
        self._left = dict(found)
        self._known: list[str] = []

    def take(self, key: str, read: Callable[[Any], Any], default: Any = None) -> Any:
        self._known.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        try:
            return read(value)
        except ValueError as error:
            raise PolicyError(f"{self._path}{key} {error}, but is {value!r:.100}") from None

    def done(self) -> None:
        if self._left:
            raise PolicyError(
                f"{self._path or 'the policy '}has keys {', '.join(sorted(self._known))}, "
                f"but got {', '.join(sorted(self._left))}"
            )


def _ceiling(table: _Table) -> Ceiling:
    gpus = table.take("gpus", _gpus)
    highest = {knob: table.take(knob, _positive) for knob in KNOBS}
    table.done()
    return Ceiling(gpus, {knob: value for knob, value in highest.items() if value is not None})


def _rule(table: _Table, longest: float) -> Rule:
    users, groups = table.take("users", _texts), table.take("groups", _texts)
    longest = min(longest, table.take("longest_lease", _duration, longest))
    knobs = {knob: table.take(knob, _bounds) for knob in KNOBS}
    rule = Rule(
        None if users is None else frozenset(users),
        None if groups is None else frozenset(groups),
        table.take("cgroups", _texts),
        table.take("slurm_jobs", _texts),
        table.take("gpus", _gpus),
        {
            knob: Bounds(bounds[0], bounds[1], longest)
            for knob, bounds in knobs.items()
            if bounds is not None
        },
        table.take("cpu_energy", _boolean, False),
        table.take("pods", _texts),
    )
    table.done()
    return rule


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return read


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError("must be a list of names")
    return tuple(value)


def _gpus(value: Any) -> tuple[int | str, ...]:
    good = isinstance(value, list) and all(
        (isinstance(each, str) and each) or (type(each) is int and each >= 0) for each in value
    )
    if not good:
        raise ValueError("must be a list of numbers, keys or names of GPUs")
    return tuple(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _positive(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError("must be a number above 0")
    return float(value)


def _bounds(value: Any) -> tuple[float, float] | None:
    if isinstance(value, bool):
        return (0.0, math.inf) if value else None
    if isinstance(value, list) and len(value) == 2:
        low, high = map(_positive, value)
        if low <= high:
            return low, high
    raise ValueError("must be true, false, or [lowest, highest]")


def _heartbeat(value: Any) -> float:
    if type(value) not in (int, float) or not _LEAST_HEARTBEAT <= value <= _MOST_HEARTBEAT:
        raise ValueError(f"must be {_LEAST_HEARTBEAT:g} to {_MOST_HEARTBEAT:g} seconds")
    return float(value)


def _duration(value: Any) -> float:
    if type(value) in (int, float) and 0 < value < math.inf:
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) == 0:
        raise ValueError('must be seconds, or a duration such as "90m", "12h" or "7d"')
    return float(match[1]) * _UNITS[match[2]]


def _tables(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError("must be written as [[...]] tables")
    return tuple(value)
