"""`python -m zeus.show_env`, which is `zeus env` now."""

from __future__ import annotations

import sys

from zeus._bridges._modules import warn_once


def show_env() -> int:
    """Print what can be measured and controlled here; return the exit code."""
    from zeus.cli import main  # noqa: PLC0415

    warn_once("zeus.show_env", "the command `zeus env`", stacklevel=2)
    return main(["env"])


if __name__ == "__main__":
    sys.exit(show_env())
