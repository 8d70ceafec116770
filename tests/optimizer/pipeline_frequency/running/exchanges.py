"""A 1F1B engine whose messages block both sides, as those that synchronize around each message."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.optimizer.pipeline_frequency.running.rig import Training

from zeus.optimizer.pipeline_frequency._schedules import Step
from zeus.testing._pipeline_training import _Running

Item = Step | int  # a computation, or an exchange on this link


class BlockingTraining(Training):
    """Training in which a message begins when both ranks have arrived, and both wait for its end.

    A rank sends a result when it has computed it, and receives when it needs one; if both are with
    the same neighbor, in opposite directions at the same time, they are one exchange.
    """

    def _run(self, clocks: list[list[int]]) -> None:
        for pipeline in range(self.pipelines):
            self._run_pipeline(pipeline, clocks)

    def _run_pipeline(self, pipeline: int, clocks: list[list[int]]) -> None:
        clock = self.node.clock
        programs = [
            list(merged_program(rank, self.devices, len(self.order[0]) // 2))
            for rank in range(self.devices)
        ]
        place = [0] * self.devices
        running: dict[tuple[int, int], _Running] = {}
        exchanging: dict[int, float] = {}  # when a rank's exchange ends

        def busy(rank: int) -> bool:
            return (pipeline, rank) in running or rank in exchanging

        while True:
            for rank, program in enumerate(programs):
                if busy(rank) or place[rank] == len(program):
                    continue
                item = program[place[rank]]
                if isinstance(item, Step):
                    running[pipeline, rank] = self._begin(pipeline, rank, item, clocks)
                    continue
                other = item + 1 if rank == item else item
                ready = not busy(other) and place[other] < len(programs[other])
                if ready and programs[other][place[other]] == item:
                    exchanging[rank] = exchanging[other] = clock.now() + self.links[item]
            if not running and not exchanging:
                break
            for (_, rank), _ in self._advance(running, min(exchanging.values(), default=math.inf)):
                place[rank] += 1
            for rank in [rank for rank, at in exchanging.items() if at <= clock.now()]:
                del exchanging[rank]
                place[rank] += 1
        assert place == list(map(len, programs)), "the exchanges cannot be followed"


def merged_program(rank: int, stages: int, microbatches: int) -> Iterator[Item]:
    """Yield what a rank does in an iteration, step by step of the merged 1F1B schedule."""
    previous = -1
    for step in range(2 * (microbatches + stages - 1)):
        forward = step % 2 == rank % 2
        if forward:
            microbatch = step // 2 - rank // 2
        elif step % 2 == 0:
            microbatch = step // 2 - stages + (rank + 1) // 2
        else:
            microbatch = (step - 1) // 2 - stages + 1 + rank // 2
        link = rank - 1 if forward else rank
        valid = [0 <= each < microbatches for each in (previous, microbatch)]
        if 0 <= link < stages - 1 and any(valid):
            yield link
        if valid[1]:
            yield Step("forward" if forward else "backward", rank, microbatch)
        previous = microbatch
    if 0 <= previous < microbatches and rank > 0:
        yield rank - 1  # the last gradient
