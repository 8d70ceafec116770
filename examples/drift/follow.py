"""Let policies follow the drift of recorded slices, and draw what they chose.

python follow.py                       # the slices that come with Zeus
python follow.py --traces traces       # those that record.py wrote
python follow.py --plot drift.png      # also as a picture (pip install 'zeus-energy[plot]')
"""

from __future__ import annotations

import argparse
from pathlib import Path

from zeus.replay._drift import WINDOW, follow, recorded_slices


def main() -> None:
    """Follow, then tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=Path, metavar="DIR", help="by default those of Zeus")
    parser.add_argument("--seeds", type=int, default=50, metavar="N", help="jobs of each policy")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a .png or .svg file")
    options = parser.parse_args()

    slices = recorded_slices(options.traces)
    sizes = [table.batch_sizes[table.optimum.arm] for table in slices]
    print(f"{len(slices)} slices; best batch size of each: {' '.join(map(str, sizes))}")
    for policy in ("default", "paper", "zeus"):
        for window in (0, WINDOW):
            found = follow(slices, policy, range(options.seeds), window)
            print(
                f"{policy:8} window {window:2d}: "
                f"regret {found.regret.sum(axis=1).mean():6.1f} runs, "
                f"energy {found.energy.sum(axis=1).mean() / 1e3:6.0f} kJ, "
                f"slices without success {(found.reached == 0).mean():.1%}"
            )
    if options.plot is not None:
        draw(options.plot, slices, options.seeds)


def draw(path: Path, slices: list, seeds: int) -> None:
    """The counterpart of the paper's Figure 10."""
    from zeus.replay.paper._drifting import drift_exhibit  # noqa: PLC0415
    from zeus.replay.paper._style import encoded, styled  # noqa: PLC0415

    with styled():
        exhibit = drift_exhibit(slices, seeds)
        assert exhibit.draw is not None
        png, svg = encoded(exhibit.draw(exhibit.data))
    path.write_bytes(svg if path.suffix == ".svg" else png)


if __name__ == "__main__":
    main()
