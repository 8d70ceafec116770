"""`zeus serve`: serve recurring jobs, pipeline jobs and reports of services over HTTP."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from zeus.cli._parser import (
    UsageError,
    add_listen_option,
    add_storage_option,
    number,
    opened_store,
    whole_number,
)
from zeus.cli._terminal import Console
from zeus.errors import TokenError

if TYPE_CHECKING:
    from zeus.server._local_access import SignInCode
    from zeus.store import Store

DEFAULT_PORT = 8420
DEFAULT_PLANNING_SECONDS, MAX_PLANNING_SECONDS = 30.0, 86_400.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Serve recurring jobs, whose clients request batch sizes and report results, and pipeline "
        "jobs, whose ranks report measurements and get clocks; and show what `zeus slo` reports "
        "of services; with web pages. All is stored in a file of the state directory unless "
        "--storage or ZEUS_STORAGE is given. The server stops on SIGTERM or Ctrl-C, after the "
        "requests in progress. Only this machine can reach it, unless --listen has another host. "
        "All clients need a token (see `zeus token`); on this machine one is created, which "
        "programs of the same user find automatically, and a link that signs a browser in is "
        "printed."
    )
    parser.epilog = """\
examples:
  zeus serve
  zeus serve --listen 0.0.0.0:8420 --storage postgresql://zeus@db.example/zeus

The server speaks plain HTTP: on a network, put it behind a TLS proxy."""
    add_listen_option(parser, DEFAULT_PORT)
    for former, kind in (("--host", str), ("--port", whole_number(0, 65535))):
        parser.add_argument(former, type=kind, help=argparse.SUPPRESS)
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--no-token",
        action="store_true",
        help="require no token, so that all users of this machine have full access; on a loopback "
        "address only",
    )
    tokens.add_argument(  # has become the default
        "--require-token", action="store_true", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--planning-seconds",
        type=number(0.0, MAX_PLANNING_SECONDS, unit="seconds", above=True),
        default=DEFAULT_PLANNING_SECONDS,
        metavar="S",
        help="time limit for planning one pipeline job; the plans found by then are used "
        f"(default: {DEFAULT_PLANNING_SECONDS:g})",
    )
    add_storage_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from zeus.server import create_app, listen, serve  # noqa: PLC0415  (an extra)
    from zeus.server._serve import address, is_loopback  # noqa: PLC0415

    # Host and port apart are the former options.
    host, port = arguments.listen
    host = host if arguments.host is None else arguments.host
    port = port if arguments.port is None else arguments.port
    store = opened_store(arguments.storage)
    with listen(host, port) as listening:
        loopback = is_loopback(listening)
        if arguments.no_token and not loopback:
            raise UsageError(
                "--no-token is for a loopback address only, which other machines cannot reach, but "
                f"got {host}"
            )
        required = not arguments.no_token
        access = "tokens required" if required else "no tokens"
        lines = [f"zeus: serving on {address(listening)} ({access}; {store.where})"]
        sign_in = None
        if not loopback:
            _check_for_valid_token(store)
        elif required:
            sign_in, link = _local_access(store, address(listening))
            lines.append(link)
        app = create_app(
            store,
            require_token=required,
            host=host,
            sign_in=sign_in,
            planning_seconds=arguments.planning_seconds,
        )
        console = Console(sys.stdout)

        def ready() -> None:
            console.print(*lines)
            sys.stdout.flush()

        serve(app, listening, ready)
    return 0


def _local_access(store: Store, url: str) -> tuple[SignInCode, str]:
    """Give the user who starts the server access; return the sign-in code and a message."""
    from zeus.server._local_access import SignInCode, ensure_local_token  # noqa: PLC0415
    from zeus.store import Tokens  # noqa: PLC0415  (an extra)

    token, path = ensure_local_token(Tokens(store), time.time())
    sign_in = SignInCode(token)
    return sign_in, (
        f"zeus: to sign in, open {url}/sign-in#code={sign_in.code} (once, within "
        f"{sign_in.MINUTES} minutes; later sign in with the token in {path})"
    )


def _check_for_valid_token(store: Store) -> None:
    from zeus.store import Tokens  # noqa: PLC0415  (an extra)

    now = time.time()
    if not any(token.good(now) for token in Tokens(store).all()):
        raise TokenError(
            "a server that other machines can reach requires tokens, and there is none: create one "
            f"with `zeus token create --all --storage {store.where}`"
        )
