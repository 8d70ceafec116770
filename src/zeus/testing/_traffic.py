"""Requests to a simulated server: at random, in bursts, or as recorded."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from zeus._rules import Number, Whole
from zeus.errors import SimulationError, TraceError

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MAX_TOKENS = 10_000_000


class Arrival(NamedTuple):
    """A request.

    Attributes:
        time: When it arrives, in seconds after the begin.
        prompt: Tokens of its prompt.
        generated: Tokens of its answer.
    """

    time: float
    prompt: int
    generated: int


class Traffic:
    """Requests in the order of their arrival.

    Args:
        arrivals: Arrival in seconds after the begin, prompt tokens and generated tokens of each
            request, in any order.
        name: Human-readable name.

    Raises:
        ValueError: If a time is negative or no number, or a number of tokens is not a whole number
            from 1 on.
    """

    def __init__(self, arrivals: Iterable[tuple[float, int, int]], name: str = "requests") -> None:
        self.name = name
        self._arrivals = sorted(Arrival(*each) for each in arrivals)
        for time, prompt, generated in self._arrivals:
            Number(0).check("time", time, SimulationError)
            Whole(1, _MAX_TOKENS).check("prompt", prompt, SimulationError)
            Whole(1, _MAX_TOKENS).check("generated", generated, SimulationError)

    @classmethod
    def poisson(
        cls,
        rate: float,
        seconds: float,
        *,
        prompt: float = 1000,
        generated: float = 200,
        seed: int = 0,
    ) -> Traffic:
        """Return requests that arrive at random, independently of each other.

        Lengths are random, too: log-normal, with a standard deviation near their mean, as in
        recorded traffic.

        Args:
            rate: Requests per second on average.
            seconds: Duration.
            prompt: Mean number of prompt tokens.
            generated: Mean number of generated tokens.
            seed: Seed of the random numbers.

        Raises:
            ValueError: If a number is negative or not finite.
        """
        return cls.bursts(rate, rate, seconds, prompt=prompt, generated=generated, seed=seed)

    @classmethod
    def bursts(
        cls,
        rate: float,
        burst_rate: float,
        seconds: float,
        *,
        every: float = 300.0,
        length: float = 30.0,
        prompt: float = 1000,
        generated: float = 200,
        seed: int = 0,
    ) -> Traffic:
        """Return requests that arrive at random, at times more often.

        Args:
            rate: Requests per second on average outside bursts.
            burst_rate: Requests per second within a burst.
            seconds: Duration.
            every: Seconds from the begin of a burst to that of the next; the first begins after
                half of them.
            length: Seconds of a burst.
            prompt: Mean number of prompt tokens.
            generated: Mean number of generated tokens.
            seed: Seed of the random numbers.

        Raises:
            ValueError: If a number is negative or not finite.
        """
        for name, value in (("rate", rate), ("burst_rate", burst_rate), ("seconds", seconds)):
            Number(0).check(name, value, SimulationError)
        for name, value in (("every", every), ("length", length)):
            Number(0, above=True).check(name, value, SimulationError)
        for name, value in (("prompt", prompt), ("generated", generated)):
            Number(1).check(name, value, SimulationError)
        dice = random.Random(seed)
        highest = max(rate, burst_rate)
        found: list[tuple[float, int, int]] = []
        now = 0.0
        while highest > 0:
            now += dice.expovariate(highest)
            if now >= seconds:
                break
            here = burst_rate if (now - every / 2) % every < length and now >= every / 2 else rate
            if dice.random() * highest < here:
                found.append((now, _length(dice, prompt), _length(dice, generated)))
        rates = f"{rate:g}" if rate == burst_rate else f"{rate:g} to {burst_rate:g}"
        return cls(found, f"{rates} requests/s")

    @classmethod
    def azure(cls, path: str | Path, name: str | None = None) -> Traffic:
        """Return recorded traffic in the format of Azure's public traces of LLM inference.

        A CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens. Rows without prompt or
        answer count as having one token.

        Args:
            path: The file.
            name: Human-readable name; that of the file by default.

        Raises:
            ValueError: If a column is missing or a value cannot be read; names the line.
            OSError: If the file cannot be read.
        """
        path = Path(path)
        rows: list[tuple[float, int, int]] = []
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                missing = [each for each in _COLUMNS if each not in (reader.fieldnames or ())]
                if missing:
                    raise TraceError(
                        f"{path} must have the columns {', '.join(_COLUMNS)}, "
                        f"but has no {', '.join(missing)}"
                    )
                for row in reader:
                    rows.append(_parsed(row, f"{path}, line {reader.line_num}"))
        except (UnicodeDecodeError, csv.Error) as error:
            raise TraceError(f"{path} is no CSV file: {error}") from error
        if not rows:
            raise TraceError(f"{path} must have requests, but has no rows")
        begin = min(time for time, _, _ in rows)
        return cls(
            ((time - begin, prompt, generated) for time, prompt, generated in rows),
            name or path.stem,
        )

    @property
    def seconds(self) -> float:
        """Time of the last arrival."""
        return self._arrivals[-1].time if self._arrivals else 0.0

    def scaled(self, factor: float) -> Traffic:
        """Return the same requests, arriving `factor` times as often.

        Args:
            factor: Above 0.

        Raises:
            ValueError: If the factor is not above 0.
        """
        Number(0, above=True).check("factor", factor, SimulationError)
        return Traffic(((t / factor, p, g) for t, p, g in self._arrivals), self.name)

    def between(self, begin: float, end: float) -> Traffic:
        """Return the requests that arrive from `begin` on and before `end`, with `begin` as 0.

        Args:
            begin: Seconds.
            end: Seconds.
        """
        chosen = (each for each in self._arrivals if begin <= each.time < end)
        return Traffic(((t - begin, p, g) for t, p, g in chosen), self.name)

    def split(self, replicas: int) -> list[Traffic]:
        """Return what each of several replicas gets if they take turns.

        Args:
            replicas: Their number, at least 1.

        Raises:
            ValueError: If there is none.
        """
        Whole(1).check("replicas", replicas, SimulationError)
        return [Traffic(self._arrivals[index::replicas], self.name) for index in range(replicas)]

    def gaps(self) -> list[float]:
        """Return the seconds between arrivals."""
        return [second.time - first.time for first, second in pairwise(self._arrivals)]

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._arrivals)

    def __len__(self) -> int:
        return len(self._arrivals)

    def __getitem__(self, index: int) -> Arrival:
        return self._arrivals[index]

    def __repr__(self) -> str:
        return f"<Traffic {self.name}: {len(self)} requests in {self.seconds:.0f} s>"


def _length(dice: random.Random, mean: float) -> int:
    sigma = math.sqrt(math.log(2))  # as much deviation as mean
    return max(1, min(_MAX_TOKENS, round(mean * math.exp(sigma * dice.gauss() - sigma**2 / 2))))


def _parsed(row: dict[str, str | None], where: str) -> tuple[float, int, int]:
    stamp = (row["TIMESTAMP"] or "").strip()
    try:
        # Python reads microseconds; the traces have a digit more.
        whole, _, fraction = stamp.partition(".")
        digits = fraction.rstrip("Z").split("+")[0]
        second = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
        time = second + (float(f"0.{digits}") if digits else 0.0)
    except ValueError:
        raise TraceError(f"{where}: TIMESTAMP must be a date and time, but got {stamp!r}") from None
    tokens = []
    for column in _COLUMNS[1:]:
        text = (row[column] or "").strip()
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (0 <= number <= _MAX_TOKENS and number == int(number)):
            raise TraceError(
                f"{where}: {column} must be a whole number from 0 to {_MAX_TOKENS}, "
                f"but got {text!r}"
            )
        tokens.append(max(1, int(number)))
    return time, tokens[0], tokens[1]
