"""The command of this folder: `python -m paper`, or `make paper`."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from paper.figures import CATALOGUE
from paper.produce import produce
from paper.product import TraceError, load_traces

_ROOT = Path(__file__).resolve().parents[1]
_TRACES = Path(os.environ.get("ZEUS_TRACES", _ROOT.parent / "shared" / "traces")) / "nsdi23"


def main(arguments: Sequence[str] | None = None) -> None:
    """Recompute the figures and tables, then print where they are."""
    parser = argparse.ArgumentParser(
        "paper", description="Recompute the figures and tables of the Zeus paper from its traces."
    )
    parser.add_argument("--traces", type=Path, default=_TRACES, metavar="DIR", help=f"({_TRACES})")
    parser.add_argument(
        "--output", type=Path, default=Path("paper-results"), metavar="DIR", help="(paper-results)"
    )
    parser.add_argument("--only", metavar="NAME,NAME", help=f"of {', '.join(CATALOGUE)}")
    parser.add_argument("--gpu", metavar="NAME", help="GPU of single-GPU figures (v100)")
    parser.add_argument(
        "--seeds", type=int, default=50, metavar="N", help="jobs per policy and workload (50)"
    )
    chosen = parser.parse_args(arguments)
    only = chosen.only.split(",") if chosen.only else list(CATALOGUE)
    unknown = [name for name in only if name not in CATALOGUE]
    if unknown:
        parser.error(f"unknown {', '.join(unknown)}; available: {', '.join(CATALOGUE)}")
    if chosen.seeds < 1:
        parser.error(f"`--seeds` must be at least 1, but got {chosen.seeds}")
    try:
        traces = load_traces(chosen.traces)
    except TraceError as error:
        parser.error(str(error))
    if chosen.gpu not in (None, *traces.power):
        parser.error(f"no power trace of {chosen.gpu}; available: {', '.join(traces.power)}")
    page = chosen.output / "index.html"
    print(f"{page} fills while {len(only)} figures and tables are computed", flush=True)
    exhibits = produce(
        traces, chosen.output, only=only, seeds=chosen.seeds, gpu=chosen.gpu, progress=_show
    )
    facts = [fact for exhibit in exhibits for fact in exhibit.facts if fact.published]
    counts = Counter(fact.agrees for fact in facts)
    print(f"{len(exhibits)} figures and tables: {page}")
    print(
        f"{len(facts)} published statements: {counts[True]} agree, {counts[False]} differ, "
        f"{counts[None]} cannot be compared directly"
    )


def _show(share: float, what: str) -> None:
    """Show progress in the last line of a terminal; erase it at the end."""
    if sys.stderr.isatty():
        text = f"{share:4.0%} {what}" if share < 1 else ""
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
