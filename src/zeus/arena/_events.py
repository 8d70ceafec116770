"""Events of a round: asked, answered, voted, judged. They are appended, never changed.

An event is stored as its kind and a JSON object. Reading checks everything: a store may be damaged,
and texts come from models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from zeus.errors import ArenaError

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)
TIE, BAD = "tie", "bad"
VOTES = (LEFT, RIGHT, TIE, BAD)
"""Better answers: one side, both alike, or both bad."""
YES, NO, NOT_ASKED = "yes", "no", "none"
JUDGEMENTS = (YES, NO, NOT_ASKED)
"""Answers to the second question; "none" if there was nothing to ask."""


@dataclass(frozen=True)
class AnswerEnergy:
    """Energy of one answer.

    Attributes:
        joules: Energy, joules.
        uncertainty: Half-width of its 95 % interval, joules; `None` if unknown.
        method: How it was determined, in a word or two.
        simulated: Whether it is of simulated GPUs.
    """

    joules: float
    uncertainty: float | None = None
    method: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class Answer:
    """A model's answer.

    Attributes:
        model: Name of the model.
        text: Its words.
        generated_tokens: Number of tokens; `None` if the server did not count them.
        prompt_tokens: Likewise, of the prompt.
        ttft: Seconds to the first token.
        seconds: Seconds to the last.
        energy: `None` if unknown.
    """

    model: str
    text: str
    generated_tokens: int | None
    prompt_tokens: int | None
    ttft: float
    seconds: float
    energy: AnswerEnergy | None = None


@dataclass(frozen=True)
class Asked:
    """A prompt was sent to two models.

    Attributes:
        prompt: The prompt; empty if texts are not kept.
        left: Name of the model on the left.
        right: Name of the model on the right.
    """

    kind: ClassVar[str] = "asked"
    prompt: str
    left: str
    right: str


@dataclass(frozen=True)
class Answered:
    """Both answers are complete."""

    kind: ClassVar[str] = "answered"
    left: Answer
    right: Answer


@dataclass(frozen=True)
class Ended:
    """The round ended without answers.

    Attributes:
        reason: Why, for the operator.
        model: Model that failed; empty if none did.
    """

    kind: ClassVar[str] = "ended"
    reason: str
    model: str = ""


@dataclass(frozen=True)
class Voted:
    """A person voted, before the energies were shown.

    Attributes:
        vote: One of `VOTES`.
    """

    kind: ClassVar[str] = "voted"
    vote: str


@dataclass(frozen=True)
class Judged:
    """A person answered the second question, knowing the energies; names were unveiled.

    Attributes:
        judgement: One of `JUDGEMENTS`.
    """

    kind: ClassVar[str] = "judged"
    judgement: str


RoundEvent: TypeAlias = Asked | Answered | Ended | Voted | Judged


def to_payload(event: RoundEvent) -> dict[str, Any]:
    """Return an event as a JSON object, without its kind."""
    return asdict(event)


def from_payload(kind: str, payload: object) -> RoundEvent:
    """Return the event of a stored object.

    Raises:
        ArenaError: If it is none.
    """
    if not isinstance(payload, Mapping):
        raise ArenaError(f"an event must be an object, but got {type(payload).__name__}")
    if kind == Asked.kind:
        return Asked(_text(payload, "prompt"), _text(payload, "left"), _text(payload, "right"))
    if kind == Answered.kind:
        return Answered(_answer(payload.get(LEFT)), _answer(payload.get(RIGHT)))
    if kind == Ended.kind:
        return Ended(_text(payload, "reason"), _text(payload, "model"))
    if kind == Voted.kind:
        return Voted(_word(payload, "vote", VOTES))
    if kind == Judged.kind:
        return Judged(_word(payload, "judgement", JUDGEMENTS))
    raise ArenaError(f"there is no event of the kind {kind!a:.80}")


def _answer(found: object) -> Answer:
    if not isinstance(found, Mapping):
        raise ArenaError(f"an answer must be an object, but got {type(found).__name__}")
    return Answer(
        _text(found, "model"),
        _text(found, "text"),
        _count(found, "generated_tokens"),
        _count(found, "prompt_tokens"),
        _number(found, "ttft"),
        _number(found, "seconds"),
        None if found.get("energy") is None else _energy(found["energy"]),
    )


def _energy(found: object) -> AnswerEnergy:
    if not isinstance(found, Mapping):
        raise ArenaError(f"an energy must be an object, but got {type(found).__name__}")
    uncertainty = None if found.get("uncertainty") is None else _number(found, "uncertainty")
    simulated = found.get("simulated") is True
    return AnswerEnergy(_number(found, "joules"), uncertainty, _text(found, "method"), simulated)


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise ArenaError(f"`{name}` must be a text, but got {type(value).__name__}")
    return value


def _word(found: Mapping[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = found.get(name)
    if value not in words:
        raise ArenaError(f"`{name}` must be one of {', '.join(words)}, but got {value!a:.80}")
    return str(value)


def _number(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ArenaError(f"`{name}` must be a number of at least 0, but got {value!a:.80}")
    return float(value)


def _count(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    return None if value is None else int(_number(found, name))
