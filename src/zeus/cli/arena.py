"""`zeus arena`: let people compare two models at a time, answers first and energy after."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from zeus.cli._parser import (
    UsageError,
    add_listen_option,
    add_storage_option,
    indices,
    number,
    opened_store,
    whole_number,
)
from zeus.cli._terminal import Console

if TYPE_CHECKING:
    from zeus.monitor._requests import RequestMonitor

DEFAULT_PORT = 8421


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Serve an arena: two anonymous models answer a prompt side by side, a person votes, sees "
        "the energy of both answers, says whether the better one was worth it, and then learns "
        "the models' names. Votes are stored; the board ranks the models. Energy comes from "
        "`zeus proxy` in front of the models' servers."
    )
    parser.epilog = """\
examples:
  zeus arena --demo
  zeus arena --model large=http://gpu1:8000 --model small=http://gpu2:8000
  zeus arena --listen 0.0.0.0:8421 --open --model ...

The server speaks plain HTTP: on a network, put it behind a TLS proxy."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="name of a model on the board, and the URL of its OpenAI-compatible server; with "
        "NAME=URL#MODEL, the model of that name there (default: its first); at least two",
    )
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=VARIABLE",
        help="environment variable that has the API key of a model's server",
    )
    parser.add_argument(
        "--gpus",
        action="append",
        default=[],
        metavar="NAME=N,N",
        help="GPUs of this machine that a model's server runs on; the energy of its answers is "
        "measured here if the server states none",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="start two small models on this machine; their energy is simulated",
    )
    add_listen_option(parser, DEFAULT_PORT)
    parser.add_argument(
        "--open",
        action="store_true",
        help="let everyone who reaches the server ask and vote without a token; on a loopback "
        "address that is the default",
    )
    parser.add_argument(
        "--rounds-per-minute",
        type=number(0, 10_000, above=True),
        default=10.0,
        metavar="N",
        help="prompts per minute and client address (default: 10)",
    )
    parser.add_argument(
        "--max-running",
        type=whole_number(1, 1_000),
        default=8,
        metavar="N",
        help="rounds that may run at the same time (default: 8)",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole_number(1, 100_000),
        default=512,
        metavar="N",
        help="length limit of an answer, in tokens (default: 512)",
    )
    parser.add_argument(
        "--answer-seconds",
        type=number(1, 86_400, unit="seconds"),
        default=120.0,
        metavar="S",
        help="time limit of an answer; the round ends if a model takes longer (default: 120)",
    )
    parser.add_argument(
        "--no-texts",
        action="store_true",
        help="store votes, energies and times only, not prompts and answers",
    )
    add_storage_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    host, port = arguments.listen
    with contextlib.ExitStack() as stack:
        models = [_model(text) for text in arguments.model]
        if arguments.demo:
            models += stack.enter_context(_demo())
        if len(models) < 2:
            raise UsageError(
                f"an arena needs at least two models (--model NAME=URL), but got {len(models)}; "
                "try --demo"
            )
        meters = _meters(arguments.gpus, [name for name, _ in models], stack)
        _serve(arguments, host, port, models, meters)
    return 0


def _serve(
    arguments: argparse.Namespace,
    host: str,
    port: int,
    models: Sequence[tuple[str, str]],
    meters: Mapping[str, RequestMonitor],
) -> None:
    from zeus.arena import ArenaSettings, create_app  # noqa: PLC0415  (an extra)
    from zeus.arena._contenders import parse_contender  # noqa: PLC0415
    from zeus.cli import print_message  # noqa: PLC0415
    from zeus.server import listen, serve  # noqa: PLC0415
    from zeus.server._serve import address, is_loopback  # noqa: PLC0415

    keys = _keys(arguments.key, [name for name, _ in models])
    contenders = [parse_contender(f"{name}={url}", keys, meters) for name, url in models]
    simulated = arguments.demo or bool(os.environ.get("ZEUS_SIMULATE"))
    settings = ArenaSettings(
        max_tokens=arguments.max_tokens,
        answer_seconds=arguments.answer_seconds,
        rounds_per_minute=arguments.rounds_per_minute,
        max_running=arguments.max_running,
        keep_texts=not arguments.no_texts,
        simulated=simulated,
    )
    store = opened_store(arguments.storage)
    with listen(host, port) as listening:
        public = arguments.open or is_loopback(listening)
        if not public:
            _check_for_token(store)
        app = create_app(
            store,
            contenders,
            settings=settings,
            require_token=not public,
            host=host,
            any_host=arguments.open,
            warn=lambda text: print_message(text, "warning"),
        )
        console = Console(sys.stdout)
        energy = "simulated energy; " if simulated else ""
        access = "" if public else "tokens required; "

        def ready() -> None:
            url = address(listening)
            console.print(f"zeus: arena on {url}/arena ({energy}{access}{store.where})")
            sys.stdout.flush()

        serve(app, listening, ready)


@contextlib.contextmanager
def _demo() -> Iterator[list[tuple[str, str]]]:
    from zeus.arena.demo._models import INSTALL, has_smollm2  # noqa: PLC0415  (an extra)
    from zeus.arena.demo._processes import demo_servers  # noqa: PLC0415

    console = Console(sys.stdout)
    if not has_smollm2():
        console.print(f"zeus: SmolLM2 would take part after: {INSTALL}")
    console.print("zeus: starting two small models …")
    sys.stdout.flush()
    with demo_servers() as models:
        yield models


def _model(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals or not name or not url:
        raise UsageError(f"--model must be NAME=URL, but got {text!r}")
    return name, url


def _keys(given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the API keys by model; only the names of their variables are on the command line."""
    found = {}
    for text in given:
        name, _, variable = text.partition("=")
        if name not in names or not variable:
            raise UsageError(
                "--key must be NAME=VARIABLE with the name of a --model, but got "
                f"{name!r} for {', '.join(names)}"
            )
        if not os.environ.get(variable):
            raise UsageError(f"--key names the variable {variable!r}, which is not set")
        found[name] = os.environ[variable].strip()
    return found


def _meters(
    given: Sequence[str], names: Sequence[str], stack: contextlib.ExitStack
) -> dict[str, RequestMonitor]:
    """Return the meter of each model whose GPUs are given; models on the same GPUs share one."""
    from zeus.monitor import ZeusMonitor  # noqa: PLC0415  (polls sensors only if it is needed)

    shared: dict[tuple[int, ...], RequestMonitor] = {}
    found = {}
    for text in given:
        name, _, numbers = text.partition("=")
        if name not in names:
            raise UsageError(
                f"--gpus must be NAME=N,N with the name of a --model, but got {text!r}"
            )
        try:
            gpus = tuple(sorted(indices(numbers)))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--gpus {text}: {error}") from None
        if gpus not in shared:
            monitor = ZeusMonitor(gpus, cpu_indices=[], sync_execution_with=None)
            stack.callback(monitor.close)
            shared[gpus] = monitor.requests
        found[name] = shared[gpus]
    return found


def _check_for_token(store: object) -> None:
    from zeus.store import Store, Tokens  # noqa: PLC0415  (an extra)

    assert isinstance(store, Store)
    now = time.time()
    if not any(token.good(now) for token in Tokens(store).all()):
        raise UsageError(
            "an arena that other machines can reach needs --open, or a token: create one with "
            f"`zeus token create --all --storage {store.where}`"
        )
