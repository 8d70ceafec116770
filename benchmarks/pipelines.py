"""Plans for training pipelines beside `lowtime`: CPU time, distance to the proven bound, honesty.

Recorded profiles of GPT-3 175B on A100 and BLOOM on A40, eight stages under 1F1B. The peer reduces
the iteration time by one step of 1 or 2 ms at a time, ours is asked for as many plans as it makes.
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Bench, say
from pipelines_variants import HELD_OUT, write_variant
from rows import Answer, Row, row
from tools import OURS, ROOT, Tool, peer

TASK, PEER = "pipelines", "lowtime"
WORKER = Path(__file__).with_name("pipelines_worker.py")
STRAGGLER = 1.2
GAP_OF_VARIANTS = "energy above the proven bound on variants"
# Energy left with a straggler, as published for clusters of these GPUs, of several models.
PUBLISHED = {"A100": (1 - 0.126, 1 - 0.179), "A40": (1 - 0.241, 1 - 0.263)}


@dataclass(frozen=True)
class Recorded:
    """A profile that was recorded.

    Attributes:
        name: Of its files.
        model: What was trained.
        gpu: On which GPUs.
        blocking_power: Watts of one that waits.
    """

    name: str
    model: str
    gpu: str
    blocking_power: float

    def case(self, microbatches: int) -> str:
        """For the report."""
        return f"{self.model} on {self.gpu}, 8 x {microbatches}"

    @property
    def profile(self) -> Path:
        """Its file."""
        return traces() / "stage_profile" / f"{self.name}_bf16.csv"

    def authors(self, microbatches: int) -> Path:
        """What the authors' solver states for it."""
        return traces() / "authors_frontier" / f"{self.name}_mb{microbatches}.csv"


RECORDED = (
    Recorded("gpt3-175b+a100_sxm", "GPT-3 175B", "A100", 83.64),
    Recorded("bloom+a40", "BLOOM", "A40", 70.38),
)

# Ranks, microbatches, stages of a rank, and seconds to reach.
LARGE = (
    (RECORDED[1], 16, 128, 1, 5.0),
    (RECORDED[1], 32, 128, 1, 20.0),
    (RECORDED[0], 8, 64, 4, 5.0),
)

# Microbatches, and mean and worst distance from the bound to reach on profiles of A40.
UNSEEN = ((12, 0.0012, 0.0045), (96, 0.0025, 0.008))


def traces() -> Path:
    """Where the recorded data are."""
    return Path(os.environ.get("ZEUS_TRACES", ROOT.parent / "shared" / "traces")) / "perseus"


def bench_pipelines(bench: Bench) -> Iterator[Row]:
    """Frequency plans for pipelines beside a peer: time to make them, and how good they are."""
    if not traces().is_dir():
        say(f"  left out: no recorded profiles at {traces()}; set ZEUS_TRACES to where they are")
        return
    (own,) = [tool for tool in bench.tools if tool.name == OURS]
    other = peer(PEER) if len(bench.tools) > 1 else None
    if other is not None and other.error:
        say(f"  {PEER} is left out: {other.error}")
        other = None
    yield _compiling()
    small = [(recorded, 12, step) for recorded in RECORDED for step in (0.001, 0.002)]
    large = [(RECORDED[0], 32, 0.001)]
    for recorded, microbatches, step in small if bench.effort.turns == 1 else small + large:
        yield from _side_by_side(own, other, recorded, microbatches, step)
    sizes = (12,) if bench.effort.turns == 1 else (12, 96, 128)
    for recorded in RECORDED:
        for microbatches in sizes:
            yield from _alone(own, recorded, microbatches)
    yield from _unseen(own, sizes=UNSEEN[:1] if bench.effort.turns == 1 else UNSEEN)
    if bench.effort.turns > 1:
        yield from _large(own)
    yield from _against_the_authors(sizes)
    yield from _savings(sizes)
    yield from _straggling((12,) if bench.effort.turns == 1 else (12, 24, 48, 96))


# --- beside the peer ------------------------------------------------------------------------------


