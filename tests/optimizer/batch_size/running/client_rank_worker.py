"""One process of a job that `zeus run` and `torchrun` have started; `test_client_ranks` reads it.

Called as ``client_rank_worker.py DIRECTORY``; what a rank finds is in DIRECTORY/RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from tests.optimizer.batch_size.clients import job, step

from zeus.errors import JobConflictError
from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer
from zeus.testing import SimulatedNode

RANK = int(os.environ["RANK"])


def train(node: SimulatedNode, optimizer: BatchSizeOptimizer) -> dict:
    """Three epochs are enough for the first process; the second one has an opinion of its own."""
    size = optimizer.get_batch_size()
    optimizer.on_train_begin()
    spent = -node.exact_energy(RANK)
    while not optimizer.training_finished:
        optimizer.on_epoch_begin()
        for _ in range(20):
            optimizer.on_step_begin()
            step(size + 8 * RANK).run(node.gpus[RANK])
            optimizer.on_step_end()
        optimizer.on_epoch_end()
        done = len(optimizer.history) + 1
        optimizer.on_evaluate((0.95 if done >= 3 else 0.1) if RANK == 0 else 0.99)
    spent += node.exact_energy(RANK)
    optimizer.close()
    selection = getattr(optimizer.power_limit, "selection", None)
    return {
        "batch_size": size,
        "share": [optimizer.local_batch_size, optimizer.accumulation_steps, optimizer.replicas],
        "trial": optimizer.decision.trial,
        "outcome": str(optimizer.outcome),
        "epochs": len(optimizer.history),
        "energy": sum(record.total.energy for record in optimizer.history),
        "time": sum(record.total.time for record in optimizer.history),
        "own": spent,
        "limit": selection and selection.point.knob,
        "after": node.gpus[RANK].power_limit(),
    }


def measure(node: SimulatedNode, optimizer: BatchSizeOptimizer) -> dict:
    """The second process runs out of memory sooner, and has more to do."""
    calls: Counter[int] = Counter()

    def run(size: int) -> None:
        calls[size] += 1
        if RANK == 1 and size > 10:
            raise MemoryError
        step(size + 8 * RANK).run(node.gpus[RANK])

    return {"costs": optimizer.measure_batch_sizes(run, 960), "calls": calls}


def own_job(node: SimulatedNode, kind: str = "own", **changes: object) -> BatchSizeOptimizer:
    monitor = ZeusMonitor([RANK], [], node=node, sync_execution_with=None)
    name = f"{os.environ['ZEUS_JOB']}-{kind}"
    return BatchSizeOptimizer(monitor, job=job(name, **changes), timeout=30.0)


def main() -> None:
    node = SimulatedNode("v100x2")
    found: dict[str, object] = {}
    monitor = ZeusMonitor([RANK], [], node=node, sync_execution_with=None)
    handed = BatchSizeOptimizer(monitor, max_local_batch_size=10)
    handed.get_batch_size()  # before anybody can talk: it is in the environment
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    found["handed sizes"] = measure(node, handed)
    found["handed"] = train(node, handed)
    dist.barrier()
    found["own"] = train(node, own_job(node))
    with own_job(node, "measured") as measured:
        found["own sizes"] = measure(node, measured)
    try:
        own_job(node, beta=5.0).get_batch_size()
    except JobConflictError as error:
        found["conflict"] = str(error)
    (Path(sys.argv[1]) / f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
