"""One process of a job that a launcher has started; `test_torchrun` reads what it writes.

Called as ``rank_worker.py DIRECTORY SCENARIO...``. Scenarios run one after the other in one process
group; what each rank finds is in DIRECTORY/SCENARIO-RANK.json.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.optimizer.support import Loop, limits, monitor, work

from zeus.device import get_gpus
from zeus.errors import CapabilityError, Reason
from zeus.integrations.loop import epochs, steps
from zeus.monitor import ZeusMonitor
from zeus.optimizer import Callback, GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit import Energy, ZeusCost
from zeus.testing import SimulatedNode, Workload

DIRECTORY = Path(sys.argv[1])
JOB = work(0.05, activity=1.0, compute_bound=0.4)
FEW: dict[str, Any] = {"wait_steps": 1, "warmup_steps": 1, "profile_steps": 10, "pl_step": 50}

records: list[logging.LogRecord] = []


class _Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        records.append(record)


def said() -> list[str]:
    return [r.getMessage() for r in records if r.levelno >= logging.WARNING]


def told(optimizer, node=None, **more):
    frontier, report = optimizer.frontier, optimizer.report()
    return {
        "trouble": optimizer.trouble,
        "observing": optimizer.observing,
        "chosen": None if optimizer.selection is None else optimizer.selection.point.knob,
        "frontier": None if frontier is None else frontier.to_dict(),
        "max_power": None if frontier is None else frontier.max_power,
        "profiling": optimizer.profiling_steps,
        "steps": report.steps,
        "energy": None if report.as_run is None else report.as_run.energy,
        "limits": None if node is None else limits(node),
        "warnings": said(),
        "infos": sum(r.levelno == logging.INFO for r in records),
        **more,
    }


def refuse(*_):
    raise CapabilityError(Reason.NO_PERMISSION, "power limit control", "ask an administrator")


# --- In virtual time: each rank has a clock of its own, so all figures are exact ---------------


def virtual(**options):
    """A job on two GPUs, one for each rank, of which the second has the longer steps."""
    rank = dist.get_rank()
    node = SimulatedNode("v100x2")
    for gpu in node.gpus:
        gpu.driver.set_power_limit(187.5)
    optimizer = GlobalPowerLimitOptimizer(monitor(node, [rank]), **{**FEW, **options})
    slower = Workload("slower", JOB.gpu_time, 0.01 * rank, JOB.activity, JOB.compute_bound)
    return node, optimizer, Loop(node, optimizer, slower, gpus=[node.gpus[rank]])


def own_gpu():
    node, optimizer, loop = virtual(optimum_selector=ZeusCost(0.3), pl_step=25)
    loop.epochs(2)
    answer = told(optimizer, node)
    optimizer.close()
    return {**answer, "after": limits(node)}


def all_gpus():
    """Every rank measures the whole node."""
    node = SimulatedNode("v100x2")
    optimizer = GlobalPowerLimitOptimizer(monitor(node, [0, 1]), ZeusCost(0.5), **FEW)
    Loop(node, optimizer, JOB).epochs(2)
    answer = told(optimizer, node)
    optimizer.close()
    return answer


def refused():
    """The second rank may not set limits."""
    node, optimizer, loop = virtual()
    if dist.get_rank() == 1:
        node.gpus[1].driver.set_power_limit = refuse
    loop.epochs(2)
    return told(optimizer, node)


def refused_later():
    """The second rank's GPU does not take the next limit any more."""
    node, optimizer, loop = virtual()
    for step in range(100):
        if dist.get_rank() == 1 and step == 15:
            node.gpus[1].driver.set_power_limit = refuse
        loop.step()
    return told(optimizer)


def saved():
    """Profile once, remember, reuse; each rank says another path."""
    path = DIRECTORY / f"profiles-{dist.get_rank()}.json"
    answers = []
    for _ in range(2):
        node, optimizer, loop = virtual(profile_path=path, job="a", batch_size=4)
        loop.epochs(3)
        answers.append(told(optimizer, node, exists=path.exists()))
        optimizer.close()
    return answers


def one_fails():
    """The second rank's objective raises, that of the first does not."""

    def choose(frontier):
        if dist.get_rank() == 1:
            raise ValueError("my own mistake")
        return frontier.fastest

    node, optimizer, loop = virtual(optimum_selector=choose, rank_timeout=600)
    loop.epochs(3)
    answer = told(optimizer, node)
    optimizer.close()
    return answer


def only_some():
    """The second rank has no optimizer. Last: process groups do not match any more."""
    node, optimizer, loop = virtual(rank_timeout=1.5)
    if dist.get_rank() == 0:
        loop.epochs(2)
    dist.barrier()
    return told(optimizer, node)


