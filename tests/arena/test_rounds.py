"""The rules of a round, ratings, standings and pacing, without any server."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus.arena._bradley_terry import Vote, win_rates
from zeus.arena._events import (
    Answer,
    Answered,
    AnswerEnergy,
    Asked,
    Ended,
    Judged,
    Voted,
    from_payload,
    to_payload,
)
from zeus.arena._limits import RateLimit
from zeus.arena._pacing import FRAME_BYTES, TICK, Pacer, PieceReader, frame, printable
from zeus.arena._round import VOTE_SECONDS, Round, check, fold
from zeus.arena._standings import energy_per_token, mean_energy, standings
from zeus.errors import ArenaConflictError, ArenaError


def answer(model: str, joules: float | None, tokens: int = 10) -> Answer:
    energy = None if joules is None else AnswerEnergy(joules, 0.1, "counter")
    return Answer(model, "text", tokens, 3, 0.1, 1.0, energy)


def played(left: Any = 5.0, right: Any = 20.0, vote: str = "", judgement: str = "") -> Round:
    events: list[Any] = [(0.0, Asked("why?", "a", "b"))]
    events.append((1.0, Answered(answer("a", left), answer("b", right))))
    events += [(2.0, Voted(vote))] if vote else []
    events += [(3.0, Judged(judgement))] if judgement else []
    return fold(events)


@pytest.mark.parametrize(
    ("energies", "vote", "question", "answers"),
    [
        ((5.0, 20.0), "right", "worth", {"yes": "right", "no": "left"}),
        ((5.0, 20.0), "left", "", {"none": "left"}),
        ((5.0, 20.0), "tie", "cheaper", {"yes": "left", "no": "tie"}),
        ((5.0, 20.0), "bad", "", {"none": "bad"}),
        ((5.0, 5.0), "left", "", {"none": "left"}),
        ((5.0, 5.1), "right", "", {"none": "right"}),  # within the uncertainty
        ((None, 5.0), "right", "", {"none": ""}),
    ],
)
def test_the_vote_that_knows_the_energy(energies, vote, question, answers):
    left, right = energies
    before = played(left, right, vote)
    assert before.question == question
    assert before.informed_vote == ""
    for judgement in ("yes", "no", "none"):
        if judgement in answers:
            assert check(before, Judged(judgement), 3.0)
            after = played(left, right, vote, judgement)
            assert after.informed_vote == answers[judgement]
            worth = {"yes": True, "no": False}[judgement] if question == "worth" else None
            assert after.worth_it is worth
        else:
            with pytest.raises(ArenaConflictError, match="second question must be"):
                check(before, Judged(judgement), 3.0)


def test_events_follow_each_other():
    asked = fold([(0.0, Asked("why?", "a", "b"))])
    for early in (Voted("left"), Judged("yes")):
        with pytest.raises(ArenaConflictError):
            check(asked, early, 1.0)
    assert check(played(), Voted("left"), 1.0)
    with pytest.raises(ArenaConflictError, match="within 60 minutes"):
        check(played(), Voted("left"), 2.0 + VOTE_SECONDS)
    assert not check(played(vote="left"), Voted("left"), 1e9)  # the same again, however late
    with pytest.raises(ArenaConflictError, match="one vote per round"):
        check(played(vote="left"), Voted("right"), 3.0)
    ended = fold([(0.0, Asked("why?", "a", "b")), (1.0, Ended("broken", "a"))])
    with pytest.raises(ArenaConflictError, match="without two answers"):
        check(ended, Voted("left"), 2.0)
    for late in (Ended("x"), Answered(answer("a", 1.0), answer("b", 1.0))):
        with pytest.raises(ArenaConflictError, match="already past"):
            check(ended, late, 2.0)


def test_events_survive_storage_and_damage_is_found():
    for event in (
        Asked("why?", "a", "b"),
        Answered(answer("a", None), answer("b", 3.5)),
        Ended("why", "a"),
        Voted("tie"),
        Judged("none"),
    ):
        payload = json.loads(json.dumps(to_payload(event)))
        assert from_payload(event.kind, payload) == event
        for name in payload:
            with pytest.raises(ArenaError, match="must be"):
                from_payload(event.kind, {**payload, name: ["damaged"]})
    for bad in (float("nan"), float("inf"), -1, True, "1"):
        payload = to_payload(Answered(answer("a", 1.0), answer("b", 3.5)))
        payload["left"]["energy"]["joules"] = bad
        with pytest.raises(ArenaError, match="joules"):
            from_payload("answered", payload)


# --- ratings --------------------------------------------------------------------------------------


def test_win_rates_are_near_the_truth_and_their_intervals_cover_it():
    random_ = np.random.default_rng(7)
    strengths = np.array([1.0, 0.3, 0.0, -1.0])
    chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    truth = (chance.sum(axis=1) - 0.5) / 3
    inside = total = 0
    for trial in range(60):
        votes = []
        for _ in range(80):
            one, other = random_.choice(4, 2, replace=False)
            score = float(random_.random() < chance[one, other])
            votes.append(Vote(int(one), int(other), score))
        for model, rate in enumerate(win_rates(votes, 4, trial)):
            assert rate is not None
            inside += rate.low <= truth[model] <= rate.high
            total += 1
    assert inside / total >= 0.88  # 95 % are promised; 240 samples, four of them alike


def test_few_votes_are_not_certain():
    for won in (1, 3, 8):
        rates: list[Any] = win_rates([Vote(0, 1, 1.0)] * won, 3)
        one, other, none = rates
        assert none is None
        assert one.value > 0.5 > other.value
        assert one.low < one.value < 1.0
        assert one.high - one.low > 0.1
        assert one.value == pytest.approx(1 - other.value, abs=1e-4)
    alike: list[Any] = win_rates([Vote(0, 1, 0.5)] * 10, 2)
    assert alike[0].value == pytest.approx(0.5)
    assert win_rates([], 2) == [None, None]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.sampled_from([0, 0.5, 1]))))
def test_win_rates_have_an_order_that_does_not_matter(results):
    votes = [Vote(one, (one + step) % 5, score) for one, step, score in results]
    turned = [Vote(vote.other, vote.one, 1 - vote.score) for vote in reversed(votes)]
    for rate, same in zip(win_rates(votes, 5), win_rates(turned, 5), strict=True):
        assert (rate is None) == (same is None)
        if rate is not None and same is not None:
            assert 0 <= rate.low <= rate.value <= rate.high <= 1
            assert rate.value == pytest.approx(same.value, abs=1e-3)


def test_standings():
    rounds = [
        played(5.0, 20.0, "right", "no"),
        played(7.0, 20.0, "right", "yes"),
        played(None, 26.0, "left", "none"),
        played(6.0, 22.0),
        fold([(0.0, Asked("?", "a", "b")), (1.0, Ended("broken", "a"))]),
    ]
    rows: list[Any] = standings(rounds)
    a, b = rows
    assert (a.model, b.model) == ("a", "b")
    assert (a.responses, a.failures, b.failures) == (4, 1, 0)
    assert a.energy_per_response.value == pytest.approx(6.0)
    assert a.energy_per_response.low == pytest.approx(6.0 - 4.303 / 3**0.5, abs=0.01)
    assert b.energy_per_token.value == pytest.approx(2.2)
    assert a.win_rate.value < 0.5 < b.win_rate.value
    assert a.informed_win_rate.rounds == 2
    assert (b.worth_it, b.worth_it_asked, a.worth_it_share) == (1, 2, None)
    assert b.tpot == pytest.approx(0.1)


def test_intervals_of_energy_cover_the_truth():
    chance = random.Random(3)
    inside = 0
    for _ in range(200):
        lengths = [chance.randint(20, 400) for _ in range(12)]
        answers = [answer("a", 0.3 * n + chance.gauss(30, 8), n) for n in lengths]
        # What all answers of this kind would take: 0.3 J a token, and 30 J for each.
        token: Any = energy_per_token(answers)
        inside += token.low <= 0.3 + 30 / 210 <= token.high
    assert inside >= 170
    only = mean_energy([answer("a", 4.0)])
    assert only is not None
    assert only.high == pytest.approx(4.1)
    assert mean_energy([answer("a", None)]) is None


# --- pacing ---------------------------------------------------------------------------------------


@given(st.text(max_size=200), st.data())
def test_pieces_are_the_text_again(text, data):
    reader, found, at = PieceReader(), [], 0
    while at < len(text):
        step = data.draw(st.integers(1, 40))
        found += reader.feed(text[at : at + step])
        at += step
    found += reader.rest()
    assert "".join(found) == text
    assert all(len(piece) <= 24 for piece in found)


@given(st.text(max_size=48), st.text(max_size=48), st.sampled_from(["", "answered", "ended"]))
def test_frames_have_one_size(left, right, state):
    line = frame(printable(left), printable(right), state)
    assert len(line) == FRAME_BYTES
    assert line.count(b"\n") == 1
    parts = json.loads(line)
    assert (parts["left"], parts["right"]) == (printable(left), printable(right))


def released(speeds, words, chunks=(1, 1)) -> list[tuple[int, int]]:
    """Number of pieces that both sides get, tick by tick, from models of these speeds."""
    pacer, frames = Pacer(), list[tuple[int, int]]()
    sent, ended = [0, 0], [False, False]
    for tick in range(5000):
        now = tick * TICK
        for side in (0, 1):
            due = min(int(now * speeds[side]) // chunks[side] * chunks[side], words[side])
            if now * speeds[side] >= words[side]:
                due = words[side]
            if due > sent[side]:
                text = "".join(f"w{n} " for n in range(sent[side], due))
                pacer.feed(side, text, now)
                sent[side] = due
            if due == words[side] and not ended[side]:
                pacer.end(side, now)
                ended[side] = True
        if pacer.finished:
            return frames
        left, right = pacer.tick()
        frames.append((len(left.split()), len(right.split())))
    raise AssertionError("it does not end")


@pytest.mark.parametrize("chunks", [(1, 1), (7, 1), (1, 16)])
@pytest.mark.parametrize("words", [(100, 100), (100, 40), (40, 100), (5, 100)])
def test_both_sides_get_as_much_whoever_is_faster(chunks, words):
    """The same words from models of other speeds: neither counts nor times differ by side."""
    one = released((60.0, 9.0), words, chunks)
    other = released((9.0, 60.0), words, chunks)
    for frames in (one, other):
        until = min(words) - 2
        total = 0
        for left, right in frames:
            assert left == right or total >= until
            total += max(left, right)
        assert sum(left for left, _ in frames) == words[0]
        assert sum(right for _, right in frames) == words[1]


def test_the_rate_stays_the_same_when_one_has_ended():
    """A slow model that ends first must not be followed by a fast one that hurries."""

    def pace(frames, first, last):
        part = [max(frame) for frame in frames[first:last]]
        return sum(part) / len(part)

    for speeds in ((10.0, 80.0), (80.0, 10.0)):
        frames = released(speeds, (50, 150))
        began = next(i for i, frame in enumerate(frames) if max(frame))
        end = next(i for i in range(len(frames)) if sum(f[0] for f in frames[:i]) >= 50)
        before, after = pace(frames, began, end), pace(frames, end, len(frames))
        assert after == pytest.approx(before, rel=0.15)


def test_limit_of_requests():
    now = 0.0
    limit = RateLimit(3, lambda: now)
    assert [limit.wait("a") for _ in range(3)] == [0.0] * 3
    assert limit.wait("a") == pytest.approx(20.0)
    assert limit.wait("b") == 0.0
    now = 21.0
    assert limit.wait("a") == 0.0
    assert limit.wait("a") > 0.0
