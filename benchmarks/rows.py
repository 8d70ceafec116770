"""Rows of the report: one number of every tool, its target and what it was made of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from tools import OURS

Row = dict[str, Any]
Answer = dict[str, Any]


def row(
    task: str,
    measure: str,
    case: str,
    unit: str,
    values: Mapping[str, float | None],
    *,
    target: float | None = None,
    at_least: bool = False,
    **more: Any,
) -> Row:
    """One number of every tool; the target is an upper bound for ours, or a lower one."""
    ours = values.get(OURS)
    met = None
    if target is not None:
        met = ours is not None and (ours >= target if at_least else ours <= target)
    ratios = {
        label: ours / value
        for label, value in values.items()
        if label != OURS and ours is not None and value
    }
    return {
        "task": task,
        "measure": measure,
        "case": case,
        "unit": unit,
        "values": values,
        "target": target,
        "at_least": at_least,
        "met": met,
        "ratios": ratios,
        **more,
    }


def medians_row(
    task: str,
    measure: str,
    case: str,
    unit: str,
    answers: dict[str, list[Answer]],
    *,
    key: str,
    target: float | None = None,
) -> Row:
    """Medians of one number of the answers, with all of them beside."""
    turns = {
        label: [answer[key] for answer in given if key in answer]
        for label, given in answers.items()
    }
    values = {label: statistics.median(each) if each else None for label, each in turns.items()}
    more = {"turns": turns, **errors_of(answers)}
    return row(task, measure, case, unit, values, target=target, **more)


def errors_of(answers: dict[str, list[Answer]]) -> dict[str, Any]:
    """Why some have no answer, for their row; empty if all have."""
    errors = {
        label: answer["error"]
        for label, given in answers.items()
        for answer in given
        if "error" in answer
    }
    return {"errors": errors} if errors else {}


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
