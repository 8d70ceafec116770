"""The arena: begins rounds, keeps those that run, and takes votes.

Identities stay here. What a caller may see of a round at which time is decided in `view`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio.to_thread import run_sync

from zeus.arena._contenders import MAX_TOKENS, Contender
from zeus.arena._duel import Duel
from zeus.arena._events import Answer, Answered, Asked, Ended, Judged, Voted
from zeus.arena._limits import RateLimit
from zeus.arena._pacing import frame
from zeus.arena._round import VOTE_SECONDS, Round
from zeus.arena._storage import ArenaStorage
from zeus.errors import ArenaError, BackendError

MAX_PROMPT = 4_000  # characters
_KEPT = 120.0  # seconds for which the frames of a finished round are kept


class BusyError(ArenaError):
    """The arena takes no further prompt for now.

    Attributes:
        seconds: Seconds after which to try again.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True)
class ArenaSettings:
    """Limits of an arena.

    Attributes:
        max_tokens: Length limit of an answer, tokens.
        answer_seconds: Time limit of an answer.
        patience: Seconds without a reader after which a round is abandoned.
        rounds_per_minute: Prompts per minute and client address.
        max_running: Rounds that run at the same time.
        keep_texts: Whether prompts and answers are stored.
        simulated: Whether energies are those of simulated GPUs.
    """

    max_tokens: int = MAX_TOKENS
    answer_seconds: float = 120.0
    patience: float = 30.0
    rounds_per_minute: float = 10.0
    max_running: int = 8
    keep_texts: bool = True
    simulated: bool = False


