"""Energy of an answer on a simulated GPU, as if it had been generated there."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from zeus.monitor import ZeusMonitor
from zeus.testing import SimulatedNode, Workload

_LOCK = threading.Lock()  # a simulated node stands in for the machine, for the whole process
_SETTLED = 0.5  # virtual seconds after which the counter has ticked


@dataclass(frozen=True)
class SimulatedServer:
    """A server on one simulated GPU.

    Attributes:
        gpu: The GPU, as for `ZEUS_SIMULATE`.
        prefill_seconds: GPU time of a prompt token.
        token_seconds: GPU time of a generated token.
    """

    gpu: str
    prefill_seconds: float
    token_seconds: float

    def usage(self, prompt_tokens: int, generated_tokens: int) -> dict[str, Any]:
        """Return the `usage` of a request, with its energy as measured on the simulated GPU."""
        prefill = Workload("prefill", gpu_time=self.prefill_seconds * max(prompt_tokens, 1))
        decode = Workload("token", gpu_time=self.token_seconds, compute_bound=0.1, activity=0.5)
        with _LOCK, SimulatedNode(self.gpu) as node:
            monitor = ZeusMonitor()
            with monitor.window("answer") as window:
                prefill.run(node.gpus)
                decode.run(node.gpus, max(generated_tokens, 1))
            node.clock.sleep(_SETTLED)
            taken = window.measurement
            assert taken is not None  # the window has ended
            uncertainty = max((each.uncertainty or 0.0 for each in taken.readings), default=0.0)
            energy = taken.energy
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated_tokens,
            "total_tokens": prompt_tokens + generated_tokens,
            "energy": {
                "joules": energy,
                "uncertainty": uncertainty,
                "method": f"simulated {self.gpu.upper()}",
                "simulated": True,
            },
        }
