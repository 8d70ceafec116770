"""Train a tiny model with an engine on two CPU ranks and simulated GPUs, and say what was seen.

Called as `python try_engine.py torchtitan`, in an environment that has the engine. Every schedule
is trained twice: with Zeus until the ranks have followed a plan for some steps, and as many steps
without. The engine, its schedule, messages, optimizer steps, `zeus serve` and the client of each
rank are real; GPUs and time are simulated (`virtual_time.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zeus.testing import serving

HERE = Path(__file__).parent
RANKS = 2
MEASURED = 4  # of the last steps: the first one under a plan may begin at other clocks
# Package and schedules of each engine.
ENGINES = {
    "torchtitan": ("torchtitan", ("1F1B", "Interleaved1F1B")),
    "megatron": ("megatron-core", ("1F1B", "interleaved 1F1B")),
    "deepspeed": ("deepspeed", ("1F1B",)),
}


def train(engine: str, folder: Path, *options: str) -> list[dict[str, Any]]:
    """A training; what each of its ranks found."""
    result, log = folder / "result.json", folder / "log"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = [str(HERE / f"{engine}_rank.py"), "--result", str(result), *options]
    with log.open("w") as output:
        done = subprocess.run(
            [*torchrun, "--nproc-per-node", str(RANKS), *script],
            stdout=output, stderr=subprocess.STDOUT, cwd=folder, check=False,
        )  # fmt: skip
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise SystemExit("\n".join([*lines[-60:], f"{engine} has ended with {done.returncode}"]))
    return json.loads(result.read_text(encoding="utf-8"))


def check(ranks: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the computations of a step; nothing, if all is well."""
    wrong = []
    for rank in ranks:
        seen = [tuple(each) for each in rank["computations"]]
        stages = {stage for _, stage, _ in seen}
        microbatches = {number for _, _, number in seen}
        expected = {
            (name, stage, number)
            for name in ("forward", "backward")
            for stage in stages
            for number in microbatches
        }
        if Counter(seen) != Counter(expected):
            wrong.append(f"rank {rank['rank']} has not computed each microbatch once per stage")
        late = [
            each for each in expected
            if each[0] == "backward" and seen.index(each) < seen.index(("forward", *each[1:]))
        ]  # fmt: skip
        if late:
            wrong.append(f"rank {rank['rank']} has backwards before their forwards: {late}")
        if len(rank["clocks"] or ()) != len(seen):
            wrong.append(f"rank {rank['rank']} has no clock for each computation")
    return wrong


def learns(ranks: list[dict[str, Any]]) -> bool:
    """Whether losses fall by a tenth at least, which they do not if messages are mixed up."""
    return all(rank["losses"][-1] < 0.9 * rank["losses"][0] for rank in ranks if rank["losses"])


def mean(ranks: list[dict[str, Any]]) -> tuple[float, float]:
    """Seconds of the last steps, and joules of all ranks."""
    steps = [rank["steps"][-MEASURED:] for rank in ranks]
    return (
        max(sum(time for time, _ in own) for own in steps) / MEASURED,
        sum(energy for own in steps for _, energy in own) / MEASURED,
    )


def show(ranks: list[dict[str, Any]], without: list[dict[str, Any]]) -> None:
    """Print what was observed of a schedule."""
    several = len({stage for rank in ranks for _, stage, _ in rank["computations"]}) > RANKS
    for rank in ranks:
        cells = [
            f"{name[0].upper()}{number}{f'/{stage}' if several else ''}@{clock:.0f}"
            for (name, stage, number), clock in zip(
                rank["computations"], rank["clocks"], strict=True
            )
        ]
        print(f"  rank {rank['rank']}: {' '.join(cells)}")
    before, after = mean(without), mean(ranks)
    losses = [rank["losses"] for rank in ranks if rank["losses"]]
    print(
        f"  plan after {ranks[0]['steps until planned']} steps; a step takes {after[0]:.3f} s "
        f"({after[0] / before[0] - 1:+.2%}) and {after[1]:.0f} J ({after[1] / before[1] - 1:+.2%})"
    )
    print(f"  losses from {losses[0][0]:.4f} to {losses[0][-1]:.4f}")


def main() -> None:
    """Try all schedules of an engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--schedule", help="only this one of its schedules")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    package, schedules = ENGINES[options.engine]
    if options.schedule:
        if options.schedule not in schedules:
            parser.error(f"--schedule must be one of {', '.join(schedules)}")
        schedules = (options.schedule,)
    print(f"{package} {version(package)}, PyTorch {version('torch')}, {RANKS} ranks on CPUs")
    figures: dict[str, Any] = {}
    failed = False
    for schedule in schedules:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with serving(folder) as server:
                ranks = train(options.engine, folder, "--schedule", schedule, "--server", server)
            steps = str(len(ranks[0]["steps"]))
            without = train(options.engine, folder, "--schedule", schedule, "--steps", steps)
        print(f"{schedule}: name, microbatch{', /stage' if 'nterl' in schedule else ''}, @MHz")
        wrong = check(ranks)
        if [rank["losses"] for rank in ranks] != [rank["losses"] for rank in without]:
            wrong.append("losses differ from those without Zeus")
        if not learns(ranks):
            wrong.append("losses do not fall: are messages mixed up?")
        if not wrong:
            show(ranks, without)
            print("  each computation once, in an order that is possible; losses as without Zeus")
        for line in wrong:
            print(f"  WRONG: {line}")
        failed |= bool(wrong)
        figures[schedule] = {"with": ranks, "without": without}
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
