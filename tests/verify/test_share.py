"""What is shared, and that collected reports agree with the presets of this version."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from zeus.errors import ReportError
from zeus.verify._checks import judged
from zeus.verify._report import DeviceReport, Report
from zeus.verify._share import differences, read_shared, shared

COLLECTED = Path(__file__).parents[2] / "verified"
REPORTS = sorted(COLLECTED.glob("*.json"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_collected_reports_agree_with_our_presets(path):
    report = read_shared(path)
    # Whoever collects must see at once what is no evidence about hardware.
    assert report["simulated"] == path.name.startswith("simulated-")
    assert [str(each) for each in differences(report)] == []


def test_there_are_reports():
    assert REPORTS


def _report() -> dict:
    return read_shared(COLLECTED / "simulated-a100.json")


def of(report: dict, **values: float) -> dict:
    changed = copy.deepcopy(report)
    for check in changed["devices"][0]["checks"]:
        if (value := values.get(check["name"].replace(" ", "_"))) is not None:
            # As it would be, had the report been made with presets like that.
            check |= {"value": value, "preset": value, "verdict": "as expected"}
    return changed


def test_a_gpu_whose_sensor_is_different_is_named():
    assert differences(_report()) == []
    (found,) = differences(of(_report(), power_window=0.1))
    assert found.device == "NVIDIA A100-SXM4-80GB"
    assert "power window is 0.1 ± " in str(found)
    assert "the preset says 0.025 s" in str(found)
    assert len(differences(of(_report(), counter_period=0.02, highest_power_limit=500.0))) == 2


def test_a_model_without_preset_differs_from_nothing():
    report = of(_report(), power_window=0.1)
    report["devices"][0]["name"] = "NVIDIA X1"
    assert differences(report) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 7}, "`format` must be 1, but got 7"),
        ({"simulated": "no"}, "`simulated` must be true or false"),
        ({"devices": [{"checks": [{"name": "sound"}]}]}, "there is no check 'sound'"),
        ({"devices": 3}, "no report"),
    ],
)
def test_what_is_no_report_says_why(tmp_path, change, why):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(_report() | change))
    with pytest.raises(ReportError, match=why):
        read_shared(path)
    path.write_text("{")
    with pytest.raises(ReportError, match="no report"):
        read_shared(path)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100 GPU-12345678-1234-1234-1234-123456789abc",
        "NVIDIA A100 0000:3b:00.0",
        "NVIDIA A100 1320921037483",
        "NVIDIA A100\x1b[31m\n",
    ],
)
def test_names_of_products_lose_what_identifies_a_device(name):
    checks = [judged("power window", 0.025, 1e-3, 0.025, "at /home/me/secret")]
    device = DeviceReport("gpu", 3, name, checks, "535.104.05-secret")
    (found,) = shared(Report([device], ["/home/me: secret"], "0.1.0"))["devices"]
    assert found["name"].startswith("NVIDIA A100")
    assert not any(
        mark in json.dumps(found) for mark in ("1234", ":00.0", "1320", "secret", "u001")
    )
    assert found["driver"] == "535.104.05"
