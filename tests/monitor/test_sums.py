"""Sums and differences of measurements of one process."""

from __future__ import annotations

import pytest

from zeus.integrations._epoch import values_of
from zeus.monitor import Measurement
from zeus.monitor._measurement import CPU, GPU, Reading
from zeus.monitor._samples import Method
from zeus.monitor._sums import gpu_energy, joined, since


def reading(energy, domain=GPU, index=0, note="", uncertainty=None):
    method = Method.UNAVAILABLE if energy is None else Method.COUNTER
    return Reading(domain, index, "device", energy, method, uncertainty, note)


def piece(time, *readings):
    return Measurement.of(time, readings)


def test_pieces_follow_each_other():
    whole = joined([piece(1.0, reading(10.0), reading(5.0, CPU)), piece(2.0, reading(20.0))])
    assert whole.time == 3.0
    assert whole.gpu_energy == {0: 30.0}
    assert whole.cpu_energy == {0: 5.0}


def test_uncertainties_of_pieces_are_independent():
    whole = joined([piece(1.0, reading(10.0, uncertainty=error)) for error in (3.0, 4.0)])
    assert whole.uncertainty == 5.0


@pytest.mark.parametrize("order", [1, -1])
def test_energy_of_which_a_piece_is_missing_is_not_known(order):
    pieces = [piece(1.0, reading(10.0)), piece(1.0, reading(None, note="lost"))]
    whole = joined(pieces[::order])
    assert whole.gpu_energy == {}
    assert [each.note for each in whole.unavailable] == ["lost"]
    assert values_of([whole]) == {"zeus/epoch_time": 2.0}


def test_a_later_sum_without_an_earlier_one():
    pieces = [piece(1.0, reading(10.0)), piece(2.0, reading(20.0), reading(7.0, index=1))]
    later = since(joined(pieces), pieces[0])
    assert later.time == 2.0
    assert later.gpu_energy == {0: 20.0, 1: 7.0}


def test_what_was_unknown_stays_unknown():
    before = piece(1.0, reading(None, note="lost"))
    later = since(joined([before, piece(1.0, reading(5.0))]), before)
    assert [each.note for each in later.unavailable] == ["lost"]


@pytest.mark.parametrize(
    ("readings", "energy"),
    [
        ((reading(1.0), reading(2.0, index=1), reading(4.0, CPU)), 3.0),
        ((reading(1.0), reading(None, index=1)), None),
        ((reading(1.0), reading(None, CPU)), 1.0),
        ((reading(4.0, CPU),), None),
    ],
    ids=["all", "one is unknown", "the host is", "none"],
)
def test_energy_of_gpus_is_known_if_that_of_each_is(readings, energy):
    assert gpu_energy(piece(1.0, *readings)) == energy
