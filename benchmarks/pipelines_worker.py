"""Plans a pipeline with one tool, and prints what it found as one line of JSON.

Runs under the tool's own interpreter. `cpu` is the CPU time of the whole process up to the last
plan, interpreter and imports included, `solving` without those; what is only for the report
(executing the plans) is left out of both.

    python pipelines_worker.py TOOL {"profile": ..., "blocking_power": ..., "microbatches": ...}

Of `ours`, `plans` says how many to aim at, and `chunks` how many stages a rank has (by default 1).
Of `lowtime`, `step` is its unit of time in seconds, and `limit` the CPU
seconds after which it is stopped.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import defaultdict

Row = tuple[float, float, int]  # seconds, joules, MHz


def read(path: str) -> dict[tuple[int, str], list[Row]]:
    rows = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:  # noqa: PTH123
        for row in csv.DictReader(file):
            key = int(row["stage"]), row["instruction"]
            rows[key].append((float(row["time"]), float(row["energy"]), int(row["frequency"])))
    return dict(rows)


def order(stages: int, stage: int, microbatches: int) -> list[tuple[str, int]]:
    """1F1B of one stage."""
    ahead = min(stages - 1 - stage, microbatches)
    steps = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        if number + ahead < microbatches:
            steps.append(("forward", number + ahead))
        steps.append(("backward", number))
    return steps


def ours(options: dict) -> dict:
    from zeus.optimizer.pipeline_frequency import Profile, build, solve

    imported = time.process_time()
    profile = Profile.read(options["profile"])
    chunks = options.get("chunks", 1)
    pipeline = build(
        profile,
        "1f1b" if chunks == 1 else "interleaved",
        options["microbatches"],
        options["blocking_power"],
        chunks=chunks,
    )
    solution = solve(pipeline, options["plans"])
    cpu = time.process_time()
    plans = []
    for plan in solution.plans:
        execution = plan.execute()
        plans.append((plan.time, plan.energy, execution.time, execution.energy))
    return {
        "cpu": cpu,
        "solving": cpu - imported,
        "finished": True,
        "plans": plans,
        "bounds": [plan.lower_bound for plan in solution.plans],
    }


def lowtime(options: dict) -> dict:
    import networkx as nx
    from lowtime.cost_model import ExponentialModel
    from lowtime.graph_utils import add_sink_node, add_source_node
    from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
    from lowtime.perseus.instruction import Backward, Forward
    from lowtime.solver import PhillipsDessouky

    imported = time.process_time()
    rows, power, step = read(options["profile"]), options["blocking_power"], options["step"]
    stages = 1 + max(stage for stage, _ in rows)
    kinds = {"forward": Forward, "backward": Backward}
    specs = {}
    for key, measured in rows.items():
        choices = CandidateExecutionOptions(
            [
                ExecutionOption(seconds, step, joules - power * seconds, clock)
                for seconds, joules, clock in measured
            ]
        )
        specs[key] = OperationSpec(choices, ExponentialModel(choices, search_strategy="best"))
    graph = nx.DiGraph()
    operations: list[tuple] = []
    numbers: dict[tuple, int] = {}
    for stage in range(stages):
        last = None
        for instruction, microbatch in order(stages, stage, options["microbatches"]):
            number = len(operations)
            operation = kinds[instruction](
                spec=specs[stage, instruction], stage_id=stage, micro_batch_id=microbatch
            )
            operations.append((stage, instruction, operation))
            numbers[stage, instruction, microbatch] = number
            graph.add_node(number, op=operation)
            if last is not None:
                graph.add_edge(last, number)
            last = number
    for (stage, instruction, microbatch), number in numbers.items():
        if instruction == "forward" and stage > 0:
            graph.add_edge(numbers[stage - 1, instruction, microbatch], number)
        if instruction == "backward" and stage < stages - 1:
            graph.add_edge(numbers[stage + 1, instruction, microbatch], number)
    before = [list(graph.predecessors(number)) for number in range(len(operations))]
    sequence = list(nx.topological_sort(graph))
    source, sink = len(operations), len(operations) + 1
    add_source_node(graph, source)
    add_sink_node(graph, sink)
    graph.graph["source_node"], graph.graph["sink_node"] = source, sink
    taken = {key: {row[2]: row for row in measured} for key, measured in rows.items()}

    plans, aside, finished = [], 0.0, True
    for result in PhillipsDessouky(graph).run():
        began = time.process_time()
        ends: dict[int, float] = {}
        energy, busy = 0.0, 0.0
        for number in sequence:
            stage, instruction, operation = operations[number]
            seconds, joules, _ = taken[stage, instruction][operation.assigned_knob]
            ends[number] = max((ends[other] for other in before[number]), default=0.0) + seconds
            energy += joules
            busy += seconds
        total = max(ends.values())
        stated = result.cost + power * stages * result.real_time
        plans.append((result.real_time, stated, total, energy + power * (stages * total - busy)))
        aside += time.process_time() - began
        if time.process_time() - aside > options["limit"]:
            finished = False
            break
    cpu = time.process_time() - aside
    return {"cpu": cpu, "solving": cpu - imported, "finished": finished, "plans": plans}


if __name__ == "__main__":
    print(json.dumps({"ours": ours, "lowtime": lowtime}[sys.argv[1]](json.loads(sys.argv[2]))))
