"""Time and energy of an epoch, from all processes."""

from __future__ import annotations

from zeus.integrations._epoch import values_of
from zeus.monitor import Measurement
from zeus.monitor._measurement import CPU, GPU, Reading
from zeus.monitor._samples import Method


def reading(energy, domain=GPU, index=0, key="", note=""):
    method = Method.UNAVAILABLE if energy is None else Method.COUNTER
    return Reading(domain, index, "device", energy, method, note=note, key=key)


def piece(time, *readings):
    return Measurement.of(time, readings)


def test_processes_add_up_and_the_slowest_counts():
    values = values_of([piece(1.0, reading(10.0, key="a")), piece(2.0, reading(20.0, key="b"))])
    assert values == {"zeus/epoch_time": 2.0, "zeus/epoch_energy": 30.0}


def test_a_gpu_that_two_processes_measure_counts_once():
    values = values_of([piece(1.0, reading(10.0, key="a")), piece(1.0, reading(11.0, key="a"))])
    assert values["zeus/epoch_energy"] == 11.0


def test_a_gpu_without_energy_makes_the_sum_unknown():
    measured = piece(1.0, reading(10.0, key="a"), reading(None, index=1, key="b"))
    assert values_of([measured]) == {"zeus/epoch_time": 1.0}


def test_host_energy_that_may_not_be_read_does_not():
    measured = piece(1.0, reading(10.0), reading(None, CPU))
    assert values_of([measured])["zeus/epoch_energy"] == 10.0


def test_nothing_measured_is_not_zero():
    assert values_of([piece(1.0)]) == {"zeus/epoch_time": 1.0}
