"""Rows of the report: one number of every tool, its target and what it was made of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from tools import OURS

Row = dict[str, Any]
Answer = dict[str, Any]


def row(
    task: str,
    measure: str,
    case: str,
    unit: str,
    values: dict[str, float | None],
    *,
    target: float | None = None,
    **more: Any,
) -> Row:
    """One number of every tool; the target is an upper bound for ours."""
    ours = values.get(OURS)
    met = None if target is None else ours is not None and ours <= target
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
    errors = {
        label: answer["error"]
        for label, given in answers.items()
        for answer in given
        if "error" in answer
    }
    more: dict[str, Any] = {"turns": turns}
    if errors:
        more["errors"] = errors
    return row(task, measure, case, unit, values, target=target, **more)


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
