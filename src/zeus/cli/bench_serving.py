"""`zeus bench-serving`: load a server, and report latency, throughput and energy per token."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from zeus.cli._parser import (
    UsageError,
    add_gpus_option,
    add_json_option,
    number,
    opened_store,
    server_url,
    whole_number,
)
from zeus.cli._terminal import Console

_MAX_PROMPTS = 100_000
_MAX_PROMPT = 1_000_000  # characters


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Send requests to an OpenAI-compatible server, and report time to first token, time per "
        "token, response time, throughput, and energy per response and token; with --board, as a "
        "row of the board. Energy is what the server states (through `zeus proxy`), or, with "
        "--gpus, that of GPUs of this machine during the test."
    )
    parser.epilog = """\
examples:
  zeus bench-serving --to http://localhost:8000 --concurrency 16 --requests 200
  zeus bench-serving --to http://localhost:8000 --rate 4 --requests 500 --board sqlite:///a.db"""
    parser.add_argument(
        "--to", required=True, type=server_url, metavar="URL", help="URL of the server"
    )
    parser.add_argument("--model", metavar="NAME", help="model there (default: its first)")
    parser.add_argument("--name", metavar="NAME", help="name on the board (default: the model's)")
    parser.add_argument(
        "--gpu", default="", metavar="NAME", help="the server's GPUs, for the board"
    )
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--concurrency",
        type=whole_number(1, 10_000),
        default=1,
        metavar="N",
        help="clients that send requests one after the other (default: 1)",
    )
    load.add_argument(
        "--rate",
        type=number(0, 100_000, unit="requests per second", above=True),
        metavar="R",
        help="requests per second at random times, however many are unanswered",
    )
    parser.add_argument(
        "--requests",
        type=whole_number(1, 10_000_000),
        default=50,
        metavar="K",
        help="number of requests (default: 50)",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="prompts: lines of text, or of JSON with a key `prompt`",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole_number(1, 1_000_000),
        default=256,
        metavar="N",
        help="length limit of an answer (default: 256)",
    )
    parser.add_argument("--key", metavar="VARIABLE", help="environment variable with the API key")
    parser.add_argument(
        "--board",
        metavar="URL",
        help="store that gets a row: sqlite:///FILE or postgresql://USER@HOST/DATABASE",
    )
    add_gpus_option(parser, "measure here, if the server states no energy")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the test, and write the row."""
    from zeus.arena._contenders import Contender  # noqa: PLC0415  (an extra)
    from zeus.arena._load import Load, run_load  # noqa: PLC0415
    from zeus.arena._rows import to_dict  # noqa: PLC0415
    from zeus.arena._storage import ArenaStorage  # noqa: PLC0415
    from zeus.proxy import OpenAIClient  # noqa: PLC0415

    options: dict[str, Any] = {}
    if arguments.prompts is not None:
        options["prompts"] = _prompts(arguments.prompts)
    load = Load(
        arguments.requests,
        arguments.concurrency,
        arguments.rate,
        max_tokens=arguments.max_tokens,
        **options,
    )
    key = os.environ.get(arguments.key, "") if arguments.key else ""
    if arguments.key and not key:
        raise UsageError(f"--key names the variable {arguments.key!r}, which is not set")
    # Opened first: a row that cannot be kept should not cost a test.
    store = opened_store(arguments.board) if arguments.board else None
    console = Console(sys.stderr)

    async def measure() -> tuple[Any, str]:
        headers = {"Authorization": f"Bearer {key}"} if key else None
        try:
            client = OpenAIClient(arguments.to, headers=headers)
        except ValueError as error:
            raise UsageError(f"--to: {error}") from None
        try:
            contender = await Contender("", client, arguments.model or "").resolved()
            done = _Progress(console, load.requests, quiet=arguments.json)
            return await run_load(contender, load, done), contender.model
        finally:
            client.close()

    with _Energy(arguments.gpus) as energy:
        result, model = asyncio.run(measure())
    row = result.row(
        arguments.name or model,
        load,
        gpu=arguments.gpu,
        total=energy.total,
        simulated=bool(os.environ.get("ZEUS_SIMULATE")),
    )
    added = False
    if store is not None:
        added = bool(ArenaStorage(store).add_rows([row], time.time()))
        store.close()
    if arguments.json:
        print(json.dumps({**result.to_dict(), "row": to_dict(row), "added": added}, indent=1))
    else:
        _report(result, row, added=added)
    return 0


class _Progress:
    """Counts on a terminal."""

    def __init__(self, console: Console, requests: int, *, quiet: bool) -> None:
        self._console, self._requests = console, requests
        self._next = 0.0 if not quiet and sys.stderr.isatty() else float("inf")

    def __call__(self, done: int) -> None:
        if done / self._requests >= self._next:
            self._console.print(f"zeus: {done} of {self._requests} requests")
            self._next = done / self._requests + 0.1


class _Energy:
    """Energy of this machine's GPUs during the test, if asked for."""

    def __init__(self, gpus: list[int] | None) -> None:
        from zeus.arena._rows import Estimate  # noqa: PLC0415  (an extra)

        self._gpus = gpus
        self._estimate = Estimate
        self.total: Estimate | None = None

    def __enter__(self) -> _Energy:
        if self._gpus:
            from zeus.monitor import ZeusMonitor  # noqa: PLC0415

            self._monitor = ZeusMonitor(gpu_indices=self._gpus)
            self._monitor.begin_window("load test")
        return self

    def __exit__(self, *_about: object) -> None:
        if self._gpus:
            taken = self._monitor.end_window("load test")
            joules = taken.energy
            half = sum(each.uncertainty or 0.0 for each in taken.readings)
            if joules is not None:
                self.total = self._estimate(joules, max(joules - half, 0.0), joules + half)