class Arena:
    """Rounds between models. To be used in one event loop.

    Args:
        storage: Where rounds are stored.
        contenders: The models, at least two.
        settings: Limits.
        now: Clock, in seconds since 1970.
    """

    def __init__(
        self,
        storage: ArenaStorage,
        contenders: Sequence[Contender],
        settings: ArenaSettings | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        names = [each.name for each in contenders]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ArenaError(
                f"an arena needs at least two models with different names, but got {names}"
            )
        self.settings = settings or ArenaSettings()
        self.storage = storage
        self._contenders = list(contenders)
        self._now = now
        self._limit = RateLimit(self.settings.rounds_per_minute, time.monotonic)
        self._duels: dict[str, Duel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._texts: dict[str, tuple[str, Answer | None, Answer | None]] = {}

    @property
    def models(self) -> list[str]:
        """Names of the models."""
        return sorted(each.name for each in self._contenders)

    async def ask(self, prompt: str, *, client: str, prefer: str = "") -> str:
        """Begin a round; return its name.

        Args:
            prompt: The prompt.
            client: Address of the client, for the limits.
            prefer: A model that takes part; empty for two random ones.

        Raises:
            ArenaError: If the prompt is invalid.
            BusyError: If there are too many rounds.
            BackendError: If a model's server is not reachable.
        """
        prompt = checked_prompt(prompt)
        if prefer and prefer not in self.models:
            raise ArenaError(f"there is no model {prefer!a:.120}")
        running = sum(not duel.finished for duel in self._duels.values())
        if running >= self.settings.max_running:
            raise BusyError(f"{running} rounds are running, which is the limit", 5.0)
        wait = self._limit.wait(client)
        if wait:
            rate = self.settings.rounds_per_minute
            raise BusyError(f"a client may ask {rate:g} prompts per minute", wait)
        left, right = self._drawn(prefer)
        name = secrets.token_urlsafe(16)
        kept = prompt if self.settings.keep_texts else ""
        asked = Asked(kept, left.name, right.name)
        await run_sync(self.storage.append, name, asked, self._now())
        self._texts[name] = prompt, None, None

        async def record(end: Answered | Ended) -> None:
            await self._record(name, end)

        duel = Duel(
            prompt,
            (left, right),
            record,
            max_tokens=self.settings.max_tokens,
            answer_seconds=self.settings.answer_seconds,
            patience=self.settings.patience,
            simulated=self.settings.simulated,
        )
        self._duels[name] = duel
        task = duel.start()
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._retire(name, done))
        return name

    def _drawn(self, prefer: str) -> tuple[Contender, Contender]:
        """Return two models on random sides."""
        random = secrets.SystemRandom()
        if prefer:
            first = next(each for each in self._contenders if each.name == prefer)
            second = random.choice([each for each in self._contenders if each is not first])
            pair = [first, second]
        else:
            pair = random.sample(self._contenders, 2)
        random.shuffle(pair)
        return pair[0], pair[1]

    async def _record(self, name: str, end: Answered | Ended) -> None:
        stored = end
        if isinstance(end, Answered):
            self._texts[name] = self._texts[name][0], end.left, end.right
            if not self.settings.keep_texts:
                stored = Answered(replace(end.left, text=""), replace(end.right, text=""))
        await run_sync(self.storage.append, name, stored, self._now())

    def _retire(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it was logged
        with contextlib.suppress(RuntimeError):  # the loop is closing
            asyncio.get_running_loop().call_later(_KEPT, self._duels.pop, name, None)
            asyncio.get_running_loop().call_later(VOTE_SECONDS, self._texts.pop, name, None)

    async def read(self, name: str) -> AsyncIterator[bytes]:
        """Return the frames of a round, which `Duel.read` describes.

        Raises:
            UnknownRoundError: If there is no such round.
        """
        duel = self._duels.get(name)
        if duel is not None:
            return duel.read()
        current = await run_sync(self.storage.find, name)
        return _last_frame("answered" if current.answered is not None else "ended")

    async def vote(self, name: str, vote: str) -> Round:
        """Store a vote; see `ArenaStorage.append`."""
        return await run_sync(self.storage.append, name, Voted(vote), self._now())

    async def judge(self, name: str, judgement: str) -> Round:
        """Store the answer to the second question; see `ArenaStorage.append`."""
        return await run_sync(self.storage.append, name, Judged(judgement), self._now())

    async def view(self, name: str) -> dict[str, Any]:
        """Return what may be seen of a round now.

        Texts once both answers are complete, energies after the vote, names at the end.

        Raises:
            UnknownRoundError: If there is no such round.
        """
        current = await run_sync(self.storage.find, name)
        prompt, left, right = self._texts.get(name, (current.asked.prompt, None, None))
        if current.answered is not None and (left is None or right is None):
            left, right = current.answered.left, current.answered.right
        state = self._state(name, current)
        view: dict[str, Any] = {"round": name, "state": state, "prompt": prompt}
        if state in ("running", "ended", "expired") or left is None or right is None:
            return view
        sides = {"left": left, "right": right}
        view["answers"] = {side: {"text": answer.text} for side, answer in sides.items()}
        if state == "answered":
            return view
        view["vote"], view["question"] = current.vote, current.question
        view["costlier"] = current.costlier
        for side, answer in sides.items():
            shown = view["answers"][side]
            shown["energy"] = None if answer.energy is None else vars(answer.energy)
            shown["generated_tokens"] = answer.generated_tokens
        if state == "judged":
            view["judgement"] = current.judgement
            for side, answer in sides.items():
                view["answers"][side]["model"] = answer.model
                view["answers"][side]["ttft"] = answer.ttft
                view["answers"][side]["seconds"] = answer.seconds
        return view

    def _state(self, name: str, current: Round) -> str:
        if current.judgement:
            return "judged"
        if current.vote:
            return "voted"
        duel = self._duels.get(name)
        if duel is not None and not duel.finished:
            return "running"
        if current.answered is None:
            return "ended"
        late = self._now() - current.answered_at > VOTE_SECONDS
        return "expired" if late else "answered"

    async def resolve(self) -> list[str]:
        """Ask each server for its model; return what is wrong with those that fail."""
        found: list[str] = []
        for index, each in enumerate(self._contenders):
            try:
                self._contenders[index] = await asyncio.wait_for(each.resolved(), 10.0)
            except (BackendError, TimeoutError) as error:
                said = str(error) or "no answer within 10 s"
                found.append(f"the model {each.name!r} does not answer: {said}")
        return found

    async def close(self) -> None:
        """End all rounds and connections."""
        await asyncio.gather(*(duel.stop() for duel in self._duels.values()))
        for each in self._contenders:
            each.client.close()


async def _last_frame(state: str) -> AsyncIterator[bytes]:
    yield frame("", "", state)


def checked_prompt(prompt: str) -> str:
    """Return a prompt.

    Raises:
        ArenaError: If it is empty, too long, or has characters that cannot be stored.
    """
    prompt = prompt.replace("\r\n", "\n").strip()
    if not prompt:
        raise ArenaError("a prompt must not be empty")
    if len(prompt) > MAX_PROMPT:
        raise ArenaError(
            f"a prompt must have at most {MAX_PROMPT} characters, but got {len(prompt)}"
        )
    if not all(c.isprintable() or c in "\n\t" for c in prompt):
        raise ArenaError("a prompt must be printable, but got control characters")
    return prompt
