"""Models of the arena, and their answers through OpenAI-compatible servers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from zeus.arena._events import Answer, AnswerEnergy
from zeus.arena._pacing import printable
from zeus.errors import ArenaError, BackendError
from zeus.monitor._requests import Request, RequestMonitor
from zeus.proxy import Answer as StreamedAnswer
from zeus.proxy import OpenAIClient, Usage

MAX_TOKENS = 512
_MAX_TEXT = 20_000  # characters of an answer; what follows is cut
_MAX_METHOD = 60  # characters
_TOKEN_LENGTH = 4  # characters of a token, about; the server counts them
_SETTLING = 30  # times of 50 ms to wait for the counter


@dataclass(frozen=True)
class Contender:
    """A model of the arena.

    Attributes:
        name: Its name on the board.
        client: Client of its server.
        model: Its name on that server; empty for the server's first model.
        meter: Divides the energy of this machine's GPUs that the server runs on over its requests,
            for a server that states no energy; `None` if it runs elsewhere.
    """

    name: str
    client: OpenAIClient
    model: str = ""
    meter: RequestMonitor | None = None

    async def resolved(self) -> Contender:
        """Return it with the model's name on the server.

        Raises:
            BackendError: If the server cannot be asked, or has no model.
        """
        if self.model:
            return self
        models = await self.client.models()
        if not models:
            raise BackendError(f"{self.client.url} has no model")
        return replace(self, model=models[0])

    async def answer(
        self,
        prompt: str,
        hear: Callable[[str], None],
        *,
        complete: Callable[[], None] = lambda: None,
        max_tokens: int = MAX_TOKENS,
        simulated: bool = False,
    ) -> Answer:
        """Ask the model.

        Args:
            prompt: The prompt.
            hear: Called with each piece of text as it arrives.
            complete: Called after the last piece; the energy may take a moment longer.
            max_tokens: Length limit of the answer.
            simulated: Whether energies are those of simulated GPUs.

        Raises:
            BackendError: If the server fails, or answers nothing.
        """
        metered = None if self.meter is None else self.meter.begin(len(prompt) // _TOKEN_LENGTH)
        try:
            stream, first, last = await self._streamed(prompt, hear, metered, max_tokens)
        except BaseException as error:
            if metered is not None:
                metered.end(canceled=isinstance(error, asyncio.CancelledError), failed=True)
            raise
        complete()
        usage = stream.usage or Usage()
        energy = read_energy(usage.energy, simulated=simulated)
        if metered is not None:
            metered.end(generated_tokens=usage.generated_tokens, prompt_tokens=usage.prompt_tokens)
            energy = energy or await _settled(metered, simulated=simulated)
        return Answer(
            self.name,
            printable(stream.text)[:_MAX_TEXT],
            usage.generated_tokens,
            usage.prompt_tokens,
            first - stream.sent,
            last - stream.sent,
            energy,
        )

    async def _streamed(
        self, prompt: str, hear: Callable[[str], None], metered: Request | None, max_tokens: int
    ) -> tuple[StreamedAnswer, float, float]:
        """Read an answer to its end; return it with the times of its first and last text."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
        }
        first = last = None
        length = 0
        async with self.client.stream(body) as stream:
            async for chunk in stream:
                if not chunk.text:
                    continue
                first = chunk.received if first is None else first
                last = chunk.received
                if metered is not None:
                    metered.token()
                text = printable(chunk.text)[: max(_MAX_TEXT - length, 0)]
                length += len(text)
                hear(text)
        if first is None or last is None:
            raise BackendError(f"{self.client.url} answered without any text")
        return stream, first, last


async def _settled(request: Request, *, simulated: bool) -> AnswerEnergy | None:
    """Return the energy of a request, once the GPU's counter has ticked after its end."""
    for _ in range(_SETTLING):
        if request.energy.final:
            break
        await asyncio.sleep(0.05)
    found = request.energy
    if found.joules is None:
        return None
    return AnswerEnergy(found.joules, found.uncertainty, found.method, simulated)


def read_energy(found: Mapping[str, Any] | None, *, simulated: bool = False) -> AnswerEnergy | None:
    """Return the energy in `usage.energy`; `None` if it is absent or invalid."""
    joules = _number((found or {}).get("joules"))
    if found is None or joules is None:
        return None
    method = str(found.get("method", ""))[:_MAX_METHOD]
    made_up = simulated or found.get("simulated") is True or "simulated" in method.lower()
    return AnswerEnergy(joules, _number(found.get("uncertainty")), printable(method), made_up)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def parse_contender(
    text: str,
    keys: Mapping[str, str] | None = None,
    meters: Mapping[str, RequestMonitor] | None = None,
) -> Contender:
    """Return the contender that `NAME=URL[#MODEL]` describes.

    Args:
        text: Its name and the URL of its server; after `#`, its name on that server.
        keys: API keys by name.
        meters: Meters of this machine's GPUs, by name.

    Raises:
        ArenaError: If it is anything else.
    """
    name, equals, url = text.partition("=")
    url, _, model = url.partition("#")
    name = name.strip()
    if not equals or not name or not name.isprintable() or len(name) > 100:
        raise ArenaError(f"a model must be given as NAME=URL or NAME=URL#MODEL, but got {text!r}")
    key = (keys or {}).get(name)
    headers = {"Authorization": f"Bearer {key}"} if key else None
    try:
        client = OpenAIClient(url, headers=headers)
    except ValueError as error:
        raise ArenaError(f"the URL of the model {name!r} is invalid: {error}") from None
    return Contender(name, client, model, (meters or {}).get(name))