def only_first():
    """The second rank has no optimizer at all, and both need each other afterwards."""
    answer = {}
    if dist.get_rank() == 0:
        node, optimizer, loop = virtual(rank_timeout=600, presence_timeout=0.5)
        loop.epochs(2)
        answer = told(optimizer, node)
        optimizer.close()
    total = torch.ones(1)
    dist.all_reduce(total)
    ranks = [None, None]
    dist.all_gather_object(ranks, dist.get_rank(), group=dist.new_group(backend="gloo"))
    return {**answer, "total": total.item(), "ranks": ranks}


def comes_late():
    """The second rank begins long after the first, which knows that it will come."""
    node, optimizer, loop = virtual(presence_timeout=0.5)
    if dist.get_rank() == 1:
        time.sleep(3.0)
    loop.epochs(2)
    answer = told(optimizer, node)
    optimizer.close()
    return answer


def announces_late():
    """The second rank creates its optimizer while the first waits for it."""
    if dist.get_rank() == 1:
        time.sleep(2.0)
    node, optimizer, loop = virtual(presence_timeout=120.0)
    loop.epochs(2)
    answer = told(optimizer, node)
    optimizer.close()
    return answer


def comes_too_late():
    """The second rank creates its optimizer when the first has given up."""
    if dist.get_rank() == 0:
        node, optimizer, loop = virtual(rank_timeout=600, presence_timeout=0.5)
        loop.epochs(2)
    dist.barrier()
    if dist.get_rank() == 1:
        node, optimizer, loop = virtual(rank_timeout=600, presence_timeout=0.5)
        loop.epochs(2)
    answer = told(optimizer, node)
    optimizer.close()
    return answer


def run_on_first():
    """Only the first rank has a run that logs its epochs."""
    logged: list = []
    if dist.get_rank() == 0:
        node = SimulatedNode("v100")
        for _ in epochs(range(2), Callback(), monitor=ZeusMonitor(node=node), log=logged.append):
            for _ in steps(range(2)):
                node.sleep(1.0)
    total = torch.ones(1)
    dist.all_reduce(total)
    return {"logged": logged, "warnings": said(), "total": total.item()}


# --- On the node that all processes share, in real time -----------------------------------------


def shared():
    """Data-parallel training: a rank has one GPU, and waits for the others at every step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    gpus = get_gpus()
    watching = ZeusMonitor()
    optimizer = GlobalPowerLimitOptimizer(
        watching,
        Energy(),
        warmup_steps=1,
        profile_steps=6,
        pl_step=50,
        wait_steps=0,
        raise_limit=True,
    )
    step = Workload("step", 0.008, 0.0, 1.0, 0.4)
    gradient = torch.ones(4)
    seen = []
    for _ in range(3):
        optimizer.on_epoch_begin()
        for _ in range(15):
            optimizer.on_step_begin()
            step.run(gpus[rank])
            dist.all_reduce(gradient)
            optimizer.on_step_end()
            seen.append(gpus[rank].power_limit())
        optimizer.on_epoch_end()
    dist.barrier()
    everywhere = [gpu.power_limit() for gpu in gpus]
    dist.barrier()
    answer = told(optimizer, own=watching.gpu_indices, everywhere=everywhere, seen=seen, size=size)
    optimizer.close()
    return answer


def dies():
    """The second rank is killed while all profile."""
    rank = dist.get_rank()
    gpu = get_gpus()[rank]
    optimizer = GlobalPowerLimitOptimizer(
        ZeusMonitor([rank]), warmup_steps=1, profile_steps=3, pl_step=25, rank_timeout=600
    )
    optimizer.on_epoch_begin()
    for step in range(60):
        optimizer.on_step_begin()
        time.sleep(0.002)
        optimizer.on_step_end()
        if rank == 1 and step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        if optimizer.trouble and "wait" in sys.argv:
            time.sleep(600)  # for the launcher to end this one
    optimizer.on_epoch_end()
    answer = told(optimizer, limit=gpu.power_limit())
    optimizer.close()
    return answer


def main():
    logging.getLogger("zeus").addHandler(_Keep())
    logging.getLogger("zeus").setLevel(logging.INFO)
    if "ZEUS_TEST_STORE" in os.environ:  # started by hand
        dist.init_process_group(
            "gloo",
            init_method=f"file://{os.environ['ZEUS_TEST_STORE']}",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=timedelta(seconds=300),
        )
    else:
        dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank = dist.get_rank()
    for name in sys.argv[2:]:
        if name == "wait":
            continue
        records.clear()
        answer = globals()[name]()
        (DIRECTORY / f"{name}-{rank}.json").write_text(json.dumps(answer))
        if name != "dies":
            dist.barrier()
    if "dies" in sys.argv:
        os._exit(0)  # without the rank that is gone, there is nobody to part from
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
