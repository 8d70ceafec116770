"""`zeus board`: rows of the arena's board: import, list, export, remove."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from zeus.cli._parser import UsageError, add_action, add_storage_option, opened_store
from zeus.cli._terminal import Console
from zeus.errors import ArenaError

_SHOWN = 8  # keys that were not understood


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Import results of the ML.ENERGY leaderboard (versions 2 and 3; a JSON file, an archive or "
        "a directory) into the board of `zeus arena`; export the board as CSV or JSON; remove "
        "imported rows or those of load tests. Rounds and their votes are never removed."
    )
    parser.epilog = """\
examples:
  zeus board import mlenergy-v2-llm.tar.xz
  zeus board export board.csv
  zeus board remove import"""
    add_action(parser, "import", "export", "remove")
    parser.add_argument(
        "what",
        metavar="FILE|SOURCE",
        help="file to import, file to export to (.csv or .json; - for CSV on stdout), or source of "
        "the rows to remove (bench, import)",
    )
    add_storage_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action."""
    actions = {"import": _import, "export": _export, "remove": _remove}
    return actions[arguments.action](arguments)


def _import(arguments: argparse.Namespace) -> int:
    from zeus.arena._mlenergy import read_file  # noqa: PLC0415  (an extra)
    from zeus.arena._storage import ArenaStorage  # noqa: PLC0415

    try:
        found = read_file(Path(arguments.what))
    except ArenaError as error:
        raise UsageError(str(error)) from None
    store = opened_store(arguments.storage)
    added = ArenaStorage(store).add_rows(found.rows, time.time())
    store.close()
    lines = [f"{added} of {len(found.rows)} rows are new"]
    if found.skipped:
        lines.append(f"{found.skipped} entries without an energy of responses were left out")
    if found.unknown:
        keys = [f"{key!r} ({count})" for key, count in found.unknown.most_common(_SHOWN)]
        more = len(found.unknown) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"keys that were not understood: {', '.join(keys)}{rest}")
    Console(sys.stdout).print(*lines)
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from zeus.arena._rows import to_dict  # noqa: PLC0415  (an extra)
    from zeus.arena._standings_cache import BoardCache  # noqa: PLC0415
    from zeus.arena._storage import ArenaStorage  # noqa: PLC0415
    from zeus.arena.pages._export import to_csv  # noqa: PLC0415

    path = Path(arguments.what)
    if arguments.what != "-" and path.suffix not in (".csv", ".json"):
        raise UsageError(f"the file must end with .csv or .json, but got {arguments.what!r}")
    store = opened_store(arguments.storage)
    rows = list(BoardCache(ArenaStorage(store)).read().rows)
    store.close()
    if path.suffix == ".json":
        text = json.dumps({"rows": [to_dict(row) for row in rows]}, indent=1) + "\n"
    else:
        text = to_csv(rows)
    if arguments.what == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    from zeus.arena._rows import BENCH, IMPORT  # noqa: PLC0415  (an extra)
    from zeus.arena._storage import ArenaStorage  # noqa: PLC0415

    if arguments.what not in (BENCH, IMPORT):
        raise UsageError(f"the source must be {BENCH} or {IMPORT}, but got {arguments.what!r}")
    store = opened_store(arguments.storage)
    removed = ArenaStorage(store).remove_rows(arguments.what)
    store.close()
    Console(sys.stdout).print(f"{removed} rows were removed")
    return 0
