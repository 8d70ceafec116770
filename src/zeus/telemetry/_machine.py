"""All metrics of this machine, also of what its node agent adds once there is one.

The agent and the exporter start at the same time, at boot as in a pod. What only the agent can read
(the CPUs' energy, GPUs whose library is elsewhere) and the leases are unknown until it is found.
"""

from __future__ import annotations

import logging
import threading

from zeus.device import current_node
from zeus.device._agent_place import agent_expected
from zeus.device._node import rediscovered_node
from zeus.telemetry._collection import Telemetry
from zeus.telemetry._metrics import Family

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 300.0  # seconds between attempts to reach an agent


class MachineTelemetry:
    """Collects all metrics of this machine, whenever it is asked.

    Args:
        version: Version of Zeus to publish.
    """

    def __init__(self, version: str = "") -> None:
        self._version = version
        self._lock = threading.Lock()
        self._ended = threading.Event()
        node = current_node()
        self._telemetry = Telemetry(node, version=version)
        if node.agent is None:
            threading.Thread(target=self._search, name="zeus-agent-search", daemon=True).start()

    def collect(self) -> list[Family]:
        """Read everything now."""
        with self._lock:
            return self._telemetry.collect()

    def close(self) -> None:
        """End background work."""
        self._ended.set()
        with self._lock:
            self._telemetry.close()

    def _search(self) -> None:
        """Discover the machine again once it has an agent that lets this process in."""
        pause = _FIRST_PAUSE
        while not self._ended.wait(pause):
            if not agent_expected():
                continue
            if _agent_answers() and (node := rediscovered_node()).agent is not None:
                break
            pause = min(2 * pause, _LONGEST_PAUSE)  # each attempt costs the agent something
        else:
            return
        with self._lock:
            if not self._ended.is_set():
                self._telemetry.close()
                self._telemetry = Telemetry(node, version=self._version)
                logger.warning("a node agent was found; all devices were discovered again")


def _agent_answers() -> bool:
    from zeus.device._agent_gpu import find_agent  # noqa: PLC0415  (most machines have none)

    agent, _ = find_agent()
    if agent is not None:
        agent.client.close()
    return agent is not None
