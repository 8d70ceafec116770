"""Detect another distribution that installs a package of the same name."""

from __future__ import annotations

import os
import sys
import warnings

_NAMESAKES = ("zeus", "zeus_ml")


def warn_about_namesake() -> None:
    """Warn if another `zeus` is installed: its files and ours overwrite each other."""
    found = namesake()
    if found is not None:
        warnings.warn(found, RuntimeWarning, stacklevel=3)


def namesake() -> str | None:
    """Return what to say of another `zeus` that is installed, and how to remove it.

    Checks directory names only; reading metadata would make every import slow.
    """
    for directory in sys.path:
        if not directory.endswith(("site-packages", "dist-packages")):
            continue
        try:
            names = os.listdir(directory)  # noqa: PTH208  (pathlib is not loaded yet)
        except OSError:
            continue
        for name in names:
            if not name.endswith(".dist-info"):
                continue
            distribution, _, version = name.removesuffix(".dist-info").partition("-")
            if distribution.lower().replace("-", "_") in _NAMESAKES:
                from zeus._installation import remove_namesake  # noqa: PLC0415  (seldom needed)

                return (
                    f"the distribution `{distribution}` {version} is installed beside "
                    "`zeus-energy`; both provide the package `zeus` and overwrite each other's "
                    f"files. To keep Zeus only: {remove_namesake(distribution)}"
                )
    return None
