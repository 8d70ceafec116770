"""Profiles and pipelines for the tests of plans."""

from __future__ import annotations

import pytest

from zeus.optimizer.pipeline_frequency import Option, Pipeline, Profile, build

CLOCKS = range(1410, 800, -60)


def stage_options(seconds: float, joules: float) -> list[Option]:
    """A GPU whose time goes with the clock, down to a floor, and whose energy has a valley."""
    return [
        Option(
            clock, seconds * (0.2 + 0.8 * 1410 / clock), joules * (0.3 + 0.7 * (clock / 1410) ** 2)
        )
        for clock in CLOCKS
    ]


@pytest.fixture
def profile() -> Profile:
    """Three stages of which the last is slower."""
    return Profile(
        {
            (stage, instruction): stage_options(seconds * load, 300 * seconds * load)
            for stage, load in enumerate((1.0, 1.03, 1.1))
            for instruction, seconds in (("forward", 0.05), ("backward", 0.1))
        },
        "three stages",
    )


@pytest.fixture
def small(profile):
    """Makes the same small pipeline over and over."""

    def make() -> Pipeline:
        return build(profile, "1f1b", 4, 80.0)

    return make
