"""Extensions that cannot be used."""

from __future__ import annotations

from typing import Any

from zeus.device import GpuDriver, GpuIdentity, GpuVendor, Problem, Visible

NUMBER = 42


class Lost(GpuDriver):
    identity = GpuIdentity("LOST", "Lost", "Fails")


def discover() -> tuple[list[GpuDriver], list[Problem]]:
    return [Lost()], []


def visible(candidates: Any, environment: Any) -> list[Visible]:
    return [Visible(len(candidates) + 7)]


def fails(node: Any) -> Any:
    raise OSError("no fans")


VENDOR = GpuVendor("NVIDIA")
FAILS = GpuVendor("Fails", discover=discover, visible=visible)
