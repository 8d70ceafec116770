"""Tools for test suites, of Zeus and of programs that use it.

A simulated node in virtual time, workloads for it (synthetic or from recorded jobs), GPUs that
reproduce recorded profiles, noisy hosts, measurements replayed from a log, and a server::

    with SimulatedNode("v100x4") as node:
        monitor = ZeusMonitor()
        monitor.begin_window("epoch")
        recorded_workload("v100", "cifar100", 1024).run(node.gpus)
        print(monitor.end_window("epoch"))
"""

from __future__ import annotations

from zeus.clock import VirtualClock
from zeus.testing._node import SimulatedNode
from zeus.testing._noise import HostNoise, NoisySteps
from zeus.testing._profile import ProfileNode, RecordedProfile
from zeus.testing._recorded import RecordedJob, recorded_jobs, recorded_workload
from zeus.testing._replay import ReplayMonitor
from zeus.testing._roofline import Roofline
from zeus.testing._server import serving
from zeus.testing._serving_events import PowerSegment, RequestEvent, ServedRequest
from zeus.testing._serving_meter import CounterMeter
from zeus.testing._serving_node import draw_power, serve_on
from zeus.testing._serving_result import Held, ServingResult
from zeus.testing._serving_simulation import simulate_serving
from zeus.testing._serving_workload import ServingWorkload
from zeus.testing._traffic import Arrival, Traffic
from zeus.testing._workload import Workload

__all__ = [
    "Arrival",
    "CounterMeter",
    "Held",
    "HostNoise",
    "NoisySteps",
    "PowerSegment",
    "ProfileNode",
    "RecordedJob",
    "RecordedProfile",
    "ReplayMonitor",
    "RequestEvent",
    "Roofline",
    "ServedRequest",
    "ServingResult",
    "ServingWorkload",
    "SimulatedNode",
    "Traffic",
    "VirtualClock",
    "Workload",
    "draw_power",
    "recorded_jobs",
    "recorded_workload",
    "serve_on",
    "serving",
    "simulate_serving",
]
