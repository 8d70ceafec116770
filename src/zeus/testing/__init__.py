"""Tools for test suites, of Zeus and of programs that use it.

A simulated node in virtual time, workloads for it (synthetic or from recorded jobs), GPUs that
reproduce recorded profiles, noisy hosts, and measurements replayed from a log::

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
from zeus.testing._workload import Workload

__all__ = [
    "HostNoise",
    "NoisySteps",
    "ProfileNode",
    "RecordedJob",
    "RecordedProfile",
    "ReplayMonitor",
    "SimulatedNode",
    "VirtualClock",
    "Workload",
    "recorded_jobs",
    "recorded_workload",
]
