"""`zeus serve`: recurring jobs for clients on this machine or on others."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from zeus.cli._parser import UsageError
from zeus.cli._storage import add_storage_option, opened_store
from zeus.cli._terminal import Console
from zeus.errors import TokenError

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.store import Store
    from zeus.server.local_access import SignInCode

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8420
DEFAULT_PLANNING_SECONDS, MAX_PLANNING_SECONDS = 30.0, 86_400.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Serve recurring jobs, whose clients ask which batch size to train with and report what "
        "came of it, and pipeline jobs, whose ranks report what they measure and get clocks; with "
        "pages to look at. It keeps them in a file of its own unless told otherwise, and needs no "
        "other configuration. It ends on SIGTERM or Ctrl-C, after the requests it has begun to "
        "answer. Only this machine can reach it, unless --host says otherwise. Everybody must bear "
        "a token (see `zeus token`); on this machine one is made, which programs of the same user "
        "find by themselves, and a link that signs a browser in is printed."
    )
    parser.epilog = """\
examples:
  zeus serve
  zeus serve --host 0.0.0.0 --storage postgresql://zeus@db.example/zeus

It speaks plain HTTP: on a network, put it behind a proxy that speaks TLS."""
    parser.add_argument(
        "--host",
        default=DEFAULT_HOST,
        metavar="ADDRESS",
        help=f"address or name to listen on (default: {DEFAULT_HOST})",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        metavar="NUMBER",
        help=f"port to listen on; 0 takes any that is free (default: {DEFAULT_PORT})",
    )
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--no-token",
        action="store_true",
        help="ask nobody for a token, so that everybody on this machine may change everything; "
        "on a loopback address only",
    )
    tokens.add_argument(  # what it asked for is the default now
        "--require-token", action="store_true", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--planning-seconds",
        type=_seconds,
        default=DEFAULT_PLANNING_SECONDS,
        metavar="S",
        help="seconds for the plans of one pipeline job, after which they are used as they are "
        f"(default: {DEFAULT_PLANNING_SECONDS:g})",
    )
    add_storage_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from zeus.server import create_app, listen, serve  # noqa: PLC0415  (an extra)
    from zeus.server.serve import address, is_loopback  # noqa: PLC0415

    store = opened_store(arguments.storage)
    with listen(arguments.host, arguments.port) as listening:
        loopback = is_loopback(listening)
        if arguments.no_token and not loopback:
            raise UsageError(
                "--no-token is for a loopback address only, which others cannot reach, but got "
                f"--host {arguments.host}"
            )
        required = not arguments.no_token
        said = f"zeus: serving on {address(listening)} ("
        said += f"{'tokens required' if required else 'no tokens'}; {store.where})"
        lines, sign_in = [said], None
        if not loopback:
            _check_that_somebody_may_come_in(store)
        elif required:
            sign_in, link = _local_access(store, address(listening))
            lines.append(link)
        app = create_app(
            store,
            require_token=required,
            host=arguments.host,
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
    """Lets in the user who starts this; says how, in a line."""
    from zeus.optimizer.batch_size.store import Tokens  # noqa: PLC0415  (an extra)
    from zeus.server.local_access import SignInCode, ensure_local_token  # noqa: PLC0415

    token, path = ensure_local_token(Tokens(store), time.time())
    sign_in = SignInCode(token)
    return sign_in, (
        f"zeus: to look at it, open {url}/sign-in#code={sign_in.code} (once, within "
        f"{sign_in.MINUTES} minutes; later sign in with the token in {path})"
    )


def _check_that_somebody_may_come_in(store: Store) -> None:
    from zeus.optimizer.batch_size.store import Tokens  # noqa: PLC0415  (an extra)

    now = time.time()
    if not any(token.good(now) for token in Tokens(store).all()):
        raise TokenError(
            "a server that others can reach asks everybody for a token, and there is none: create "
            f"one with `zeus token create --all --storage {store.where}`"
        )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_PLANNING_SECONDS:
        raise argparse.ArgumentTypeError(
            f"must be a number of seconds, more than 0 and at most {MAX_PLANNING_SECONDS:g}, but "
            f"got {text!r}"
        )
    return value


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text[:9]) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port, 0 to 65535, but got {text!r}")
    return int(text)
