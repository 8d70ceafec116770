"""What a measurement says about itself."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError

import pytest
from rich.console import Console

from zeus.monitor import Measurement, Method, Reading

GPU0 = Reading("gpu", 0, "V100", 100.0, Method.COUNTER, 3.0, key="GPU-0")
GPU1 = Reading("gpu", 1, "V100", None, Method.UNAVAILABLE, note="device lost: Xid 79", key="GPU-1")
CPU0 = Reading("cpu", 0, "Xeon", 50.0, Method.COUNTER, 4.0, key="cpu-0")
RAIL = Reading("soc", "vdd_cpu", "Orin", 7.0, Method.INTEGRATED, contained=True)
BOARD = Reading("soc", "vdd_in", "Orin", 20.0, Method.INTEGRATED)


def test_published_construction():
    measurement = Measurement(time=2.0, gpu_energy={0: 10.0, 2: 30.0}, cpu_energy={0: 5.0})
    assert measurement.gpu_energy == {0: 10.0, 2: 30.0}
    assert measurement.total_energy == 40.0
    assert measurement.energy == 45.0
    assert measurement.average_power == 22.5
    assert measurement.average_gpu_power == {0: 5.0, 2: 15.0}
    assert measurement.dram_energy is None
    assert measurement.soc_energy is None


def test_frozen():
    measurement = Measurement(1.0, {0: 1.0})
    with pytest.raises(FrozenInstanceError):
        measurement.time = 2.0
    with pytest.raises(AttributeError):
        measurement.anything = 2.0
    with pytest.raises(FrozenInstanceError):
        del measurement.time
    measurement.gpu_energy[0] = 99.0  # a copy
    assert measurement.gpu_energy == {0: 1.0}


def test_unknown_is_absent_and_says_why():
    measurement = Measurement.of(2.0, [GPU0, GPU1])
    assert measurement.gpu_energy == {0: 100.0}
    assert not measurement.complete
    assert [r.note for r in measurement.unavailable] == ["device lost: Xid 79"]
    text = str(measurement)
    assert "unavailable: device lost: Xid 79" in text
    assert "incomplete" in text
    assert "Xid 79" in repr(measurement)


def test_parts_of_a_board_are_not_added_to_it():
    assert Measurement.of(1.0, [RAIL, BOARD]).energy == 20.0


def test_uncertainties_add_in_squares():
    assert Measurement.of(1.0, [GPU0, CPU0]).uncertainty == 5.0


def test_json_there_and_back():
    measurement = Measurement.of(2.0, [GPU0, GPU1, CPU0, RAIL, BOARD])
    record = json.loads(measurement.to_json())
    assert record["total_energy"] == 100.0
    assert record["gpu_energy"] == {"0": 100.0}
    assert record["readings"][1]["energy"] is None
    assert record["readings"][0]["method"] == "counter"
    assert Measurement.from_dict(record) == measurement


@pytest.mark.parametrize(
    "record", [{}, {"time": 1.0, "readings": [{}]}, {"time": 1, "readings": 3}]
)
def test_bad_records_are_refused(record):
    with pytest.raises(ValueError, match="not the record of a measurement"):
        Measurement.from_dict(record)


def test_a_measurement_is_final_once_and_for_all():
    answers = iter([((GPU0,), False), ((GPU1,), False), ((GPU1, GPU0), True)])
    measurement = Measurement.deferred(1.0, lambda: next(answers))
    assert measurement.readings == (GPU0,)
    assert not measurement.settled
    copy = pickle.loads(pickle.dumps(measurement))
    assert copy.readings == measurement.readings == (GPU1, GPU0)
    assert measurement.settled


def test_rich_and_notebook_display():
    measurement = Measurement.of(2.0, [GPU0, GPU1, CPU0])
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(measurement)
    text = console.export_text()
    console.file.close()
    assert "GPU 0 V100" in text
    assert "100 J ± 3 J" in text
    html = Measurement.of(1.0, [Reading("gpu", 0, "<b>", 1.0, Method.COUNTER)])._repr_html_()
    assert "&lt;b&gt;" in html
    assert html.startswith("<table>")


def test_without_any_device_there_is_no_table_to_head():
    nothing = Measurement.of(2.0, [])
    assert str(nothing) == "2 s, energy not measured"
    assert (nothing.energy, nothing.to_dict()["total_energy"]) == (None, None)


def test_combining_ranks_counts_each_device_once():
    """Four ranks that all measured the whole node: the sum must not be four times too large."""
    ranks = [Measurement.of(2.0 + i, [GPU0, CPU0]) for i in range(4)]
    whole = Measurement.combined(ranks)
    assert whole.time == 5.0
    assert whole.total_energy == 100.0
    assert whole.cpu_energy == {0: 50.0}


def test_combining_ranks_adds_their_own_devices():
    ranks = [
        Measurement.of(2.0, [Reading("gpu", 0, "V100", 10.0, Method.COUNTER, key=f"GPU-{i}")])
        for i in range(4)
    ]
    whole = Measurement.combined(ranks)
    assert whole.gpu_energy == {0: 10.0, 1: 10.0, 2: 10.0, 3: 10.0}
