"""Steps of a server that answers requests in batches, found from the instants of their tokens.

Servers of language models work in steps: each processes prompts, or generates a token for every
running request, or both. A step ends when its tokens are sent, so tokens that arrive together are
those of one step, and the step lasted since the tokens before. Time in which no request is there is
idle. Nothing has to be known of the server.

Tokens are seen late, by different times. Of a step that only generates, those that are missing are
taken to follow; they count in it when it ends, and not when they come. A step ends with its first
token, and as much later as a single one usually is.

A prompt may be processed in pieces, in steps that generate tokens for others as well. Such steps
take longer than those that only generate; the prompt's tokens are divided by that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from zeus.monitor._request_learning import Lateness, Line

_MIN_GAP = 0.001  # seconds without a token that end a step at least
_GAP = 0.3  # of a step's usual duration, likewise
_EXCESS = 0.1  # of it, by which a step is longer because a prompt was processed as well
_MIN_DOUBT, _FIRST_DOUBT, _MAX_DOUBT = 0.05, 0.1, 0.5  # of prompt tokens that are inferred
_FOLLOW = 0.1  # weight of a step in what is usual
_PROMPT_MEMORY = 20_000.0  # prompt tokens over which it is learned how long they take
_HASTE = 0.5  # of the time that prompts usually take; what is shorter cannot be all of it
_CHUNK = 512  # prompt tokens in a step, until it is known how long they take
_UNSEEN = 0.2  # relative standard deviation of shares where no tokens are seen
_MAX_OWED = 2  # steps in a row in which a request is taken to have a token that was not seen yet
_HELD_UP = 3.0  # seconds after which a step is cut, whether or not tokens have arrived
_FIRST_STEP = 0.05  # seconds; usual duration, until it is known


class Phase(IntEnum):
    """What the server does in a step."""

    IDLE = 0
    DECODE = 1
    PREFILL = 2
    MIXED = 3


class Member(Protocol):
    """A request, as far as steps are concerned.

    Attributes:
        began: When it arrived, in seconds.
        prompt_tokens: Tokens of its prompt.
        prompt_left: Prompt tokens that are not processed yet, as far as is known.
        started: Whether its first token was generated.
        streams: Whether its tokens are seen one by one.
        left: When the last step that it took part in ended; `None` before.
    """

    began: float
    prompt_tokens: int
    prompt_left: float
    started: bool
    streams: bool
    left: float | None


#: What requests take of a step: the shares due to their prompts and to their generated tokens.
Shares = dict[Member, tuple[float, float]]


class Step(NamedTuple):
    """A step, or idle time.

    Attributes:
        begin: Seconds.
        end: Seconds.
        phase: What was done in it.
        batch: Requests that tokens were generated for.
        shares: They add up to 1, unless it is idle.
        doubt: Relative standard deviation of its shares, where they are inferred: prompt tokens
            from its duration, or tokens that are not seen.
    """

    begin: float
    end: float
    phase: Phase
    batch: int
    shares: Shares
    doubt: float = 0.0


#: When something happened to a request, in seconds; the request; and how many tokens it got,
#: or `BEGIN` or `END`.
Event = tuple[float, Member, int]

BEGIN, END = 0, -1


class StepFinder:
    """Turns events into steps. Not thread-safe. Before the first event, the server is idle."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque()
        #: Until when steps are known, in seconds.
        self.known = -math.inf
        self._in_flight: dict[Member, None] = {}
        self._waiting: dict[Member, None] = {}  # those without a token, in the order of arrival
        self._unseen_tokens: dict[Member, None] = {}  # those whose tokens are not seen
        self._running: dict[Member, int] = {}  # those with a token, and how many are overdue
        self._expected: dict[Member, int] = {}  # those of them that steps are counted for: misses
        self._group: dict[Member, int] = {}
        self._group_begin = -math.inf
        self._late = 0.0  # sum of squares, of the tokens of the group after its first
        self._group_end = -math.inf
        self._ending: list[Member] = []
        self._step_time = Line()  # seconds of a step that only generates, by its batch
        self._usual_gap = max(_MIN_GAP, _GAP * _FIRST_STEP)
        self._lateness = Lateness()
        self._mixes = 0.6  # share of steps with a first token that have others as well
        self._mismatch = _FIRST_DOUBT**2  # mean square, relative to prompts
        self._per_prompt_token = 0.0  # seconds
        self._worked = 0.0  # seconds of computation for prompts that are not complete
        self._prompt_sums = (0.0, 0.0)  # seconds of computation, and tokens

    @property
    def settled(self) -> float:
        """Until when no late token changes the steps any more, most likely."""
        settled = self.known - 3 * self._lateness.rms
        last = self.steps[-1] if self.steps else None
        if last is None or last.phase is not Phase.PREFILL:
            return settled
        # Prompts that waited as well may have been processed in it, too: see `_step`.
        waited = any(each.began <= last.begin for each in self._waiting)
        return min(settled, last.begin) if waited else settled

    @property
    def sharing(self) -> int:
        """Requests that probably share the step under way."""
        return max(len(self._group), len(self._in_flight), 1)

    def forget(self, before: float) -> None:
        """Drop steps that ended before an instant."""
        while self.steps and self.steps[0].end <= before:
            self.steps.popleft()

    def feed(self, events: Iterable[Event], until: float) -> None:
        """Add events, in the order of time, all that happened up to an instant.

        Args:
            events: Events that were not fed before.
            until: Instant up to which none will follow.
        """
        gap, present = self._usual_gap, self._running
        for time, request, tokens in events:
            now = time if time > self.known else self.known
            group = self._group
            if group and (now - self._group_end > gap or (tokens > 0 and request in group)):
                self._close_group()
                group = self._group
            if tokens > 0:
                if present.get(request) != 0:
                    tokens = self._not_owed(request, tokens, now)  # noqa: PLW2901
                    if not tokens:
                        continue
                if group:
                    self._late += (now - self._group_begin) ** 2
                else:
                    self._group_begin, self._late = now, 0.0
                group[request] = tokens
                self._group_end = now if now > self._group_end else self._group_end
            elif tokens == BEGIN:
                self._begin(request, now)
            else:
                self._end(request, now)
        if self._group and until - self._group_end > gap:
            self._close_group()
        self._pass(until)

    # --- events -------------------------------------------------------------------------------

    def _not_owed(self, request: Member, tokens: int, now: float) -> int:
        """Return how many of these tokens belong to no step that is over."""
        if request not in self._in_flight:
            return 0
        owed = self._running.get(request, 0)
        if owed:
            left = self._running[request] = max(owed - tokens, 0)
            self._expected[request] = _MAX_OWED - 1 if left else 0
            self._lateness.learn(min(now - self.known, self._step_time.at(1)) ** 2, 1)
        return max(tokens - owed, 0)

    def _begin(self, request: Member, now: float) -> None:
        if len(self._in_flight) == len(self._ending):
            self._close_group()
            self._add(Step(self.known, now, Phase.IDLE, 0, {}))
        elif len(self._unseen_tokens) == len(self._in_flight):
            self._add(self._unseen(now))
        self._in_flight[request] = self._waiting[request] = None
        if not request.streams:
            self._unseen_tokens[request] = None

    def _end(self, request: Member, now: float) -> None:
        if request not in self._in_flight:
            return
        if self._group:
            self._ending.append(request)
            if len(self._ending) == len(self._in_flight):
                self._close_group()
            return
        # Without a token since the last step, or none are seen.
        if len(self._in_flight) == 1 or len(self._unseen_tokens) == len(self._in_flight):
            self._add(self._unseen(now))
        self._remove(request)

    def _remove(self, request: Member) -> None:
        for where in (self._in_flight, self._waiting, self._unseen_tokens):
            where.pop(request, None)
        self._running.pop(request, None)
        self._expected.pop(request, None)
        request.left = self.known

    def _pass(self, until: float) -> None:
        """Let time pass without events."""
        if self._group:
            return
        if not self._in_flight:
            self._add(Step(self.known, until, Phase.IDLE, 0, {}))
        elif until - self.known > _HELD_UP:
            self._add(self._unseen(until))

    # --- steps --------------------------------------------------------------------------------

    def _add(self, step: Step) -> None:
        if step.end <= step.begin:
            return
        last = self.steps[-1] if self.steps else None
        if step.phase is Phase.IDLE and last is not None and last.phase is Phase.IDLE:
            self.steps[-1] = last._replace(end=step.end)
        else:
            self.steps.append(step)
        self.known = step.end

    def _close_group(self) -> None:
        group = self._group
        if group:
            self._group = {}
            # Tokens are late, never early: the first of many is hardly late, a single one is by as
            # much as usual. All steps are taken to end as late as that.
            late = self._lateness.mean * (1 - 1 / len(group))
            end = min(self._group_begin + late, self._group_end)
            self._close(group, end)
        for request in self._ending:
            self._remove(request)
        self._ending = []

    def _close(self, group: dict[Member, int], end: float) -> None:
        """Add the steps that the tokens of a group end."""
        firsts = [each for each in group if not each.started] if self._waiting else []
        if not firsts or not self._running:
            self._add(self._step(group, end))
            return
        others = {request: count for request, count in group.items() if request.started}
        self._mixes += _FOLLOW * (bool(others) - self._mixes)
        if others and self._mixes < 0.5:  # their steps come together because tokens are late
            seconds = max(others.values()) * self._usual(len(others))
            first_end = max(end - seconds, (self.known + end) / 2)
            self._add(self._step({request: group[request] for request in firsts}, first_end))
            self._add(self._step(others, end))
        else:
            self._add(self._step(group, end))

    def _step(self, group: dict[Member, int], end: float) -> Step:
        begin, seconds = self.known, end - self.known
        firsts = [request for request in self._waiting if request in group] if self._waiting else []
        running = group
        if firsts:
            running = {request: count for request, count in group.items() if request.started}
        for request in self._unseen_tokens:  # they have one in each step
            if request.started and request not in group:
                running[request] = 1
        steps = max(running.values(), default=0)
        seen = len(running)
        if not firsts:
            self._add_overdue(running, steps)
            if seen > 1:
                self._lateness.learn(self._late, seen - 1)
        whole = all(request.prompt_left >= request.prompt_tokens for request in firsts)
        # The last of the steps cannot have a prompt that arrived after it had begun.
        latest = end - seconds / max(steps, 1) + max(3 * self._lateness.rms, _MIN_GAP)
        waiting = [each for each in self._waiting if each in group or each.began <= latest]
        prompts = {}
        if waiting:
            most = end - max(begin, min(each.began for each in waiting))
            prompts = self._prompts(firsts, waiting, (seconds, most), (len(running), steps))
        doubt = 0.0 if whole and len(prompts) == len(firsts) else math.sqrt(self._mismatch)
        if prompts and seconds > 0:
            doubt = math.hypot(doubt, math.sqrt(2) * self._lateness.rms / seconds)
        for request in firsts:
            self._start(request)
        if firsts:
            self._learn_prompts(math.fsum(max(request.prompt_tokens, 1) for request in firsts))
        total = math.fsum(prompts.values()) + sum(running.values())
        shares = {request: (count / total, 0.0) for request, count in prompts.items()}
        one = 0.0, 1 / total if total else 0.0  # of nearly all
        for request, count in running.items():
            shares[request] = one if count == 1 else (0.0, count / total)
        if not prompts:
            phase = Phase.DECODE
            usual = steps * self._usual(len(running))
            if steps and (
                not self._waiting or seconds < (1 + _EXCESS) * usual or not (waiting or usual)
            ):
                self._learn_usual(len(running), seconds / steps)
        else:
            phase = Phase.MIXED if running else Phase.PREFILL
            needed = _HASTE * self._per_prompt_token * math.fsum(prompts.values())
            if phase is Phase.PREFILL and seconds < max(3 * self._lateness.rms, needed):
                before = self.steps[-1] if self.steps else None
                if before is not None and before.phase is Phase.PREFILL and before.end == begin:
                    # Prompts of one step whose first tokens are late by different times.
                    self.steps.pop()
                    begin, shares = before.begin, _by_prompts([*before.shares, *shares])
                    if seconds < needed:  # or of a cache, or of a step that was held up
                        doubt = max(doubt, _UNSEEN)
        return Step(begin, end, phase, len(running), shares, doubt)

    def _add_overdue(self, running: dict[Member, int], steps: int) -> None:
        """Add those whose tokens of these steps were not seen yet: they are late, or held back."""
        if len(running) >= len(self._expected):
            return
        given_up = []
        for request, missed in self._expected.items():
            if request not in running:
                running[request] = steps
                self._running[request] += steps
                self._expected[request] = missed + 1
                if missed + 1 >= _MAX_OWED:
                    given_up.append(request)
        for request in given_up:  # it pauses
            del self._expected[request]

    def _start(self, request: Member) -> None:
        request.started = True
        self._waiting.pop(request, None)
        if request not in self._unseen_tokens:
            self._running[request] = self._expected[request] = 0

    def _prompts(
        self,
        firsts: list[Member],
        waiting: list[Member],
        times: tuple[float, float],
        running: tuple[int, int],
    ) -> dict[Member, float]:
        """Return the prompt tokens that a step has processed, by request, as far as is known.

        Args:
            firsts: Requests whose prompts are complete with this step.
            waiting: Requests whose prompts it may have processed, these among them.
            times: Its duration, and for how long it may have processed prompts.
            running: Number of requests that tokens were generated for, and of tokens for each.
        """
        seconds, most = times
        batch, steps = running
        split = 0  # tokens of prompts that were processed in several steps
        found = {}
        for request in firsts:
            found[request] = max(request.prompt_left, 1.0)
            split += request.prompt_tokens if request.prompt_left < request.prompt_tokens else 0
            request.prompt_left = 0.0
        waiting = [each for each in waiting if each not in found and each.prompt_left > 1]
        work = min(self._prompt_work(seconds, steps * self._usual(batch)), most)
        if firsts or (waiting and work > 0 and self._mixes >= 0.5):
            self._worked += work
        if not steps or self._mixes < 0.5:
            return found  # without running requests, prompts are processed whole
        room = work / self._per_prompt_token if self._per_prompt_token else _CHUNK
        total = math.fsum(found.values())
        if split and not waiting and self._per_prompt_token:
            self._learn_mismatch((total - room) / split)
        room -= total
        for request in waiting:  # in the order of arrival
            # Its last token is processed where its first one is generated.
            taken = min(request.prompt_left - 1, room)
            if taken <= 0:
                break
            found[request] = taken
            request.prompt_left -= taken
            room -= taken
        return found

    @staticmethod
    def _prompt_work(seconds: float, usual: float) -> float:
        """Return the seconds of computation for prompts in a step, by its and the usual duration.

        Computing and reading the model overlap, so a few prompt tokens hardly take longer.
        """
        return math.cbrt(seconds**3 - usual**3) if seconds > (1 + _EXCESS) * usual else 0.0

    def _learn_prompts(self, tokens: float) -> None:
        """Learn how long prompt tokens take, from all work since prompts were complete before."""
        keep = math.exp(-tokens / _PROMPT_MEMORY)
        self._prompt_sums = (
            self._prompt_sums[0] * keep + self._worked,
            self._prompt_sums[1] * keep + tokens,
        )
        self._worked = 0.0
        self._per_prompt_token = self._prompt_sums[0] / self._prompt_sums[1]

    def _unseen(self, now: float) -> Step:
        """Return a step without a token: prompts, or requests whose tokens are not seen."""
        prompts = {each: max(each.prompt_left, 1.0) for each in self._waiting}
        running = [each for each in self._in_flight if each.started]
        for each in self._unseen_tokens:  # by the end of the step it is being answered
            self._start(each)
        if running:
            shares: Shares = {each: (0.0, 1 / len(running)) for each in running}
            return Step(self.known, now, Phase.DECODE, len(running), shares, _UNSEEN)
        total = math.fsum(prompts.values())
        shares = {each: (count / total, 0.0) for each, count in prompts.items()}
        return Step(self.known, now, Phase.PREFILL, 0, shares, _UNSEEN)

    def _usual(self, batch: int) -> float:
        """Return the seconds that a step takes that only generates, by the size of its batch."""
        return self._step_time.at(batch) if batch else 0.0

    def _learn_usual(self, batch: int, seconds: float) -> None:
        usual = self._step_time.at(batch)
        # A step that is much longer was held up by something else.
        self._step_time.add(batch, min(seconds, 2 * usual) if usual else seconds)
        self._usual_gap = max(_MIN_GAP, _GAP * self._step_time.at(1))

    def _learn_mismatch(self, off: float) -> None:
        self._mismatch += _FOLLOW * (min(off * off, _MAX_DOUBT**2) - self._mismatch)
        self._lateness = Lateness()
        self._mixes = 0.6  # share of steps with a first token that have others as well
        self._mismatch = max(self._mismatch, _MIN_DOUBT**2)


def _by_prompts(requests: Sequence[Member]) -> Shares:
    total = sum(max(request.prompt_tokens, 1) for request in requests)
    return {request: (max(request.prompt_tokens, 1) / total, 0.0) for request in requests}
