"""Tests marked `thorough` run with `--thorough` only, so that a build takes minutes.

They repeat a promise on more seeds, parts and worlds, or run a whole program for long. With
`thorough(keep=2)`, two of a test's variants run always: the first, and the others spread evenly.
"""

from __future__ import annotations

from collections import defaultdict


def pytest_addoption(parser):
    """Add the option."""
    parser.addoption("--thorough", action="store_true", help="run tests marked `thorough`, too")


def pytest_collection_modifyitems(config, items):
    """Leave out what is thorough, unless asked for."""
    if config.getoption("--thorough"):
        return
    variants = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thorough"):
            variants[item.nodeid.partition("[")[0]].append(item)
    left_out: set[object] = set()
    for group in variants.values():
        keep = group[0].get_closest_marker("thorough").kwargs.get("keep", 0)
        kept = {round(i * (len(group) - 1) / max(1, keep - 1)) for i in range(keep)}
        left_out.update(item for number, item in enumerate(group) if number not in kept)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
