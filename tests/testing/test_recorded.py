"""The recorded jobs can be listed, chosen and run."""

from __future__ import annotations

import pytest

from zeus.testing import SimulatedNode, recorded_jobs, recorded_workload


def test_every_recorded_job_runs_on_its_gpu():
    jobs = recorded_jobs()
    assert len(jobs) == len(set(jobs)) == 121
    assert {job.gpu for job in jobs} == {"v100", "a40"}
    for job in jobs:
        node = SimulatedNode(job.gpu)
        elapsed = job.workload.run(node.gpus)
        # Kernels hungrier than the limit are slowed down even at the highest one.
        assert elapsed >= 0.999 * job.epoch_time
        if job.activity <= 1:
            assert elapsed == pytest.approx(job.epoch_time)


def test_one_is_chosen_by_gpu_dataset_batch_size_and_optimizer():
    adadelta = recorded_workload("v100", "cifar100", 1024)
    assert adadelta.name == "cifar100/shufflenetv2/adadelta/1024"
    adam = recorded_workload("V100", "cifar100", 1024, "adam")
    assert adam.name == "cifar100/shufflenetv2/adam/1024"
    assert adam != adadelta
    assert recorded_workload("a40", "squad", 32).name.startswith("squad/bert")


def test_host_and_gpu_share_the_epoch():
    job = next(job for job in recorded_jobs() if job.host_share > 0.2)
    work = job.workload
    assert work.gpu_time + work.host_time == pytest.approx(job.epoch_time)
    assert work.host_time == pytest.approx(job.host_share * job.epoch_time)


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        (("h100", "cifar100", 1024), r"gpu 'h100'.*there are: v100, a40"),
        (("v100", "mnist", 1024), r"dataset 'mnist'.*cifar100.*squad"),
        (("v100", "cifar100", 1000), r"batch_size 1000.*1024"),
        (("v100", "cifar100", 1024, "sgd"), r"optimizer 'sgd'.*adadelta, adam"),
    ],
)
def test_an_unknown_job_lists_what_there_is(arguments, listed):
    with pytest.raises(ValueError, match=listed):
        recorded_workload(*arguments)
