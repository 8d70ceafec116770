"""A load test of a server: latencies, throughput and energy of many requests.

Requests are sent by a fixed number of clients, each after its last answer, or at random times at a
given mean rate, whether earlier ones are answered or not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zeus._latencies import Latencies
from zeus.arena._contenders import Contender
from zeus.arena._events import Answer
from zeus.arena._rows import BENCH, BoardRow, Estimate
from zeus.arena._standings import energy_per_token, mean_energy, times_per_token
from zeus.errors import ArenaError, BackendError

_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Load:
    """Requests of a load test.

    Attributes:
        requests: Number of requests.
        concurrency: Number of clients that send them in turn; ignored if there is a rate.
        rate: Mean number of requests per second, at random times; `None` for clients in turn.
        prompts: Prompts, used one after the other and again.
        max_tokens: Length limit of an answer.
        answer_seconds: Time limit of an answer.
        seed: Of the times.
    """

    requests: int
    concurrency: int = 1
    rate: float | None = None
    prompts: Sequence[str] = ("Explain in a few sentences how a computer stores numbers.",)
    max_tokens: int = 256
    answer_seconds: float = 300.0
    seed: int = 0

    @property
    def words(self) -> str:
        """Description for the board."""
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        return f"{self.concurrency} clients" if self.concurrency > 1 else "1 client"


@dataclass(frozen=True)
class LoadResult:
    """Results of a load test.

    Attributes:
        answers: Complete answers.
        failures: Reasons of those that failed.
        seconds: Duration of the test.
    """

    answers: Sequence[Answer]
    failures: Sequence[str]
    seconds: float

    @property
    def tokens(self) -> int:
        """Generated tokens, as counted by the server."""
        return sum(each.generated_tokens or 0 for each in self.answers)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return percentiles in seconds, by latency ("ttft", "tpot", "e2e") and percentile."""
        samples = {
            "ttft": [each.ttft for each in self.answers],
            "tpot": list(times_per_token(self.answers)),
            "e2e": [each.seconds for each in self.answers],
        }
        found: dict[str, dict[str, float]] = {}
        for name, values in samples.items():
            distribution = Latencies.of(values)
            known = ((p, distribution.percentile(p)) for p in _PERCENTILES)
            found[name] = {f"p{p}": value for p, value in known if value is not None}
        return found

    def row(
        self,
        model: str,
        load: Load,
        *,
        gpu: str = "",
        total: Estimate | None = None,
        simulated: bool = False,
    ) -> BoardRow:
        """Return the row for the board.

        Args:
            model: Name of the model.
            load: The load.
            gpu: GPUs that the server ran on.
            total: Energy of the whole test, joules, for a server that states none of its own.
            simulated: Whether that energy is of simulated GPUs.
        """
        response, token = mean_energy(self.answers), energy_per_token(self.answers)
        if response is None and total is not None and self.answers:
            response = _divided(total, len(self.answers))
            token = _divided(total, self.tokens) if self.tokens else None
        latencies = self.latencies()
        own = any(each.energy and each.energy.simulated for each in self.answers)
        return BoardRow(
            model=model,
            source=BENCH,
            gpu=gpu,
            setting=load.words,
            responses=len(self.answers),
            energy_per_response=response,
            energy_per_token=token,
            ttft=latencies["ttft"].get("p50"),
            tpot=latencies["tpot"].get("p50"),
            e2e=latencies["e2e"].get("p50"),
            throughput=self.tokens / self.seconds if self.tokens and self.seconds > 0 else None,
            failures=len(self.failures),
            simulated=own or (simulated and response is not None),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON."""
        return {
            "answers": len(self.answers),
            "failures": list(self.failures[:10]),
            "failed": len(self.failures),
            "seconds": self.seconds,
            "generated_tokens": self.tokens,
            "latencies": self.latencies(),
        }


def _divided(total: Estimate, by: int) -> Estimate:
    low = None if total.low is None else total.low / by
    high = None if total.high is None else total.high / by
    return Estimate(total.value / by, low, high)


async def run_load(
    contender: Contender, load: Load, progress: Callable[[int], None] = lambda _: None
) -> LoadResult:
    """Run a load test.

    Args:
        contender: The model.
        load: The load.
        progress: Called with the number of requests that have ended.

    Raises:
        ArenaError: If no request was answered.
    """
    loop = asyncio.get_running_loop()
    answers: list[Answer] = []
    failures: list[str] = []

    async def one(number: int) -> None:
        prompt = load.prompts[number % len(load.prompts)]
        try:
            asked = contender.answer(prompt, _ignore, max_tokens=load.max_tokens)
            answers.append(await asyncio.wait_for(asked, load.answer_seconds))
        except TimeoutError:
            failures.append(f"no complete answer within {load.answer_seconds:g} s")
        except BackendError as error:
            failures.append(str(error))
        progress(len(answers) + len(failures))

    began = loop.time()
    if load.rate is None:
        numbers = iter(range(load.requests))

        async def client() -> None:
            for number in numbers:
                await one(number)

        await asyncio.gather(*(client() for _ in range(min(load.concurrency, load.requests))))
    else:
        chance, tasks, at = random.Random(load.seed), [], began
        for number in range(load.requests):
            tasks.append(asyncio.create_task(one(number)))
            at += chance.expovariate(load.rate)
            await asyncio.sleep(max(at - loop.time(), 0.0))
        await asyncio.gather(*tasks)
    if not answers:
        raise ArenaError(f"no request was answered: {failures[0]}")
    return LoadResult(answers, failures, loop.time() - began)


def _ignore(_text: str) -> None:
    """Drop a piece of an answer."""
