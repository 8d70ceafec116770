"""Words and figures for services that several parts of their pages share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._units import time_unit
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._group import KNOBS
from zeus.server.pages._plotting import sample
from zeus.server.pages._units import NONE, UNKNOWN, digits, percent

_NOTHING = 0.005  # share of energy

_STATES = {
    "controlled": "controlled",
    "observed": "observed only",
    "silent": "not heard of",
    "ended": "ended",
    "damaged": "damaged",
}


def state_word(state: str) -> Content:
    """Return a state in words."""
    said = _STATES[state]
    return tag("span", said, class_="bad") if state in ("silent", "damaged") else said


def unit_of(knob: str) -> str:
    """Return the unit of a knob's settings."""
    return KNOBS[knob].unit


def setting(found: Mapping[str, float] | None, knob: str) -> str:
    """Format a setting."""
    if found is None:
        return NONE
    unit, prefill, decode = unit_of(knob), found["prefill"], found["decode"]
    if prefill == decode:
        return f"{digits(decode)}\N{NO-BREAK SPACE}{unit}"
    return f"{digits(prefill)} / {digits(decode)}\N{NO-BREAK SPACE}{unit}"


def bound_of(found: Mapping[str, Any]) -> Bound:
    """Return the bound of a `BoundInfo`."""
    return Bound(found["latency"], found["percent"], found["seconds"])


def verdict(kept: bool | None) -> Content:
    """Return whether a bound is kept, as a mark and a word."""
    if kept is None:
        return NONE
    mark = tag("span", sample("best" if kept else "failed", 6.0), class_="mark")
    word = "kept" if kept else tag("span", "broken", class_="bad")
    return tag("span", mark, word, class_="outcome")


def latency(value: float | None, bound: float) -> str:
    """Format a latency in the unit of its bound, in seconds both."""
    if value is None:
        return NONE
    unit = time_unit(bound)
    return f"{digits(value / unit.size, 3)}\N{NO-BREAK SPACE}{unit.name}"


def saved(saving: Mapping[str, float | None], *, observe: bool) -> Content:
    """Format what is saved, or would be, in a few words."""
    predicted, measured = saving["predicted"], saving["measured"]
    if observe and predicted is not None:
        return tag("span", f"would save {percent(predicted)}", class_="why")
    if measured is None or predicted is None:
        return NONE
    return "none yet" if nothing_saved(predicted) else percent(measured)


def nothing_saved(predicted: float) -> bool:
    """Whether the highest setting was in force nearly always.

    What is measured then differs from the prediction for it by the error of the prediction only.
    """
    return abs(predicted) < _NOTHING


def joules_each(value: float | None) -> str:
    """Format the energy of a token."""
    return UNKNOWN if value is None else f"{digits(value, 3)}\N{NO-BREAK SPACE}J"


def lines(*found: Content) -> Markup:
    """Return contents below each other."""
    return join(*(tag("div", each) for each in found))
