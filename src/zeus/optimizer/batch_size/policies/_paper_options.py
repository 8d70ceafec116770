"""Choices of the program that the authors of the Zeus paper published; each can be undone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperOptions:
    """Choices of the authors' program. All are `True` as published.

    Attributes:
        observe_misses: The cost of every run is observed, also of one that missed the target
            (algorithm 3, line 12). Otherwise only the cost of runs that converged.
        whole_recurrences: The stopping threshold rests on the cost of a recurrence with all its
            retries. Otherwise on the cost of the run that converged.
        keep_threshold: Even with a window, the threshold rests on the lowest cost ever. Otherwise
            on the lowest of the job's latest runs.
        skip_below: A round in which the first batch size misses explores no smaller ones, and so
            prunes them.
        may_empty: Pruning may leave no batch size. Then the default is used from there on.
            Otherwise a round in which nothing converged is followed by one with the rest.
        always_pin: A run that begins while another is in flight gets the best known batch size.
            Otherwise only while that other one explores.
        foresee_epochs: In a replay, see `Policy.foresees_epochs`.
        equal_is_certain: Equal observations have no variance, so that the belief never changes
            again; a batch size is sampled once it has two observations. Otherwise one observation
            is enough, and some variance remains.
    """

    observe_misses: bool = True
    whole_recurrences: bool = True
    keep_threshold: bool = True
    skip_below: bool = True
    may_empty: bool = True
    always_pin: bool = True
    foresee_epochs: bool = True
    equal_is_certain: bool = True


AS_PUBLISHED = PaperOptions()
REPAIRED = PaperOptions(
    keep_threshold=False,
    skip_below=False,
    may_empty=False,
    always_pin=False,
    foresee_epochs=False,
    equal_is_certain=False,
)
