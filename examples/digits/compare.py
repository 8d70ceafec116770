"""Compare what `zeus run --json` has written about two ways of running the same job.

Called as `python compare.py zeus.json default.json`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LAST = 10  # recurrences, when there is nothing left to explore


def recurrences(path: str) -> list[dict[str, Any]]:
    """What each recurrence took, with trials that were stopped on the way."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))["recurrences"]
    return [
        {
            "batch_size": each["batch_size"],
            **{k: sum(trial[k] for trial in each["trials"]) for k in ("time", "energy", "cost")},
        }
        for each in found
    ]


def main() -> None:
    """Print both, the first against the second."""
    zeus, default = (recurrences(path) for path in sys.argv[1:3])
    for title, ours, theirs in (
        (f"last {LAST}", zeus[-LAST:], default[-LAST:]),
        (f"all {len(zeus)}", zeus, default),
    ):
        print(f"{title} recurrences (with exploration)" if ours is zeus else f"{title} recurrences")
        for name, unit in (("energy", "J"), ("time", "s"), ("cost", "J")):
            mine, other = (sum(each[name] for each in part) / len(part) for part in (ours, theirs))
            change = mine / other - 1
            print(f"  {name:6} {mine:8.0f} {unit} against {other:8.0f} {unit}: {change:+.1%}")
    sizes = Counter(each["batch_size"] for each in zeus[-LAST:])
    print("batch sizes of the last:", ", ".join(f"{n} x {size}" for size, n in sizes.items()))


if __name__ == "__main__":
    main()
