"""Parsing the command line: the parser, options that commands share, and types of values."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from zeus._rules import TIME_FORM, read_seconds
from zeus.errors import ZeusError

if TYPE_CHECKING:
    from zeus.store import Store


LOOPBACK = "127.0.0.1"
# Without a host it is this machine only; ":8420" is refused, as some take it for all addresses.
_LISTEN = re.compile(
    r"(?:(?:\[(?P<six>[^\[\]\s]+)\]|(?P<name>[^:\[\]\s]+)):)?(?P<port>\d{1,5})", re.ASCII
)


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, but keeps the line breaks of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class UsageError(ZeusError, ValueError):
    """The command line is invalid."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting, and does not accept abbreviated options."""

    def __init__(self, *args: object, **options: object) -> None:
        options |= {"allow_abbrev": False, "formatter_class": _HelpFormatter}
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` that refers to `--help`."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """List the choices in the error, and suggest the closest one."""
        choices = action.choices
        if choices is None or action.nargs == argparse.PARSER or value in choices:
            super()._check_value(action, value)
            return
        known = [str(choice) for choice in choices]
        raise argparse.ArgumentError(
            action,
            f"must be one of {', '.join(known)}, but got {value!r}"
            + did_you_mean(str(value), known, "{}"),
        )

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Raise a `UsageError` about unknown arguments."""
        known = [text for action in self._actions for text in action.option_strings]
        hint = did_you_mean(words[0].partition("=")[0], known, "{}")
        self.error(f"`{self.prog}` takes no {' '.join(words)}{hint}")


def did_you_mean(word: str, known: Iterable[str], form: str) -> str:
    """Return a hint for an error about a word: the most similar known word, if any."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{form.format(near[0])}`?" if near else ""


def add_action(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the action argument of a command; errors about it list all actions."""
    parser.add_argument("action", choices=names, metavar="|".join(names), help="action")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json` for a command that prints one JSON document instead of text."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_json_output_options(
    parser: argparse._ActionsContainer, result: str, *, output: bool = True
) -> None:
    """Add `--json` and `--output FILE` for a command that has a result beside its text.

    `arguments.json` is the file, or "-" for stdout.

    Args:
        parser: The parser, or a group of it.
        result: Name of the result, for the help.
        output: Whether to add `--output`.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--json", action="store_const", const="-", help=f"print {result} as JSON to stdout"
    )
    if output:
        where.add_argument("--output", dest="json", metavar="FILE", help="write that JSON to FILE")


def add_gpus_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add `--gpus`; the purpose is for its help."""
    parser.add_argument(
        "--gpus", type=indices, metavar="N,N", help=f"GPUs to {purpose}, or `none` (default: all)"
    )


def add_server_option(parser: argparse.ArgumentParser, default: str = "ZEUS_SERVER") -> None:
    """Add `--server`."""
    parser.add_argument(
        "--server",
        type=server_url,
        metavar="URL",
        help=f"URL of the server (default: {default})",
    )


def add_listen_option(parser: argparse.ArgumentParser, port: int, *, only_if: str = "") -> None:
    """Add `--listen` for a command that serves; `arguments.listen` is a host and a port.

    Args:
        parser: The parser.
        port: The default port, on this machine only.
        only_if: When the default is used, if not always; without the option it is `None` then.
    """
    default = (LOOPBACK, port)
    parser.add_argument(
        "--listen",
        type=listen_address,
        default=None if only_if else default,
        metavar="[HOST:]PORT",
        help="address to listen on; port 0 for any that is free, host 0.0.0.0 for all machines "
        f"(default: {LOOPBACK}:{port}{only_if})",
    )


def listen_address(text: str) -> tuple[str, int]:
    """Parse an address to listen on: HOST:PORT, or a PORT of this machine only."""
    found = _LISTEN.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise argparse.ArgumentTypeError(
            "must be PORT or HOST:PORT with a port up to 65535, such as 8420, 0.0.0.0:8420 or "
            f"[::1]:8420, but got {text!r}"
        )
    return found["six"] or found["name"] or LOOPBACK, int(found["port"])


def server_url(text: str) -> str:
    """Check the URL of a server, for `type=`; errors do not repeat a password."""
    from urllib.parse import urlsplit  # noqa: PLC0415  (not for --help)

    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        from zeus.transport._http_client import without_secrets  # noqa: PLC0415

        raise argparse.ArgumentTypeError(
            f"must be a URL such as http://localhost:8420, but got {without_secrets(text)!r}"
        )
    return text


def add_storage_option(parser: argparse.ArgumentParser) -> None:
    """Add `--storage`."""
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="sqlite:///FILE or postgresql://USER@HOST/DATABASE (default: ZEUS_STORAGE, or a file "
        "in the state directory)",
    )


def refuse_two_stores(arguments: argparse.Namespace) -> None:
    """Raise a `UsageError` if both `--server` and `--storage` are given."""
    if arguments.server and arguments.storage:
        raise UsageError("give --server or --storage, not both")


def opened_store(storage: str | None) -> Store:
    """Open the store, or the default one; create it if it does not exist."""
    from zeus.store import Store, default_storage  # noqa: PLC0415  (an extra)

    return Store(storage or default_storage())


def indices(text: str) -> list[int]:
    """Parse device indices: "0,2", "0-3", or "none"."""
    if text.strip().lower() == "none":
        return []
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise argparse.ArgumentTypeError(
                f"must be numbers such as 0,1 or 0-3, or `none`, but got {text!r}"
            )
        found += range(first, last + 1)
    return found


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers within bounds, for `type=`."""
    rule = f"at least {low}" if high is None else f"at least {low} and at most {high}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"must be a whole number of {rule}, but got {text!r}")
        return value

    return read


def seconds(text: str) -> float:
    """Parse a time, for `type=`: seconds, or with a unit."""
    try:
        return read_seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {TIME_FORM}, but got {text!r}") from None


def number(
    low: float, high: float = math.inf, *, unit: str = "a number", above: bool = False
) -> Callable[[str], float]:
    """Return a parser of finite numbers within bounds, for `type=`.

    Args:
        low: Smallest number, which itself is excluded with `above`.
        high: Largest number.
        unit: Quantity to name in errors, such as "seconds".
        above: Whether the number must be more than `low`.
    """
    rule = f"{'more than' if above else 'at least'} {low:g}"
    rule += f" and at most {high:g}" if math.isfinite(high) else ""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or (above and value == low) or math.isinf(value):
            raise argparse.ArgumentTypeError(f"must be {unit}, {rule}, but got {text!r}")
        return value

    return read
