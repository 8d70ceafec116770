"""Outcomes of trials: a word and a distinct mark for each."""

from __future__ import annotations

from zeus.drawing._markup import Markup, tag
from zeus.drawing._shapes import Kind
from zeus.optimizer.batch_size.job._events import CANCELLED, CONVERGED, EXPIRED, FAILED, STOPPED
from zeus.optimizer.batch_size.storage import RUNNING
from zeus.server.pages._plotting import sample

KINDS: dict[str, Kind] = {
    CONVERGED: "best",
    STOPPED: "stopped",
    FAILED: "failed",
    EXPIRED: "other",
    CANCELLED: "other",
    RUNNING: "running",
}
WORDS = {
    CONVERGED: "converged",
    STOPPED: "stopped early",
    FAILED: "failed",
    EXPIRED: "expired",
    CANCELLED: "cancelled",
    RUNNING: "running",
}


def kind_of(state: str) -> Kind:
    """Return the mark of a state; a neutral one for unknown states."""
    return KINDS.get(state, "other")


def outcome(state: str) -> Markup:
    """Return a state as a mark and a word."""
    pulse = " pulse" if state == RUNNING else ""
    mark = tag("span", sample(kind_of(state), 6.0), class_=f"mark{pulse}")
    return tag("span", mark, WORDS.get(state, state), class_="outcome")
