"""The board's rows of own rounds: energies, latencies and win rates by model."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from zeus._student import student_factor
from zeus.arena._bradley_terry import Vote, WinRate, win_rates
from zeus.arena._events import Answer
from zeus.arena._round import Round, score
from zeus.arena._rows import ROUNDS, BoardRow, Estimate


def standings(rounds: Sequence[Round]) -> list[BoardRow]:
    """Return a row for each model that took part in a round.

    Energy and latency are of all complete answers, whether there was a vote or not.
    """
    names = sorted({name for each in rounds for name in (each.asked.left, each.asked.right)})
    plain = _rates(names, rounds, [each.vote for each in rounds])
    informed = _rates(names, rounds, [each.informed_vote for each in rounds])
    answers: dict[str, list[Answer]] = {name: [] for name in names}
    worth: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for each in rounds:
        if each.ended is not None:
            failures[each.ended.model] += 1
        if each.answered is None:
            continue
        for answer in (each.answered.left, each.answered.right):
            # A damaged round may name others.
            answers.setdefault(answer.model, []).append(answer)
        if each.worth_it is not None:
            winner = each.asked.left if each.vote == "left" else each.asked.right
            asked[winner] += 1
            worth[winner] += each.worth_it
    return [
        BoardRow(
            model=name,
            source=ROUNDS,
            responses=len(answers[name]),
            energy_per_response=mean_energy(answers[name]),
            energy_per_token=energy_per_token(answers[name]),
            ttft=_median(each.ttft for each in answers[name]),
            tpot=_median(times_per_token(answers[name])),
            e2e=_median(each.seconds for each in answers[name]),
            win_rate=plain[index],
            informed_win_rate=informed[index],
            worth_it=worth[name],
            worth_it_asked=asked[name],
            failures=failures[name],
            simulated=any(each.energy and each.energy.simulated for each in answers[name]),
        )
        for index, name in enumerate(names)
    ]


def _rates(
    names: Sequence[str], rounds: Sequence[Round], votes: Sequence[str]
) -> list[WinRate | None]:
    place = {name: index for index, name in enumerate(names)}
    results = [
        Vote(place[each.asked.left], place[each.asked.right], won)
        for each, vote in zip(rounds, votes, strict=True)
        if (won := score(vote)) is not None and each.asked.left != each.asked.right
    ]
    return win_rates(results, len(names))


def mean_energy(answers: Sequence[Answer]) -> Estimate | None:
    """Return the mean energy of the answers whose energy is known, joules."""
    known = [each.energy.joules for each in answers if each.energy is not None]
    if not known:
        return None
    mean = statistics.fmean(known)
    if len(known) == 1:
        (only,) = (each.energy for each in answers if each.energy is not None)
        half = only.uncertainty
    else:
        half = student_factor(len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))
    return _around(mean, half)


def energy_per_token(answers: Sequence[Answer]) -> Estimate | None:
    """Return the energy of all answers by all their generated tokens, joules.

    The interval is that of a ratio: answers are the samples, not tokens.
    """
    known = [
        (each.energy.joules, each.generated_tokens, each.energy.uncertainty)
        for each in answers
        if each.energy is not None and each.generated_tokens
    ]
    if not known:
        return None
    tokens = sum(count for _, count, _ in known)
    ratio = math.fsum(joules for joules, _, _ in known) / tokens
    if len(known) == 1:
        uncertainty = known[0][2]
        return _around(ratio, None if uncertainty is None else uncertainty / tokens)
    spread = math.fsum((joules - ratio * count) ** 2 for joules, count, _ in known)
    number = len(known)
    error = math.sqrt(spread * number / (number - 1)) / tokens
    return _around(ratio, student_factor(number - 1) * error)


def _around(value: float, half: float | None) -> Estimate:
    return (
        Estimate(value) if half is None else Estimate(value, max(value - half, 0.0), value + half)
    )


def times_per_token(answers: Iterable[Answer]) -> Iterator[float]:
    """Yield the seconds per token after the first of each answer that came in several chunks."""
    for each in answers:
        if each.generated_tokens and each.generated_tokens > 1 and each.seconds > each.ttft:
            yield (each.seconds - each.ttft) / (each.generated_tokens - 1)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
