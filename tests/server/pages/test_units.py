"""Quantities in words, for people."""

from __future__ import annotations

import pytest

from zeus.server.pages import _units as units


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (units.joules(None), "unknown"),
        (units.joules(0.0), "0 J"),
        (units.joules(12_345.6), "12.35 kJ"),
        (units.joules(-3.2e6), "−3.2 MJ"),
        (units.joules(4.56e12), "4560 GJ"),
        (units.joules(1e20), "100000000000 GJ"),
        (units.aligned_joules(69.02, 3744.0), "0.069 kJ"),
        (units.aligned_joules(3744.0, 3744.0), "3.744 kJ"),
        (units.seconds(None), "unknown"),
        (units.seconds(0.0), "0 s"),
        (units.seconds(0.25), "250 ms"),
        (units.seconds(100.0), "100 s"),
        (units.seconds(7300.0), "2.03 h"),
        (units.seconds(1e6), "11.6 d"),
        (units.watts(None), "unknown"),
        (units.watts(225.0), "225 W"),
        (units.watts(12_500.0), "12.5 kW"),
        (units.percent(None), "unknown"),
        (units.percent(0.1234), "12.3 %"),
        (units.percent(-0.00001), "0.0 %"),
        (units.percent(-3.2), "−320 %"),
        (units.percent(0.05, signed=True), "+5.0 %"),
        (units.digits(1e150), "1e+150"),
        (units.digits(float("inf")), "∞"),
        (units.grouped(9_999), "9999"),
        (units.grouped(1_234_567), "1 234 567"),
        (units.counted(1, "trial"), "1 trial"),
        (units.counted(2, "trial runs", "trials run"), "2 trials run"),
        (units.listed(["a"]), "a"),
        (units.listed(["a", "b", "c"]), "a, b and c"),
    ],
)
def test_quantities_for_people(said, words):
    assert said.replace("\u00a0", " ").replace("\u202f", " ") == words


def test_instants_are_told_in_full_to_machines():
    assert units.instant(0.0) == '<time datetime="1970-01-01T00:00:00Z">1970-01-01 00:00 UTC</time>'
    assert "unknown" in units.instant(None)
    for passed, words in (
        (-5, "a moment"),
        (30, "30 seconds"),
        (180, "3 minutes"),
        (1e6, "11 days"),
    ):
        assert f">{words} ago</time>" in units.ago(0.0, passed)