def _ask(tool: Tool, recorded: Recorded, microbatches: int, timeout: float, **more: Any) -> Answer:
    options = {
        "profile": str(recorded.profile),
        "blocking_power": recorded.blocking_power,
        "microbatches": microbatches,
        **more,
    }
    command = [str(tool.python), "-W", "ignore", str(WORKER), tool.name, json.dumps(options)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {timeout:g} s"}
    if done.returncode != 0:
        return {"error": done.stderr.strip()[-500:]}
    return json.loads(done.stdout.splitlines()[-1])


def _side_by_side(
    own: Tool, other: Tool | None, recorded: Recorded, microbatches: int, step: float
) -> Iterator[Row]:
    case = f"{recorded.case(microbatches)}, steps of {1e3 * step:g} ms"
    say(f"  {case}")
    theirs: Answer = {}
    if other is not None:
        theirs = _ask(other, recorded, microbatches, 1800, step=step, limit=600)
    wanted = len(theirs.get("plans", ())) or 1000
    ours = _ask(own, recorded, microbatches, 300, plans=wanted)
    answers = {OURS: ours} | ({PEER: theirs} if other is not None else {})
    errors = {label: answer["error"] for label, answer in answers.items() if "error" in answer}
    counts = {label: len(answer.get("plans", ())) for label, answer in answers.items()}
    more: dict[str, Any] = {"plans": counts, "asked_for": wanted}
    if errors:
        more["errors"] = errors
    unfinished = [label for label, answer in answers.items() if answer.get("finished") is False]
    if unfinished:
        more["stopped_before_the_end"] = unfinished
    for measure, key in (("solving", "solving"), ("whole process", "cpu")):
        cpu: dict[str, float | None] = {label: each.get(key) for label, each in answers.items()}
        peer = cpu.get(PEER)
        target = peer / 100 if peer and key == "solving" else None
        name = f"CPU time of the whole frontier, {measure}"
        yield row(TASK, name, case, "s", cpu, target=target, **more)
    if "plans" not in ours:
        return
    bound = _bound(recorded, microbatches)
    gaps = {
        label: [energy / bound(time_) - 1 for time_, energy in _useful(answer["plans"])]
        for label, answer in answers.items()
        if answer.get("plans")
    }
    yield from _gap_rows(case, gaps, more)
    for measure, stated, real in (("time", 0, 2), ("energy", 1, 3)):
        worst = {
            label: max(abs(plan[stated] / plan[real] - 1) for plan in answer["plans"])
            for label, answer in answers.items()
            if answer.get("plans")
        }
        yield row(
            TASK, f"stated {measure} against executing the plan, worst", case, "1", worst,
            target=1e-12, **more,
        )  # fmt: skip


def _gap_rows(case: str, gaps: dict[str, list[float]], more: dict[str, Any]) -> Iterator[Row]:
    for measure, take, target in (("mean", statistics.fmean, 0.0025), ("worst", max, 0.007)):
        values = {label: take(each) for label, each in gaps.items()}
        yield row(
            TASK, f"energy above the proven bound, {measure}", case, "1", values, target=target,
            **more,
        )  # fmt: skip


def _useful(plans: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """What executing takes, of plans that no other beats."""
    kept: list[tuple[float, float]] = []
    for time_, energy in sorted((plan[2], plan[3]) for plan in plans):
        if not kept or energy < kept[-1][1]:
            kept.append((time_, energy))
    return kept


# --- ours -----------------------------------------------------------------------------------------


def _solved(recorded: Recorded, microbatches: int) -> Any:
    from zeus.optimizer.pipeline_frequency import Profile, build, solve

    profile = Profile.read(recorded.profile)
    return solve(build(profile, "1f1b", microbatches, recorded.blocking_power))


def _bound(recorded: Recorded, microbatches: int) -> Any:
    return _solved(recorded, microbatches).lower_bound


def _compiling() -> Row:
    from zeus.optimizer.pipeline_frequency import _build

    with tempfile.TemporaryDirectory() as folder:
        began = os.times()
        _build.build(Path(folder))
        ended = os.times()
    took = sum(ended[:4]) - sum(began[:4])  # CPU time of this process and the compiler
    case = "only where the installation brought none"
    return row(TASK, "compiling the solver at the first call", case, "s", {OURS: took}, target=1.0)


def _alone(own: Tool, recorded: Recorded, microbatches: int) -> Iterator[Row]:
    case = f"{recorded.case(microbatches)}, 500 plans"
    say(f"  {case}")
    answer = _ask(own, recorded, microbatches, 300, plans=500)
    if "error" in answer:
        yield row(
            TASK, "CPU time", case, "s", {OURS: None}, target=10, errors={OURS: answer["error"]}
        )
        return
    count = len(answer["plans"])
    more: dict[str, Any] = {"plans": {OURS: count}, "asked_for": 500}
    yield row(TASK, "CPU time", case, "s", {OURS: answer["cpu"]}, target=10, **more)
    yield row(TASK, "plans short of 500", case, "plans", {OURS: max(500 - count, 0)}, target=0)
    pairs = zip(answer["plans"], answer["bounds"], strict=True)
    yield from _gap_rows(case, {OURS: [plan[3] / bound - 1 for plan, bound in pairs]}, more)


def _unseen(own: Tool, sizes: Sequence[tuple[int, float, float]]) -> Iterator[Row]:
    """Profiles that no constant was chosen with: distance from the bound, of all their plans."""
    with tempfile.TemporaryDirectory() as folder:
        for recorded in RECORDED:
            for microbatches, mean, worst in sizes:
                yield from _held_out(own, recorded, microbatches, (mean, worst), Path(folder))


def _held_out(
    own: Tool, recorded: Recorded, microbatches: int, targets: Sequence[float], folder: Path
) -> Iterator[Row]:
    case = f"{recorded.case(microbatches)}, {len(HELD_OUT)} variants, 500 plans each"
    say(f"  {case}")
    means, worst, seconds, fastest = [], [], [], []
    for seed in HELD_OUT:
        path = folder / f"{recorded.name}-{seed}.csv"
        write_variant(recorded.profile, path, seed)
        answer = _ask(own, recorded, microbatches, 300, plans=500, profile=str(path))
        if "error" in answer:
            error = {OURS: f"seed {seed}: {answer['error']}"}
            yield row(TASK, GAP_OF_VARIANTS, case, "1", {OURS: None}, errors=error)
            return
        pairs = zip(answer["plans"], answer["bounds"], strict=True)
        gaps = [plan[3] / bound - 1 for plan, bound in pairs]
        means.append(statistics.fmean(gaps))
        worst.append(max(gaps))
        fastest.append(gaps[0])
        seconds.append(answer["solving"])
    on_a40 = recorded.gpu == "A40"
    values = (("mean", statistics.fmean(means)), ("worst", max(worst)))
    for (measure, value), target in zip(values, targets, strict=True):
        yield row(
            TASK, f"{GAP_OF_VARIANTS}, {measure}", case, "1", {OURS: value},
            target=target if on_a40 else None, of_the_fastest_plans=statistics.fmean(fastest),
        )  # fmt: skip
    name = "CPU time of a variant, solving, mean"
    yield row(TASK, name, case, "s", {OURS: statistics.fmean(seconds)})


def _large(own: Tool) -> Iterator[Row]:
    """Pipelines larger than any recorded, of its stages in turn, none quite like another."""
    with tempfile.TemporaryDirectory() as folder:
        for recorded, ranks, microbatches, chunks, target in LARGE:
            case = f"{recorded.model} on {recorded.gpu}, {ranks} x {microbatches}"
            if chunks > 1:
                case += f" x {chunks}, interleaved"
            case += ", 500 plans"
            say(f"  {case}")
            path = Path(folder) / f"{recorded.name}-{ranks * chunks}.csv"
            _repeat(recorded.profile, path, ranks * chunks)
            answer = _ask(
                own, recorded, microbatches, 300, plans=500, chunks=chunks, profile=str(path)
            )
            errors: dict[str, Any] = {}
            if "error" in answer:
                errors["errors"] = {OURS: answer["error"]}
            yield row(
                TASK, "CPU time, solving", case, "s", {OURS: answer.get("solving")}, target=target,
                **errors,
            )  # fmt: skip
            if errors:
                continue
            pairs = zip(answer["plans"], answer["bounds"], strict=True)
            gaps = [plan[3] / bound - 1 for plan, bound in pairs]
            for measure, take in (("mean", statistics.fmean), ("worst", max)):
                name = f"energy above the proven bound, {measure}"
                yield row(TASK, name, case, "1", {OURS: take(gaps)})


def _repeat(recorded: Path, path: Path, stages: int) -> None:
    """Write a profile of more stages, each up to 15 % shorter than a recorded one."""
    with recorded.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    count = 1 + max(int(each["stage"]) for each in rows)
    chance = random.Random(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for stage in range(stages):
            part = chance.uniform(0.85, 1)
            for each in rows:
                if int(each["stage"]) == stage % count:
                    scaled = {key: part * float(each[key]) for key in ("time", "energy")}
                    writer.writerow(each | scaled | {"stage": stage})


def _against_the_authors(sizes: Sequence[int]) -> Iterator[Row]:
    from zeus.optimizer.pipeline_frequency._compare import compare, read_frontier

    means = []
    for recorded in RECORDED:
        for microbatches in sizes:
            path = recorded.authors(microbatches)
            if not path.exists():
                continue
            stated = read_frontier(path)
            solution = _solved(recorded, microbatches)
            found = compare(solution.frontier, stated)
            fastest = solution.plans[0].time
            least = [solution.lower_bound(t) / e for t, e in stated if t >= fastest]
            means.append(found.mean)
            yield row(
                TASK,
                "energy against what the authors state, mean",
                recorded.case(microbatches),
                "1",
                {OURS: found.mean},
                worst=max(found.ratios),
                no_plan_can_go_below=statistics.fmean(least),
                times_compared=len(found.ratios),
                times_out_of_reach=found.unreachable,
            )
    mean = math.fsum(means) / len(means)
    yield row(
        TASK, "energy against what the authors state, mean", "all of them", "1", {OURS: mean},
        target=0.995,
    )  # fmt: skip


def _savings(sizes: Sequence[int]) -> Iterator[Row]:
    for recorded in RECORDED:
        for microbatches in sizes:
            if microbatches == 128:
                continue
            case = recorded.case(microbatches)
            solution = _solved(recorded, microbatches)
            plan = solution.plans[0]
            before = plan.pipeline.at_highest_frequency()
            first = recorded is RECORDED[0] and microbatches == 12
            yield row(
                TASK, "energy at the fastest time against the highest clocks", case, "1",
                {OURS: plan.energy / before.energy}, target=1 - 0.157 if first else None,
            )  # fmt: skip
            yield row(
                TASK, "slowdown at the fastest time", case, "1",
                {OURS: plan.time / before.time - 1}, target=0.001,
            )  # fmt: skip


def _straggling(sizes: Sequence[int]) -> Iterator[Row]:
    """A pipeline beside one that takes longer, both with what it takes until that has ended.

    The authors' frontier is asked the same, where there is one: its point of least energy until
    then, and blocking power from there on.
    """
    from zeus.optimizer.pipeline_frequency._compare import read_frontier

    for recorded in RECORDED:
        for microbatches in sizes:
            solution = _solved(recorded, microbatches)
            pipeline = solution.plans[0].pipeline
            before = pipeline.at_highest_frequency()
            late = STRAGGLER * before.time
            reference = before.lasting(late).energy
            plan = solution.frontier.at_time(late).knob
            theirs = None
            path = recorded.authors(microbatches)
            if path.exists():
                waiting = recorded.blocking_power * pipeline.gpus
                stated = [e + waiting * (late - t) for t, e in read_frontier(path) if t <= late]
                theirs = min(stated) / reference
            yield row(
                TASK,
                f"energy with a straggler of {STRAGGLER:g} times, against the highest clocks",
                recorded.case(microbatches),
                "1",
                {OURS: plan.execute().lasting(late).energy / reference},
                target=theirs,
                authors_frontier=theirs,
                published=PUBLISHED[recorded.gpu],
                waiting_only_counted_without_a_plan=plan.energy / reference,
            )


if __name__ == "__main__":
    sys.exit("run `python benchmarks/run.py --only pipelines`")
