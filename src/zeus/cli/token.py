"""`zeus token`: create, list and revoke access tokens of a server.

With `--json`, `create` prints one object with `token` and its properties (`id`, `job`, `note`,
`created`, `expires`, `revoked`, `read_only`; times in seconds since 1970), `list` a list of such
objects without `token`, and `revoke` one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING

from zeus._rules import Text
from zeus.cli._parser import (
    UsageError,
    add_action,
    add_json_option,
    add_storage_option,
    number,
    opened_store,
)
from zeus.cli._terminal import MISSING, Console
from zeus.errors import JobLogError

if TYPE_CHECKING:
    from zeus.store import Token, Tokens

_DAY = 86400.0
_MAX_DAYS = 36500.0
_JOB, _NOTE = Text(200), Text(2_000, empty=True)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "zeus token create|list|revoke [ID] [options]"
    parser.description = (
        "Create, list and revoke tokens. `zeus serve` requires one from all clients; programs of "
        "the user who runs it on this machine have one already. Clients send it as "
        "`Authorization: Bearer TOKEN`. A token is valid for one job or for all, with full or "
        "read-only access. It is shown once, when it is created: the store has only its hash."
    )
    parser.epilog = """\
examples:
  zeus token create --job nightly-bert --expires 90 --note "cron on gpu7"
  zeus token create --all --read-only --note "dashboard"
  zeus token list
  zeus token revoke 5f0c1d2e"""
    add_action(parser, "create", "list", "revoke")
    parser.add_argument("id", nargs="?", metavar="ID", help="ID of the token to revoke")
    parser.add_argument("--job", metavar="NAME", help="create: for this job only")
    parser.add_argument("--all", action="store_true", help="create: for all jobs")
    parser.add_argument(
        "--read-only", action="store_true", help="create: read-only access; changes are rejected"
    )
    parser.add_argument(
        "--expires",
        type=number(0.0, _MAX_DAYS, unit="days", above=True),
        metavar="DAYS",
        help="create: validity in days (default: unlimited)",
    )
    parser.add_argument(
        "--note", default="", metavar="TEXT", help="create: description of its purpose"
    )
    add_json_option(parser)
    add_storage_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the action."""
    _check(arguments)
    from zeus.store import Tokens  # noqa: PLC0415  (an extra)

    actions = {"create": _create, "list": _list, "revoke": _revoke}
    with contextlib.closing(opened_store(arguments.storage)) as store:
        actions[arguments.action](Tokens(store), arguments, Console(sys.stdout))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    creates = arguments.action == "create"
    if creates and (arguments.job is not None) == arguments.all:
        raise UsageError("zeus token create needs either --job NAME or --all")
    given = (arguments.job, arguments.all, arguments.read_only, arguments.expires, arguments.note)
    if not creates and any(given):
        raise UsageError(
            "--job, --all, --read-only, --expires and --note are for `zeus token create`"
        )
    if arguments.action == "revoke" and arguments.id is None:
        raise UsageError("`zeus token revoke` needs the ID of a token; see `zeus token list`")
    if arguments.action != "revoke" and arguments.id is not None:
        raise UsageError(f"`zeus token {arguments.action}` takes no ID, but got {arguments.id!r}")


def _create(tokens: Tokens, arguments: argparse.Namespace, console: Console) -> None:
    now = time.time()
    secret, token = tokens.create(
        None if arguments.all else _JOB.check("job", arguments.job, JobLogError),
        now=now,
        expires=None if arguments.expires is None else now + arguments.expires * _DAY,
        note=_NOTE.check("note", arguments.note, JobLogError),
        read_only=arguments.read_only,
    )
    if arguments.json:
        console.print_json({"token": secret, **vars(token)})
        return
    # Alone on its line, so that a script can read it.
    console.print(secret)
    if sys.stdout.isatty():
        console.print("", f"The token is not shown again. Its ID is {token.id}.")


def _list(tokens: Tokens, arguments: argparse.Namespace, console: Console) -> None:
    found = tokens.all()
    if arguments.json:
        console.print_json([vars(token) for token in found])
        return
    if not found:
        console.print("No tokens.")
        return
    now = time.time()
    heading = ("id", "job", "access", "created", "valid", "note")
    console.print_table([heading, *(_row(token, now) for token in found)])


def _revoke(tokens: Tokens, arguments: argparse.Namespace, console: Console) -> None:
    token = tokens.revoke(arguments.id, now=time.time())
    if arguments.json:
        console.print_json(vars(token))
    else:
        console.print(f"Token {token.id} is revoked; servers reject it within seconds.")


def _row(token: Token, now: float) -> tuple[str, ...]:
    if token.revoked is not None:
        valid = f"revoked {_day(token.revoked)}"
    elif token.expires is None:
        valid = "unlimited"
    else:
        valid = f"{'until' if token.good(now) else 'expired'} {_day(token.expires)}"
    job = "all" if token.job is None else repr(token.job)
    access = "read-only" if token.read_only else "full"
    return token.id, job, access, _day(token.created), valid, token.note or MISSING


def _day(instant: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(instant))
