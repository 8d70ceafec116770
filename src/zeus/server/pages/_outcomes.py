"""Outcomes of trials: a word and a distinct mark for each."""

from __future__ import annotations

from zeus.drawing._markup import Markup, tag
from zeus.drawing._shapes import Kind
from zeus.optimizer._stopping import Outcome, word_of
from zeus.server.pages._plotting import sample

_KINDS: dict[str, Kind] = {
    Outcome.CONVERGED: "best",
    Outcome.STOPPED: "stopped",
    Outcome.FAILED: "failed",
    Outcome.RUNNING: "running",
}


def kind_of(state: str) -> Kind:
    """Return the mark of a state; a neutral one for states such as "expired"."""
    return _KINDS.get(state, "other")


def outcome(state: str) -> Markup:
    """Return a state as a mark and a word."""
    pulse = " pulse" if state == Outcome.RUNNING else ""
    mark = tag("span", sample(kind_of(state), 6.0), class_=f"mark{pulse}")
    return tag("span", mark, word_of(state), class_="outcome")
