"""Units in which people read a quantity."""

from __future__ import annotations

import pytest

from zeus.drawing._units import Unit, energy_unit, time_unit


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(3e-6, "µs"), (0.3, "ms"), (90, "s"), (600, "min"), (9000, "h"), (1e9, "h"), (0.0, "µs")],
)
def test_units_of_time(seconds, unit):
    assert time_unit(seconds).name == unit


@pytest.mark.parametrize(
    ("joules", "unit"),
    [(0.0, "J"), (0.01, "mJ"), (12, "J"), (4000, "kJ"), (3e6, "MJ"), (5e12, "GJ")],
)
def test_units_of_energy(joules, unit):
    assert energy_unit(joules).name == unit


def test_values_in_a_unit():
    kilojoule = Unit("kJ", 1e3)
    assert kilojoule.text(12_345.6) == "12.35 kJ"
    assert kilojoule.text(12_345.6, 180) == "12.35 ± 0.18 kJ"
    assert kilojoule.text(12_345.6, 6) == "12.35 ± 0.006 kJ"
    assert kilojoule.text(12_345.6, 4) == "12.35 kJ", "no digit that is shown is in doubt"
    assert kilojoule.text(0.0, 0.4) == "0 kJ"
    assert kilojoule.text(12_345_600.0, 4000.0) == "1.235e+04 kJ"
    assert kilojoule.show(12_345.6, 0.4, decimals=3) == "12.346"
    assert kilojoule.show(12_345.6, 0.6, decimals=3) == "12.346 ± 0.0006"
    assert kilojoule.show(12_345.6, decimals=kilojoule.decimals([12_345.6, 800])) == "12.3456"
