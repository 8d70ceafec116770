"""Everything of Zeus that this folder uses: the only module here that imports private ones."""

from __future__ import annotations

from zeus.drawing import _colors as colors
from zeus.drawing._labels import far_spots, first_free, near_spots
from zeus.drawing._pages import document
from zeus.drawing._png import SIDES
from zeus.drawing._shapes import Box
from zeus.drawing._text import IMAGE_FONT
from zeus.drawing._units import Unit, energy_unit, time_unit
from zeus.errors import MissingExtraError, TraceError
from zeus.frontier._cost import zeus_cost
from zeus.optimizer.batch_size.job._job_batch import (
    Bools,
    Choices,
    Floats,
    Ints,
    JobBatch,
    Rows,
    Trials,
)
from zeus.optimizer.batch_size.policies._base import Policy
from zeus.optimizer.batch_size.policies._paper import PaperPolicy, PaperState
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._jobs import Job, replay
from zeus.replay._search import Profiles, replay_search
from zeus.replay._table import JobTable, job_table
from zeus.replay._traces import Traces, TrainingRow, load_traces
from zeus.replay._workloads import WORKLOADS, Workload
from zeus.replay.cluster import ALL_WORKLOADS, made_up_trace, simulate
from zeus.state._files import write_atomically

__all__ = [
    "ALL_WORKLOADS",
    "IMAGE_FONT",
    "SIDES",
    "WORKLOADS",
    "Bools",
    "Box",
    "Choices",
    "Floats",
    "Ints",
    "Job",
    "JobBatch",
    "JobTable",
    "MissingExtraError",
    "PaperPolicy",
    "PaperState",
    "Policy",
    "Profiles",
    "Rows",
    "TraceError",
    "Traces",
    "TrainingRow",
    "Trials",
    "Unit",
    "Workload",
    "colors",
    "document",
    "energy_unit",
    "far_spots",
    "first_free",
    "job_table",
    "load_traces",
    "made_up_trace",
    "near_spots",
    "policy_named",
    "replay",
    "replay_search",
    "simulate",
    "time_unit",
    "write_atomically",
    "zeus_cost",
]
