"""Train with Zeus and without, and compare energy, time and losses.

Called as `python compare.py`, with options of `train.py` behind it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from zeus.testing import serving

HERE = Path(__file__).parent


def train(folder: Path, *options: str) -> list[dict[str, Any]]:
    """A training; what each of its ranks found."""
    result = folder / "result.json"
    command = [sys.executable, str(HERE / "train.py"), "--result", str(result), *options]
    subprocess.run(command, check=True)
    return json.loads(result.read_text(encoding="utf-8"))


def summary(ranks: list[dict[str, Any]], phase: str) -> dict[str, float]:
    """Of an iteration: seconds; joules of all pipelines, and of those that wait for a straggler."""
    slow = max(rank["pipeline"] for rank in ranks)
    energies = [(rank["pipeline"], rank["phases"][phase]["energy"]) for rank in ranks]
    found = {
        "time": max(rank["phases"][phase]["time"] for rank in ranks),
        "energy": sum(energy for _, energy in energies),
    }
    if phase == "straggler":
        found["of who waits"] = sum(energy for number, energy in energies if number < slow)
    return found


def main() -> None:
    """Train twice and print both."""
    parser = argparse.ArgumentParser(epilog="all else is for train.py")
    parser.add_argument("--pipelines", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options, others = parser.parse_known_args()
    others += ["--pipelines", str(options.pipelines)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder) as server:
            zeus = train(folder, "--server", server, *others)
        settle = ",".join(map(str, zeus[0]["settle"]))
        default = train(folder, "--settle", settle, *others)

    phases = {
        phase: {"without": summary(default, phase), "with": summary(zeus, phase)}
        for phase in zeus[0]["phases"]
    }
    losses = [
        [step for rank in ranks for step in enumerate(rank["losses"])] for ranks in (default, zeus)
    ]
    differing = sum(a != b for a, b in zip(*losses, strict=True))
    steps = len(losses[0]) // options.pipelines
    print(f"{steps} steps, {zeus[0]['settle'][0]} of them until there was a plan; losses from "
          f"{losses[1][0][1]:.3f} to {losses[1][-1][1]:.3f}, {differing or 'none'} of which "
          "differ from those without Zeus\n")  # fmt: skip
    print(f"{'an iteration':24}{'without Zeus':>14}{'with Zeus':>14}{'change':>10}")
    for phase, both in phases.items():
        print(phase)
        for what, before in both["without"].items():
            after = both["with"][what]
            digits, unit = (3, "s") if what == "time" else (0, "J")
            columns = f"{before:12.{digits}f} {unit}{after:12.{digits}f} {unit}"
            change = round(after / before - 1, 4) + 0  # without a sign of its own if there is none
            print(f"  {what:22}{columns}{change:+10.2%}")
    if options.json is not None:
        result = {
            "steps": steps,
            "steps until planned": zeus[0]["settle"][0],
            "steps until settled": zeus[0]["settle"][1:],
            "losses that differ": differing,
            "phases": phases,
        }
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
