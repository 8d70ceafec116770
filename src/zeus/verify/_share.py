"""The file of a report that can be shared, and its comparison with the presets of this version.

It is made of what is listed here and nothing else: names of products and versions of drivers in
plain characters, and checks without the words of drivers. So it contains no names of hosts or
users, no serial numbers, UUIDs or addresses, no paths and no times.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zeus._rules import Number, shown
from zeus.errors import ReportError
from zeus.verify._checks import QUANTITIES, Check, Verdict, judged
from zeus.verify._presets import preset_of
from zeus.verify._report import DeviceReport, Report

FORMAT = 1

_NAME = re.compile(r"[^A-Za-z0-9 .+/()-]")
_LONGEST_NAME = 60
#: What identifies a device inside a name that a driver made up: UUIDs, PCI addresses, long numbers.
_IDENTITY = re.compile(
    r"(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]|\d{9,}",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d+(?:\.\d+){0,4}")


def shared(report: Report) -> dict[str, Any]:
    """Return what is shared of a report."""
    return {
        "format": FORMAT,
        "zeus": report.zeus,
        "system": platform.system(),
        "simulated": any(device.simulated for device in report.devices),
        "devices": [_shared_device(device) for device in report.devices],
    }


def _shared_device(device: DeviceReport) -> dict[str, Any]:
    version = _VERSION.match(device.driver)
    return {
        "kind": device.kind,
        "name": _plain(device.name) if device.kind == "gpu" else device.kind.upper(),
        "driver": version[0] if version else None,
        "load": device.load or None,
        "other_processes": device.others,
        "checks": [_shared_check(check) for check in device.checks],
    }


def _shared_check(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "verdict": check.verdict.value,
        "value": check.value,
        "uncertainty": check.uncertainty,
        "unit": check.unit,
        "preset": check.preset,
        "why": check.why,
    }


def _plain(name: str) -> str:
    return _NAME.sub("", _IDENTITY.sub("", name))[:_LONGEST_NAME].strip()


class Difference(NamedTuple):
    """A value of a shared report that differs from a preset of this version."""

    device: str
    check: Check

    def __str__(self) -> str:
        check = self.check
        return (
            f"{self.device}: {check.name} is {check.value:g} ± {check.uncertainty:g} {check.unit}, "
            f"but the preset says {check.preset:g} {check.unit}"
        )


def read_shared(path: Path) -> dict[str, Any]:
    """Read a shared report.

    Raises:
        ReportError: If it is none; says why.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        _checked(report)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path.name} is no report of `zeus verify --share`: {error}") from None
    return dict(report)


def _checked(report: Mapping[str, Any]) -> None:
    if report["format"] != FORMAT:
        raise ReportError(f"`format` must be {FORMAT}, but got {shown(report['format'])}")
    if not isinstance(report["simulated"], bool):
        raise ReportError(f"`simulated` must be true or false, but got {report['simulated']!r}")
    for device in report["devices"]:
        for check in device["checks"]:
            if check["name"] not in QUANTITIES:
                raise ReportError(f"there is no check {shown(check['name'])}")
            Verdict(check["verdict"])
            for key in ("value", "uncertainty", "preset"):
                if check[key] is not None:
                    Number().check(key, check[key], ReportError)


def differences(report: Mapping[str, Any]) -> Sequence[Difference]:
    """Compare a shared report with the presets of this version of Zeus.

    Values of which a preset says something are judged again, whatever the report's verdicts are.

    Args:
        report: From `read_shared`.
    """
    found = []
    for device in report["devices"]:
        preset = preset_of(device["name"]) if device["kind"] == "gpu" else None
        presets = preset.values() if preset is not None else {}
        for each in device["checks"]:
            if each["value"] is None:
                continue
            expected = presets.get(each["name"], each["preset"])
            off = each["uncertainty"] or 0.0
            check = judged(each["name"], each["value"], off, expected)
            if check.verdict is Verdict.DIFFERENT:
                found.append(Difference(device["name"], check))
    return found
