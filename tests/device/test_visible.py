"""Visible devices, with PyTorch's own reading of the variable as the judge."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.device.strategies import UUIDS, visible_devices

from zeus.device._visible import Candidate, Visible, visible_amd, visible_nvidia

BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def candidates(count: int = 4) -> list[Candidate]:
    return [Candidate(uuid) for uuid in UUIDS[:count]]


def positions(found: list[Visible]) -> list[int]:
    return [visible.position for visible in found]


def nvidia(value: str | None, count: int = 4, **more: str) -> list[int]:
    environment = {**BY_BUS, **more}
    if value is not None:
        environment["CUDA_VISIBLE_DEVICES"] = value
    return positions(visible_nvidia(candidates(count), environment))


@pytest.fixture(scope="module")
def torch_cuda() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about libraries that PyTorch would like to have
        return pytest.importorskip("torch.cuda")


def as_pytorch_sees(torch_cuda: Any, value: str, count: int) -> list[int]:
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    try:
        parsed = torch_cuda._parse_visible_devices()
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    if parsed and isinstance(parsed[0], str):
        return list(torch_cuda._transform_uuid_to_ordinals(parsed, list(UUIDS[:count])))
    # What is beyond the last GPU ends the list, as when PyTorch counts its devices.
    beyond = next((i for i, ordinal in enumerate(parsed) if ordinal >= count), len(parsed))
    return parsed[:beyond]


@settings(max_examples=600, deadline=None)
@given(value=visible_devices, count=st.integers(0, 4))
@example(value="0,9,9", count=2)
@example(value="0,9,0", count=2)
@example(value="0,-1,0", count=2)
@example(value="1gpu2,0", count=2)
@example(value=f"{UUIDS[2]},GPU-ffff,GPU-ffff", count=4)
@example(value=f"{UUIDS[2]},GPU-ffff,{UUIDS[2]}", count=4)
@example(value=f"{UUIDS[2]},{UUIDS[2][:7]}", count=4)
@example(value=f"{UUIDS[2]}, {UUIDS[0]}", count=4)
@example(value="GPU-8932f937", count=4)
@example(value="GPU-", count=1)
@example(value="", count=4)
def test_indices_and_uuids_mean_what_they_mean_to_pytorch(
    torch_cuda: Any, value: str, count: int
) -> None:
    if value.startswith("MIG-"):
        return  # PyTorch leaves these to the CUDA runtime
    assert nvidia(value, count) == as_pytorch_sees(torch_cuda, value, count)


@given(value=st.text(max_size=20), count=st.integers(0, 4))
def test_no_text_whatever_is_an_error(value: str, count: int) -> None:
    for found in (
        nvidia(value, count),
        positions(visible_amd(candidates(count), {"HIP_VISIBLE_DEVICES": value})),
    ):
        assert len(set(found)) == len(found)
        assert set(found) <= set(range(count))


@pytest.mark.parametrize("value", ["+", "-", "--1", "+-1", "-gpu"])
def test_a_sign_without_a_number_ends_the_list(value: str) -> None:
    assert nvidia(f"1,{value},0") == [1]
    assert nvidia(value) == []


def test_unset_is_everything_and_empty_is_nothing() -> None:
    assert nvidia(None) == [0, 1, 2, 3]
    assert nvidia("") == []
    assert nvidia("-1") == []
    assert nvidia("NoDevFiles") == []
    assert visible_nvidia([], {}) == []


# --- The order of devices -------------------------------------------------------------------------

MIXED = [Candidate("GPU-a", 10.0), Candidate("GPU-b", 30.0), Candidate("GPU-c", 30.0)]


def test_the_fastest_comes_first_unless_told_otherwise() -> None:
    assert positions(visible_nvidia(MIXED, {})) == [1, 0, 2]
    assert positions(visible_nvidia(MIXED, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})) == [1, 0, 2]
    assert positions(visible_nvidia(MIXED, BY_BUS)) == [0, 1, 2]


def test_equal_gpus_keep_the_order_of_the_bus() -> None:
    assert positions(visible_nvidia(candidates(), {})) == [0, 1, 2, 3]


def test_a_gpu_that_does_not_answer_renumbers_nobody() -> None:
    silent = [*MIXED[:2], Candidate("GPU-c")]
    assert positions(visible_nvidia(silent, {})) == [0, 1, 2]


def test_indices_count_in_the_order_in_force() -> None:
    assert positions(visible_nvidia(MIXED, {"CUDA_VISIBLE_DEVICES": "0"})) == [1]
    assert positions(visible_nvidia(MIXED, {"CUDA_VISIBLE_DEVICES": "2,1"})) == [2, 0]
    assert positions(visible_nvidia(MIXED, {**BY_BUS, "CUDA_VISIBLE_DEVICES": "2,1"})) == [2, 1]


def test_uuids_do_not_depend_on_the_order() -> None:
    for order in ({}, BY_BUS):
        found = visible_nvidia(MIXED, {**order, "CUDA_VISIBLE_DEVICES": "GPU-c,GPU-a"})
        assert positions(found) == [2, 0]


# --- Slices of GPUs -------------------------------------------------------------------------------

SLICES = ("MIG-11111111-0000", "MIG-11112222-0000", "MIG-33333333-0000")
SLICED = [
    Candidate(UUIDS[0]),
    Candidate(UUIDS[2], mig_uuids=SLICES[:2]),
    Candidate(UUIDS[3], mig_uuids=SLICES[2:]),
]


def slices(value: str | None) -> list[Visible]:
    environment: Mapping[str, str] = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    return visible_nvidia(SLICED, {**BY_BUS, **environment})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(SLICES[1], [Visible(1, SLICES[1])], id="whole"),
        pytest.param("MIG-3", [Visible(2, SLICES[2])], id="prefix"),
        pytest.param("MIG-1111", [], id="ambiguous"),
        pytest.param("MIG-ffff", [], id="unknown"),
        pytest.param(f"{SLICES[2]},{SLICES[0]}", [Visible(2, SLICES[2])], id="only the first"),
        pytest.param(f"MIG-{UUIDS[2]}/2/0", [Visible(1, f"MIG-{UUIDS[2]}/2/0")], id="older form"),
        pytest.param("MIG-GPU-nobody/1/0", [], id="older form, unknown GPU"),
        pytest.param(f"MIG-{UUIDS[0]}/1/0", [], id="older form, GPU without slices"),
    ],
)
def test_a_slice_stands_for_its_gpu(value: str, expected: list[Visible]) -> None:
    assert slices(value) == expected


def test_a_sliced_gpu_shows_its_first_slice() -> None:
    everything = [Visible(0), Visible(1, SLICES[0]), Visible(2, SLICES[2])]
    assert slices(None) == everything
    assert slices("2,0") == [everything[2], everything[0]]
    assert slices(UUIDS[2]) == [everything[1]]


# --- ROCm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"ROCR_VISIBLE_DEVICES": "3,1,0"}, [3, 1, 0]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "CUDA_VISIBLE_DEVICES": "1,0"}, [1, 3]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "0,2,1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": f"{UUIDS[2]},0", "HIP_VISIBLE_DEVICES": "0"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": f"{UUIDS[2]},{UUIDS[1]}", "HIP_VISIBLE_DEVICES": UUIDS[1]}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": UUIDS[1]}, []),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, []),
        ({"ROCR_VISIBLE_DEVICES": "1,1"}, []),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [0, 1, 2, 3]),
    ],
)
def test_rocr_narrows_first_then_hip_or_cuda(
    environment: dict[str, str], expected: list[int]
) -> None:
    by_speed = [Candidate(uuid, speed) for speed, uuid in enumerate(UUIDS)]
    assert positions(visible_amd(by_speed, environment)) == expected
