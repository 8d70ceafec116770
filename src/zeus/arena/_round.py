"""The rules of a round: what may follow what, and what a vote means once energies are known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from zeus.arena._events import (
    BAD,
    LEFT,
    NO,
    NOT_ASKED,
    RIGHT,
    TIE,
    YES,
    Answered,
    Asked,
    Ended,
    Judged,
    RoundEvent,
    Voted,
)
from zeus.errors import ArenaConflictError, ArenaError

VOTE_SECONDS = 3600.0
"""Time for a vote after both answers; later the round has ended."""


@dataclass(frozen=True)
class Round:
    """A round, as its events describe it.

    Attributes:
        asked: How it began.
        answered: Both answers, if they were completed.
        ended: Why there are none, if so.
        vote: The better side, `TIE` or `BAD`; empty before the vote.
        judgement: Answer to the second question; empty before it.
        at: When it was asked, in seconds since 1970.
        answered_at: When both answers were complete; 0 before.
    """

    asked: Asked
    answered: Answered | None = None
    ended: Ended | None = None
    vote: str = ""
    judgement: str = ""
    at: float = 0.0
    answered_at: float = 0.0

    @property
    def costlier(self) -> str:
        """Side that consumed more energy; empty if that is unknown or within the uncertainty."""
        if self.answered is None:
            return ""
        one, other = self.answered.left.energy, self.answered.right.energy
        if one is None or other is None:
            return ""
        unknown = math.hypot(one.uncertainty or 0.0, other.uncertainty or 0.0)
        if abs(one.joules - other.joules) <= unknown:
            return ""
        return LEFT if one.joules > other.joules else RIGHT

    @property
    def question(self) -> str:
        """The second question, after the vote.

        "worth" where the better answer consumed more: was it worth it? "cheaper" where both were
        alike: is the one that consumed less preferred now? Empty where there is nothing to ask.
        """
        if not self.vote or not self.costlier:
            return ""
        if self.vote == TIE:
            return "cheaper"
        return "worth" if self.vote == self.costlier else ""

    @property
    def informed_vote(self) -> str:
        """The vote once energies are known; empty before the second answer, or without energies."""
        if not self.judgement or self.answered is None:
            return ""
        if self.answered.left.energy is None or self.answered.right.energy is None:
            return ""
        cheaper = {LEFT: RIGHT, RIGHT: LEFT}.get(self.costlier, "")
        if self.question == "worth":
            return self.vote if self.judgement == YES else cheaper
        if self.question == "cheaper":
            return cheaper if self.judgement == YES else TIE
        return self.vote

    @property
    def worth_it(self) -> bool | None:
        """Whether the better answer was worth its higher energy; `None` if that was not asked."""
        if self.question != "worth" or self.judgement not in (YES, NO):
            return None
        return self.judgement == YES


def fold(events: Iterable[tuple[float, RoundEvent]]) -> Round:
    """Return the round that events describe.

    Args:
        events: Time in seconds since 1970 and event, in their order.

    Raises:
        ArenaError: If they are not those of a round.
    """
    found = {event.kind: (at, event) for at, event in events}
    begin = found.get(Asked.kind)
    if begin is None or not isinstance(begin[1], Asked):
        raise ArenaError("the round has no beginning")
    answers, end = found.get(Answered.kind), found.get(Ended.kind)
    vote, judged = found.get(Voted.kind), found.get(Judged.kind)
    return Round(
        begin[1],
        answers[1] if answers and isinstance(answers[1], Answered) else None,
        end[1] if end and isinstance(end[1], Ended) else None,
        vote[1].vote if vote and isinstance(vote[1], Voted) else "",
        judged[1].judgement if judged and isinstance(judged[1], Judged) else "",
        begin[0],
        answers[0] if answers else 0.0,
    )


def check(current: Round, event: RoundEvent, now: float) -> bool:
    """Check that an event may follow.

    Args:
        current: The round so far.
        event: The event.
        now: Time in seconds since 1970.

    Returns:
        Whether it is new; `False` for the repetition of one that is stored.

    Raises:
        ArenaConflictError: If it may not follow.
    """
    if isinstance(event, Voted):
        return _check_vote(current, event, now)
    if isinstance(event, Judged):
        return _check_judgement(current, event)
    over = current.answered is not None or current.ended is not None
    if isinstance(event, Asked) or over:
        raise ArenaConflictError(f"the round is already past `{event.kind}`")
    return True


def _check_vote(current: Round, event: Voted, now: float) -> bool:
    if current.vote == event.vote:
        return False
    if current.vote:
        raise ArenaConflictError("there is one vote per round, and this round has another one")
    if current.ended is not None:
        raise ArenaConflictError("the round ended without two answers, so there is no vote")
    if current.answered is None:
        raise ArenaConflictError("a vote needs both answers, and they are not complete yet")
    if now - current.answered_at > VOTE_SECONDS:
        raise ArenaConflictError(
            f"a vote must come within {VOTE_SECONDS / 60:g} minutes of the answers"
        )
    return True


def _check_judgement(current: Round, event: Judged) -> bool:
    if current.judgement == event.judgement:
        return False
    if current.judgement:
        raise ArenaConflictError("the second question has one answer, and it was another one")
    if not current.vote:
        raise ArenaConflictError("the second question follows the vote, and there is none yet")
    asked = bool(current.question)
    if asked == (event.judgement == NOT_ASKED):
        rule = "yes or no" if asked else NOT_ASKED
        raise ArenaConflictError(
            f"the answer to this second question must be {rule}, but got {event.judgement}"
        )
    return True


def score(vote: str) -> float | None:
    """Return the share of the win that goes to the left: 1, 0, or a half; `None` without a vote."""
    return {LEFT: 1.0, RIGHT: 0.0, TIE: 0.5, BAD: 0.5}.get(vote)
