"""Recurring jobs: which batch size costs least to reach the target, learned run by run.

A job is its specification (`JobSpec`) and the log of its trials; a policy is a pure function of the
two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.spec import JobSpec

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "JobSpec": "zeus.optimizer.batch_size.spec",
    },
)

__all__ = [
    "JobSpec",
]
