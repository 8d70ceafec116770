"""Who holds which knob, by the node agent of this machine."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from zeus.cli._gpu_rows import Holder
from zeus.cli._holds import show_value
from zeus.cli._terminal import clean
from zeus.errors import ZeusError

if TYPE_CHECKING:
    from zeus.device._agent_gpu import NodeAgent

_PERIOD = 1.0  # seconds between two requests


class AgentLeases:
    """Asks an agent for its leases repeatedly, in the background: it may not respond.

    Args:
        agent: The agent; `None` if there is none.
    """

    def __init__(self, agent: NodeAgent | None) -> None:
        self._latest: dict[str, tuple[Holder, ...]] = {}
        if agent is not None:
            self._client = agent.client
            threading.Thread(target=self._serve, name="zeus-leases", daemon=True).start()

    def of(self, gpu_key: str) -> tuple[Holder, ...]:
        """Return the holders of a GPU's knobs whose values are in force."""
        return self._latest.get(gpu_key, ())

    def _serve(self) -> None:
        while True:
            try:
                self._latest = holders(self._client.request("leases"))
            except (ZeusError, OSError, LookupError, TypeError, ValueError):
                self._latest = {}  # it is lost, or of another version
            time.sleep(_PERIOD)


def holders(leases: Any) -> dict[str, tuple[Holder, ...]]:
    """Return the latest lease on each knob, by key of the GPU.

    Raises:
        LookupError, TypeError, ValueError: If these are no leases.
    """
    found: dict[str, dict[str, Holder]] = {}
    for lease in leases:  # in the order in which they began; the clock of `since` may be set back
        holder = lease["holder"]
        job = f", job {holder['slurm_job']}" if "slurm_job" in holder else ""
        found.setdefault(str(lease["gpu"]["key"]), {})[str(lease["knob"])] = Holder(
            clean(str(lease["knob"]).replace("_", " ")),
            clean(show_value(lease["knob"], lease["value"])),
            clean(str(holder["user"])),
            clean(f"(process {holder['pid']}{job})"),
        )
    return {key: tuple(knobs.values()) for key, knobs in found.items()}
