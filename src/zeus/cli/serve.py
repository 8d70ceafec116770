"""`zeus serve`: recurring jobs for clients on this machine or, with tokens, on others."""

from __future__ import annotations

import argparse
import sys

from zeus.cli._storage import add_storage_option, opened_store
from zeus.cli._terminal import Console
from zeus.errors import TokenError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8420


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Serve recurring jobs, whose clients ask which batch size to train with and report what "
        "came of it, and pipeline jobs, whose ranks report what they measure and get clocks; with "
        "pages to look at. It keeps them in a file of its own unless told otherwise, and needs no "
        "other configuration. It ends on SIGTERM or Ctrl-C, after the requests it has begun to "
        "answer. Only this machine can reach it, unless --host says otherwise; then everybody must "
        "bear a token (see `zeus token`)."
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
    parser.add_argument(
        "--require-token",
        action="store_true",
        help="ask for a token on a loopback address, too, as behind a proxy",
    )
    add_storage_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from zeus.server import create_app, listen, serve  # noqa: PLC0415  (an extra)
    from zeus.server.serve import address, is_loopback  # noqa: PLC0415

    store = opened_store(arguments.storage)
    with listen(arguments.host, arguments.port) as listening:
        required = arguments.require_token or not is_loopback(listening)
        if required:
            _check_that_somebody_may_come_in(store)
        app = create_app(store, require_token=required, host=arguments.host)
        console = Console(sys.stdout)

        def ready() -> None:
            tokens = "tokens required" if required else "no tokens: only this machine"
            console.print(f"zeus: serving on {address(listening)} ({tokens}; {store.where})")
            sys.stdout.flush()

        serve(app, listening, ready)
    return 0


def _check_that_somebody_may_come_in(store: object) -> None:
    import time  # noqa: PLC0415

    from zeus.optimizer.batch_size.store import Store, Tokens  # noqa: PLC0415  (an extra)

    assert isinstance(store, Store)
    now = time.time()
    if not any(token.good(now) for token in Tokens(store).all()):
        raise TokenError(
            "a server that others can reach asks everybody for a token, and there is none: create "
            f"one with `zeus token create --all --storage {store.where}`"
        )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text[:9]) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port, 0 to 65535, but got {text!r}")
    return int(text)
