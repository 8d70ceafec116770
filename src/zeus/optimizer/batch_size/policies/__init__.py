"""What decides: policies that choose the batch size of the next trial, behind one interface.

`_base.py` states the interface, each policy has a module (`_zeus.py`, `_paper.py`, `_grid.py`,
`_default.py`), `_registry.py` lists them, and `_job_state.py` applies one to the log of a job.

Public is what a policy of another distribution needs (docs/extending.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.job._job_batch import Choices, JobBatch, Role, Trials
    from zeus.optimizer.batch_size.policies._base import Policy, State, simple_choices

__all__ = ["Choices", "JobBatch", "Policy", "Role", "State", "Trials", "simple_choices"]

_JOB = "zeus.optimizer.batch_size.job._job_batch"
_BASE = "zeus.optimizer.batch_size.policies._base"
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Choices", "JobBatch", "Role", "Trials"), _JOB),
        **dict.fromkeys(("Policy", "State", "simple_choices"), _BASE),
    },
)