def _prompts(path: Path) -> list[str]:
    found = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"{path} must be text in UTF-8") from None
    for line in lines:
        text = line.strip()
        if text.startswith("{"):
            try:
                text = str(json.loads(text)["prompt"])
            except (ValueError, LookupError):
                raise UsageError(
                    f"{path} must have lines of text or of JSON with a key `prompt`, but got "
                    f"{text[:80]!r}"
                ) from None
        if text:
            found.append(text[:_MAX_PROMPT])
    if not found or len(found) > _MAX_PROMPTS:
        raise UsageError(f"{path} must have 1 to {_MAX_PROMPTS} prompts, but got {len(found)}")
    return found


def _report(result: Any, row: Any, *, added: bool) -> None:
    console = Console(sys.stdout)
    answered = f"{len(result.answers)} answers in {result.seconds:.1f} s"
    failed = f", {len(result.failures)} failed: {result.failures[0]}" if result.failures else ""
    lines = [f"{row.model} ({row.setting}): {answered}{failed}"]
    names = {"ttft": "time to first token", "tpot": "time per token", "e2e": "response time"}
    for name, values in result.latencies().items():
        shown = ", ".join(f"{at} {1e3 * value:.4g} ms" for at, value in values.items())
        lines.append(f"  {names[name]}: {shown or 'unknown'}")
    tokens = "unknown" if row.throughput is None else f"{row.throughput:.4g} tokens/s"
    lines.append(f"  throughput: {tokens}")
    for label, value in (
        ("response", row.energy_per_response),
        ("token", row.energy_per_token),
    ):
        shown = "unknown"
        if value is not None:
            shown = f"{value.value:.4g} J"
            if value.low is not None and value.high is not None:
                shown += f" (95 %: {value.low:.4g} to {value.high:.4g} J)"
            shown += ", simulated" if row.simulated else ""
        lines.append(f"  energy per {label}: {shown}")
    if added:
        lines.append("a row was added to the board")
    console.print(*lines)
