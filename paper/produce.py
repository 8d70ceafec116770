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
from paper.product import Traces
from paper.style import encoded, styled


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
    shows all of them. The same traces and seeds give the same bytes.

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
    done = 0

    def tell(what: str) -> None:
        if progress is not None:
            progress(done / len(names), what)

    exhibits: list[Exhibit] = []
    pictures: dict[str, bytes] = {}
    with styled():
        lab = Lab(traces, seeds, gpu, tell)
        output.mkdir(parents=True, exist_ok=True)
        for done, name in enumerate(names):  # noqa: B007  (used in `tell`)
            tell(name)
            exhibit = CATALOGUE[name](lab)
            exhibits.append(exhibit)
            if exhibit.missing:
                continue
            text = json.dumps(_rounded(exhibit.data), indent=1, allow_nan=False)
            (output / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
            if exhibit.draw is not None:
                # From the contents of the file, so that the file is enough to draw the figure.
                png, svg = encoded(exhibit.draw(json.loads(text)))
                (output / f"{name}.png").write_bytes(png)
                (output / f"{name}.svg").write_bytes(svg)
                pictures[name] = svg
        html = page(exhibits, pictures, lab)
        (output / "index.html").write_text(html, encoding="utf-8")
    if progress is not None:
        progress(1.0, "")
    return exhibits


def _rounded(value: Any) -> Any:
    """Round numbers to six digits: further digits are noise, and differ between machines."""
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value
