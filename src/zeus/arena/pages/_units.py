"""Energies of answers, from millijoules to megajoules."""

from __future__ import annotations

from zeus.drawing._units import Unit
from zeus.server.pages._units import digits

_UNITS = (Unit("MJ", 1e6), Unit("kJ", 1e3), Unit("J", 1.0), Unit("mJ", 1e-3))


def unit_of(joules: float) -> Unit:
    """Return the largest unit in which a value is at least 1."""
    if joules == 0:
        return Unit("J", 1.0)
    return next((unit for unit in _UNITS if joules >= unit.size), _UNITS[-1])


def energy_text(joules: float, uncertainty: float | None = None) -> str:
    """Return an energy in joules, with its uncertainty in the same unit if there is one."""
    unit = unit_of(joules)
    text = digits(joules / unit.size, 3)
    if uncertainty is not None:
        text += f" ±\u00a0{digits(uncertainty / unit.size, 2)}"
    return f"{text}\u00a0{unit.name}"
