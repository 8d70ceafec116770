"""Fixtures of the agent's tests."""

from __future__ import annotations

from tests.agent.rig import make_rig, rig

__all__ = ["make_rig", "rig"]
