"""The option for the location of the job store."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeus.store import Store


def add_storage_option(parser: argparse.ArgumentParser) -> None:
    """Add `--storage`."""
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="sqlite:///FILE or postgresql://USER@HOST/DATABASE (default: ZEUS_STORAGE, or a file "
        "in the state directory)",
    )


def opened_store(storage: str | None) -> Store:
    """Open the store, or the default one; create it if it does not exist."""
    from zeus.store import Store, default_storage  # noqa: PLC0415  (an extra)

    return Store(storage or default_storage())
