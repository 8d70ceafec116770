"""A process that is alone, and names of GPUs in a job. Processes that talk: test_torchrun."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zeus.optimizer.training._ranks import Ranks, job_ranks
from zeus.state._files import boot_id, job_wide


def test_alone_one_hears_oneself():
    alone = Ranks()
    assert (alone.rank, alone.size) == (0, 1)
    assert alone.share("said") == ["said"]
    assert alone.prefixed(0, "why") == "why"
    alone.leave()
    assert alone.share(1) == [1]


def test_torch_is_not_imported_to_find_out():
    script = (
        "import sys; from zeus.optimizer.training._ranks import job_ranks; "
        "assert job_ranks(1.0).size == 1; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_torch_without_a_process_group_is_alone():
    pytest.importorskip("torch")
    assert type(job_ranks(1.0)) is Ranks


def test_a_group_of_one_is_alone(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        assert type(job_ranks(1.0)) is Ranks
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("uuid", ["GPU-5a1d0000-0000-4000-8000-000000000000", "d9ff74a1-0000-1000"])
def test_a_uuid_names_a_gpu_everywhere(uuid):
    assert job_wide(uuid) == uuid


@pytest.mark.parametrize("address", ["0000:3b:00.0", "00000000:3B:00.0"])
def test_a_pci_address_names_a_gpu_of_this_machine_only(address):
    # Every node of a cluster has a 0000:3b:00.0, and two GPUs must not count as one.
    assert job_wide(address) == f"{boot_id()} {address}"
