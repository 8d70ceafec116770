"""What is tried with a training, and measured of it.

Training goes through phases: all pipelines are healthy; the last one becomes slower; it is healthy
again. In each, steps go on until all ranks have settled, which is when they follow the plan that
belongs to it, and then some are measured.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from zeus.monitor import ZeusMonitor

if TYPE_CHECKING:
    from train import Rank

PHASES = ("healthy", "straggler", "healthy again")
PATIENCE = 150  # steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the experiment."""
    parser.add_argument("--steps", type=int, default=5, help="that are measured in each phase")
    parser.add_argument("--settle", help="steps before those in each phase, such as 40,2,2")
    parser.add_argument("--slowdown", type=float, default=1.2, help="of the straggler")


def run(rank: Rank, options: argparse.Namespace) -> dict[str, Any]:
    """Go through the phases; what this rank found."""
    monitor = ZeusMonitor([rank.rank])
    given = [int(steps) for steps in options.settle.split(",")] if options.settle else None
    found: dict[str, Any] = {"pipeline": rank.pipeline, "settle": [], "phases": {}}
    for number, phase in enumerate(PHASES if options.pipelines > 1 else PHASES[:1]):
        before = _version(rank)
        if rank.pipeline == options.pipelines - 1:
            before = -1  # the straggler itself keeps the plan that it has
            _enter(rank, phase, options.slowdown)
        done = 0
        while done < given[number] if given else not _settled(rank, before):
            if done == PATIENCE:
                raise SystemExit(f"rank {rank.rank} has not settled in {done} steps: "
                                 f"{rank.optimizer and rank.optimizer.standing}")  # fmt: skip
            rank.step()
            done += 1
        found["settle"].append(done)
        monitor.begin_window(phase)
        for _ in range(options.steps):
            rank.step()
        window = monitor.end_window(phase)
        found["phases"][phase] = {
            "time": window.time / options.steps,
            "energy": window.total_energy / options.steps,
        }
    found["losses"] = rank.losses
    return found


def _enter(rank: Rank, phase: str, slowdown: float) -> None:
    """The pipeline of this rank becomes slower, or is healthy again."""
    rank.simulated.slowdown = slowdown if phase == "straggler" else 1.0
    # Whoever runs the cluster knows, and tells; here it is the first rank.
    if rank.optimizer is not None and rank.place == 0:
        if phase == "straggler":
            rank.optimizer.report_straggler(slowdown=slowdown)
        elif phase == "healthy again":
            rank.optimizer.report_straggler(healthy=True)


def _version(rank: Rank) -> int:
    standing = None if rank.optimizer is None else rank.optimizer.standing
    return -1 if standing is None else standing.version


def _settled(rank: Rank, before: int) -> bool:
    """Whether all ranks follow a plan, and one that came after `before`."""
    if rank.optimizer is None:
        return True
    follows = rank.optimizer.state == "following" and _version(rank) > before
    all_follow = torch.tensor([int(follows)])
    dist.all_reduce(all_follow, dist.ReduceOp.MIN)
    return bool(all_follow.item())
