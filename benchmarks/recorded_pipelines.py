"""Recorded pipelines: what models predict of other schedules, and what our plans would save.

    python benchmarks/recorded_pipelines.py [--figures DIR] [RECORDING ...]

prints JSON, with all values in percent but link times (ms). A recording is an archive or a folder,
by default those of `../shared/traces/pipelines` or of `pipelines` in `ZEUS_TRACES`. With
`--figures`, a picture of each as SVG: those of `docs/recorded-pipelines.md` are in `docs/figures`.
Takes about three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zeus.drawing._files import rendered
from zeus.replay.pipelines import read_recording
from zeus.replay.pipelines._figure import draw
from zeus.replay.pipelines._power_limits import read_power_limits
from zeus.replay.pipelines._study import SLOWER, Study, study

TRACES = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))


def percent(values: Sequence[float], *names: str) -> dict[str, float]:
    """Median, least and most, as far as named, in percent."""
    every = {"median": np.median(values), "least": min(values), "most": max(values)}
    return {name: round(100 * float(every[name]), 3) for name in names}


def numbers(found: Study) -> dict[str, Any]:
    """Everything that is measured on one recording."""
    fast = [each for each in found.comparisons if each.clocks]
    return {
        "schedules": len(found.recording.planned),
        **{
            each.split.name: {
                "time": percent(list(abs(each.time)), "median", "most"),
                "energy": percent(list(abs(each.energy)), "median", "most"),
            }
            for each in found.errors
        },
        "links, ms": [round(1e3 * float(link), 1) for link in found.model.engine.links],
        "no plan is as fast": len(found.comparisons) - len(fast),
        "our plans save": percent([each.saved for each in fast], "median", "least", "most"),
        "any plan saves at most": percent([each.possible for each in fast], "median"),
        "by a model of the other half": {
            "saved": percent([saved for _, saved in found.checked], "median", "least"),
            "longer": percent([longer for longer, _ in found.checked], "median", "most"),
        },
        "saved if slower by at most": {
            approach: {
                f"{slower} %": None if saved is None else round(100 * saved, 1)
                for slower in SLOWER
                for saved in [found.saved(approach, slower)]
            }
            for approach in found.points
        },
    }


def main() -> None:
    """Measure the given recordings, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=Path, metavar="DIR", help="folder for SVG pictures")
    parser.add_argument("recordings", nargs="*", type=Path, metavar="RECORDING")
    arguments = parser.parse_args()
    paths = arguments.recordings or sorted((TRACES / "pipelines").glob("*.tar.xz"))
    if not paths:
        sys.exit(f"no recordings at {TRACES / 'pipelines'}; set ZEUS_TRACES to where they are")
    printed: dict[str, Any] = {}
    saved: list[float] = []
    for path in paths:
        recording = read_recording(path)
        found = study(recording, read_power_limits(path.resolve().parent, recording))
        printed[recording.name] = numbers(found)
        saved += [each.saved for each in found.comparisons if each.clocks]
        if arguments.figures:
            picture = arguments.figures / f"{recording.name}.svg"
            picture.write_bytes(rendered(partial(draw, found), ".svg"))
    printed["all schedules: our plans save"] = percent(saved, "median", "least", "most")
    print(json.dumps(printed, indent=2))


if __name__ == "__main__":
    main()
