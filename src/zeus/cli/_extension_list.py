"""The extensions that other distributions add, for `zeus env`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zeus import _extensions as known
from zeus._extensions import Extension
from zeus.cli._terminal import Console


def installed_extensions(node: Any) -> list[Extension]:
    """Load all extensions, and return them with what is wrong with each.

    Args:
        node: Given to the sources of metrics.
    """
    found: list[Extension] = []
    for group, consult in _registries(node).items():
        if known.extension_names(group):  # registries are not imported for nothing
            try:
                consult()
            except ImportError as error:  # of an optional dependency
                found += known.unused(group, str(error))
            else:
                found += known.consulted(group)
    return found


def extension_lines(console: Console, extensions: Sequence[Extension]) -> list[str]:
    """Return the extensions as text; empty if there are none."""
    if not extensions:
        return []
    rows = [
        (
            each.name,
            each.group,
            each.distribution,
            f"not used: {each.problem}" if each.problem else "",
        )
        for each in extensions
    ]
    return [console.style("Extensions", "bold"), *console.table(rows, indent="  ")]


def _registries(node: Any) -> Mapping[str, Callable[[], object]]:
    return {
        known.GPU_VENDORS: _vendors,
        known.OBJECTIVES: _objectives,
        known.POLICIES: _policies,
        known.SCHEDULES: _schedules,
        known.METRIC_SOURCES: lambda: _metric_sources(node),
    }


def _vendors() -> object:
    from zeus.device._vendors import vendors  # noqa: PLC0415

    return vendors()


def _objectives() -> object:
    from zeus.cli._objectives import all_objectives  # noqa: PLC0415

    return all_objectives()


def _policies() -> object:
    from zeus.optimizer.batch_size.policies._registry import outside_policies  # noqa: PLC0415

    return outside_policies()


def _schedules() -> object:
    from zeus.optimizer.pipeline_frequency._schedules import all_schedules  # noqa: PLC0415

    return all_schedules()


def _metric_sources(node: Any) -> None:
    from zeus.telemetry._collection import Telemetry  # noqa: PLC0415

    Telemetry(node, continuous=False).close()
