"""One rank of a pipeline of two, for `test_pipelining.py`: runs schedules and writes what was told.

Called as `python pipelining_rank.py RANK RENDEZVOUS_FILE RESULT_FILE`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

from zeus.integrations.pipelining import attach

RANKS, WIDTH, BATCH = 2, 4, 8
SCHEDULES = {
    "gpipe": (pipelining.ScheduleGPipe, 1),
    "1f1b": (pipelining.Schedule1F1B, 1),
    "interleaved": (pipelining.ScheduleInterleaved1F1B, 2),
    "zero-bubble": (pipelining.ScheduleInterleavedZeroBubble, 1),
    "zbv": (pipelining.ScheduleZBVZeroBubble, 2),
    "dualpipev": (pipelining.ScheduleDualPipeV, 2),
}
IN_A_V = ("zbv", "dualpipev")


class Recorder:
    """Writes down what it is told; knows whether a computation goes on."""

    def __init__(self):
        self.story = []
        self.stages = {}
        self.computing = False

    def on_step_begin(self):
        self.story.append("step")

    def on_step_end(self):
        self.story.append("end")

    def on_instruction_begin(self, name, **where):
        self.computing = True
        self.story.append([name, where["chunk"], where["microbatch"]])
        self.stages[where["chunk"]] = where.get("stage")

    def on_instruction_end(self, name):
        self.computing = False
        self.story[-1].append(name)

    def close(self):
        self.story.append("close")


def stages_of(indices, count):
    built = []
    for index in indices:
        torch.manual_seed(index)
        module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
        built.append(pipelining.PipelineStage(module, index, count, torch.device("cpu")))
    return built


def run(rank, name, recorder):
    """Two steps of training with an evaluation in between; returns losses and gradients."""
    kind, chunks = SCHEDULES[name]
    count = RANKS * chunks
    own = [rank, count - 1 - rank] if name in IN_A_V else range(rank, count, RANKS)
    stages = stages_of(own, count)
    # One stage, or a list of them even if it is one: what the class asks for.
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    schedule = kind(
        stages[0] if single else stages,
        n_microbatches=4,
        loss_fn=torch.nn.functional.mse_loss,
    )
    if recorder is not None:
        attach(schedule, recorder)
    numbers = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, BATCH, WIDTH, generator=numbers)
    first, last = (any(getattr(s, end) for s in stages) for end in ("is_first", "is_last"))
    losses = []
    # PyTorch 2.13 cannot evaluate what is in a V: it asks for gradients that there are not.
    evaluate = [] if name in IN_A_V else [schedule.eval]
    for work in (schedule.step, *evaluate, schedule.step):
        of_step: list = []
        told = {"target": y, "losses": of_step} if last else {}
        work(*((x,) if first else ()), **told)
        losses += [loss.item() for loss in of_step]
    gradients = [p.grad.flatten().tolist() for s in stages for p in s.submod.parameters()]
    return losses, gradients, order_of(schedule, rank)


def order_of(schedule, rank):
    """What the schedule says that a rank computes: instruction, stage, microbatch."""
    table = schedule.pipeline_order or {rank: []}
    parts = [part for each in table[rank] if each for part in each.sub_actions or (each,)]
    return [[part.computation_type.name, part.stage_index, part.microbatch_index] for part in parts]


def main():
    rank, rendezvous, result = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    recorder = Recorder()
    waits, waited = [], schedules._wait_batch_p2p

    def wait(work):
        if work:
            waits.append(recorder.computing)
        waited(work)

    schedules._wait_batch_p2p = wait
    told = {}
    for name in SCHEDULES:
        recorder.story, recorder.stages = [], {}
        waits.clear()
        without, with_zeus = run(rank, name, None), run(rank, name, recorder)
        told[name] = {
            "story": recorder.story,
            "stages": [recorder.stages[chunk] for chunk in sorted(recorder.stages)],
            "order": with_zeus[2],
            "same": without == with_zeus,
            "losses": with_zeus[0],
            "waits": len(waits),
            "waits while computing": sum(waits),
        }
    result.write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
