"""Traffic of a language-model service on simulated servers: what each way of setting clocks saves.

Recorded or random traffic is played under the default (the highest clock), every static clock, our
controller, and an oracle that knows the traffic, under bounds that are multiples of the default's
percentiles. See `docs/simulated-server.md`.
"""

from __future__ import annotations

from zeus.replay.serving._metrics_page import by_metrics
from zeus.replay.serving._oracle import Oracle, find_oracle
from zeus.replay.serving._runs import Bounds, Runs, suitable_replicas
from zeus.replay.serving._study import Outcome, Study, study

__all__ = [
    "Bounds",
    "Oracle",
    "Outcome",
    "Runs",
    "Study",
    "by_metrics",
    "find_oracle",
    "study",
    "suitable_replicas",
]
