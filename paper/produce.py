"""Writes all exhibits into a folder: pictures, their data, and the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paper.exhibit import Exhibit
from paper.figures import CATALOGUE
from paper.lab import Lab
from paper.page import page
from paper.product import Traces, write_atomically
from paper.style import encoded, styled

# Exhibits that need all replays of the others: computed last, wherever they are on the page.
_LATE = ("headline",)


def produce(
    traces: Traces,
    output: Path,
    *,
    only: Sequence[str] | None = None,
    seeds: int = 50,
    gpu: str | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> list[Exhibit]:
    """Recompute the paper and write the results into a folder.

    For each figure it writes a PNG, an SVG and the data as JSON, for a table the data; `index.html`
    shows all of them. It is written again after each, so that it can be read meanwhile. The same
    traces and seeds give the same bytes.

    Args:
        traces: From `load_traces`.
        output: Output folder; created if missing.
        only: Names from the catalogue; by default all.
        seeds: Number of jobs to replay per workload and policy.
        gpu: GPU model of figures that show one.
        progress: Called with the fraction that is done and a description of the current work.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    names = list(CATALOGUE) if only is None else [name for name in CATALOGUE if name in only]
    exhibits: dict[str, Exhibit] = {}
    pictures: dict[str, bytes] = {}

    def report(what: str) -> None:
        if progress is not None:
            progress(len(exhibits) / len(names), what)

    with styled():
        lab = Lab(traces, seeds, gpu, report)
        output.mkdir(parents=True, exist_ok=True)

        def write_page(current: str | None = None) -> None:
            html = page(names, exhibits, pictures, lab, current=current)
            # Whole, because a browser may load it at any time.
            write_atomically(output / "index.html", html, mode=0o644)

        try:
            for name in sorted(names, key=_LATE.__contains__):
                report(name)
                write_page(name)
                exhibit = CATALOGUE[name](lab)
                picture = _write(exhibit, output)
                if picture is not None:
                    pictures[name] = picture
                exhibits[name] = exhibit
        finally:
            write_page()
    report("")
    return [exhibits[name] for name in names]


def _write(exhibit: Exhibit, output: Path) -> bytes | None:
    """Write the files of an exhibit, and return its picture as SVG, if it has one."""
    if exhibit.missing:
        return None
    text = json.dumps(_rounded(exhibit.data), indent=1, allow_nan=False)
    (output / f"{exhibit.name}.json").write_text(f"{text}\n", encoding="utf-8")
    if exhibit.draw is None:
        return None
    # From the contents of the file, so that the file is enough to draw the figure.
    png, svg = encoded(exhibit.draw(json.loads(text)))
    (output / f"{exhibit.name}.png").write_bytes(png)
    (output / f"{exhibit.name}.svg").write_bytes(svg)
    return svg


def _rounded(value: Any) -> Any:
    """Round numbers to six digits: further digits are noise, and differ between machines."""
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value
