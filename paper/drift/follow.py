"""Let policies follow the drift of recorded slices, and draw what they chose.

python -m paper.drift.follow                     # the slices of this folder
python -m paper.drift.follow --traces traces     # those that record.py wrote
python -m paper.drift.follow --plot drift.png    # also as a picture
"""

from __future__ import annotations

import argparse
from pathlib import Path

from paper.drift.slices import TRACES, WINDOW, follow, recorded_slices
from paper.figures.drifting import drift_exhibit
from paper.product import JobTable
from paper.style import encoded, styled


def main() -> None:
    """Print regret and energy of each policy, then draw the choices."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=50, metavar="N", help="jobs of each policy")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a .png or .svg file")
    options = parser.parse_args()

    slices = recorded_slices(options.traces)
    sizes = [table.batch_sizes[table.optimum.arm] for table in slices]
    print(f"{len(slices)} slices; best batch size of each: {' '.join(map(str, sizes))}")
    for policy in ("default", "paper", "paper-repaired", "zeus"):
        for window in (0, WINDOW):
            found = follow(slices, policy, range(options.seeds), window)
            print(
                f"{policy:14} window {window:2d}: "
                f"regret {found.regret.sum(axis=1).mean():6.1f} runs, "
                f"energy {found.energy.sum(axis=1).mean() / 1e3:6.0f} kJ, "
                f"slices without success {(found.reached == 0).mean():.1%}"
            )
    if options.plot is not None:
        draw(options.plot, slices, options.seeds)


def draw(path: Path, slices: list[JobTable], seeds: int) -> None:
    """Draw the counterpart of the paper's Figure 10."""
    with styled():
        exhibit = drift_exhibit(slices, seeds)
        assert exhibit.draw is not None
        png, svg = encoded(exhibit.draw(exhibit.data))
    path.write_bytes(svg if path.suffix == ".svg" else png)


if __name__ == "__main__":
    main()
