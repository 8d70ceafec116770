"""Where an agent keeps its files, for a machine and for a user who tries it."""

from __future__ import annotations

import os
from pathlib import Path

from zeus.device._agent_place import SOCKET, agent_socket
from zeus.device._record_places import machine_place
from zeus.state._files import STATE_VARIABLE, state_directory

POLICY = Path("/etc/zeus/agent.toml")
_AUDIT = Path("/var/log/zeus/audit.jsonl")


def _for_machine() -> bool:
    return os.getuid() == 0 and not os.environ.get(STATE_VARIABLE)


def default_socket() -> Path:
    """Return the socket: `ZEUS_AGENT` or the machine's, for root; else one of this user's."""
    chosen = agent_socket()
    if chosen not in (None, SOCKET):
        return chosen
    return SOCKET if _for_machine() else state_directory() / "agent.sock"


def default_audit() -> Path:
    """Return the audit log."""
    return _AUDIT if _for_machine() else state_directory() / "audit.jsonl"


def lock_path() -> Path:
    """Return the file that the only agent of a node keeps locked."""
    if _for_machine():
        SOCKET.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return machine_place().directory / "agent.lock"


def jobs_path(socket: Path) -> Path:
    """Return the file that keeps the scheduler's jobs, beside the socket."""
    return socket.with_name("jobs.json")
