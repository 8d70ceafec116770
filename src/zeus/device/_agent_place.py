"""Where the node agent's socket is; without importing what talks to it."""

from __future__ import annotations

import os
from pathlib import Path

AGENT_VARIABLE = "ZEUS_AGENT"
"""Path of the agent's socket, in place of the default; 0 to use no agent."""

SOCKET = Path("/run/zeus/agent.sock")


def agent_socket() -> Path | None:
    """Return where an agent's socket would be; `None` if none is to be used."""
    chosen = os.environ.get(AGENT_VARIABLE, "").strip()
    if chosen == "0":
        return None
    return Path(chosen) if chosen else SOCKET


def agent_expected() -> bool:
    """Whether there is something in the place of an agent's socket."""
    path = agent_socket()
    # A directory that may not be searched could hide one.
    return path is not None and (os.path.lexists(path) or not os.access(path.parent, os.X_OK))
