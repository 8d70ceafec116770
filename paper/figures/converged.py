"""Figures 6, 14 and 23: energy and time after convergence, against the default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact, Listing, percent
from paper.lab import Lab, Runs, geometric_mean
from paper.readings import PUBLISHED, Reading, ends_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POLICIES = ("grid", "paper", "zeus")
_LOW, _HIGH = 5, 95  # percentiles over seeds that whiskers show
_JOBS = (1, 2, 4, 10)  # that a bar of the paper's figure may be the mean of


def figure_6(lab: Lab) -> Exhibit:
    """Energy and time of the last five recurrences."""
    data: Data = {"gpus": {lab.gpu: _data(lab, lab.gpu)}, "seeds": lab.seeds}
    readings = _readings(lab) if lab.is_papers_gpu else {}
    data["readings"] = {name: vars(each) for name, each in readings.items()}
    return Exhibit(
        name="figure-6",
        title="Figure 6",
        subject="Energy and time that each policy converges to",
        caption=(
            f"Mean of the last five recurrences against the default, {lab.gpu.upper()}, "
            f"{lab.seeds} jobs each; whiskers span 90 % of the jobs."
            + (
                " The table shows the ends among all workloads by what a bar of the paper's figure "
                "may be: 90 % of what chance gives. A default that is drawn is a mean of as many "
                "recorded runs as Zeus's; an expected one is the mean of all."
                if readings
                else ""
            )
        ),
        data=data,
        draw=_draw,
        listing=_listing(readings) if readings else None,
        facts=_facts(lab, data["gpus"][lab.gpu], readings) if readings else (),
    )


def figure_23(lab: Lab) -> Exhibit:
    """Energy and time of the last five recurrences, on every GPU."""
    gpus = {gpu: _data(lab, gpu) for gpu in lab.gpus}
    said = []
    for gpu, workloads in gpus.items():
        energy = [each["paper"]["energy"] - 1 for each in workloads.values()]
        time = [each["paper"]["time"] - 1 for each in workloads.values()]
        said.append(
            f"{gpu.upper()}: energy {percent(max(energy))} to {percent(min(energy))}, time "
            f"{percent(max(time))} to {percent(min(time))}"
        )
    return Exhibit(
        name="figure-23",
        title="Figure 23",
        subject="Energy and time on every GPU",
        caption="As Figure 6, on every GPU whose power trace is in the folder.",
        data={"gpus": gpus, "seeds": lab.seeds},
        draw=_draw,
        facts=(
            Fact(
                "savings on all GPUs",
                "appendix G, Figure 23",
                "the overall trends hold for all GPUs",
                "; ".join(said),
                "The paper states no numbers by GPU. Only GPUs with a power trace can be shown.",
                agrees=all(
                    each["paper"]["energy"] < 1
                    for found in gpus.values()
                    for each in found.values()
                ),
            ),
        ),
    )


def figure_14(lab: Lab) -> Exhibit:
    """Geometric mean over workloads, by GPU."""
    gpus: Data = {}
    for gpu in lab.gpus:
        gpus[gpu] = {
            policy: {
                what: geometric_mean([each[policy][what] for each in _data(lab, gpu).values()])
                for what in ("energy", "time")
            }
            for policy in _POLICIES
        }
    said = ", ".join(
        f"{gpu.upper()} {percent(each['paper']['energy'] - 1)}" for gpu, each in gpus.items()
    )
    return Exhibit(
        name="figure-14",
        title="Figure 14",
        subject="Energy against the default, by GPU",
        caption="Geometric mean over all workloads of the last five recurrences.",
        data={"gpus": gpus},
        draw=_draw_14,
        facts=(
            Fact(
                "consistent reductions across GPUs",
                "section 6.7, Figure 14",
                "Zeus achieves consistent ETA reductions across four generations of GPUs",
                said,
                "The paper states no numbers. Only GPUs with a power trace can be shown.",
                agrees=all(each["paper"]["energy"] < 1 for each in gpus.values()),
            ),
        ),
    )


def _data(lab: Lab, gpu: str) -> Data:
    runs = {policy: lab.runs(policy, gpu=gpu) for policy in _POLICIES}
    return {
        workload.title: {policy: _ratios(runs[policy][workload.name]) for policy in _POLICIES}
        for workload in lab.workloads(gpu)
    }


def _ratios(runs: Runs) -> Data:
    found: Data = {}
    for what, ratio in (("energy", runs.energy_ratio), ("time", runs.time_ratio)):
        found[what] = float(ratio.mean())
        found[f"{what}_low"], found[f"{what}_high"] = np.percentile(ratio, [_LOW, _HIGH]).tolist()
    return found


def _readings(lab: Lab) -> dict[str, Reading]:
    """Return the ends that chance gives, by what a bar of the figure may be."""
    runs = list(lab.runs("paper").values())
    found = {}
    for jobs in _JOBS:
        bar = "one job" if jobs == 1 else f"a mean of {jobs} jobs"
        found[f"{bar} against a drawn default"] = ends_of(runs, jobs, drawn_default=True)
        found[f"{bar} against an expected default"] = ends_of(runs, jobs, drawn_default=False)
    return found


def _listing(readings: dict[str, Reading]) -> Listing:
    rows: list[Sequence[str]] = [("Published", *(percent(end) for end in PUBLISHED), "")]
    for name, each in readings.items():
        cells = [
            f"{percent(low)} to {percent(high)}"
            for low, high in zip(each.low, each.high, strict=True)
        ]
        rows.append((name, *cells, "yes" if each.likely else "no"))
    head = (
        "If a bar is", "Energy, least saved", "Energy, most saved", "Time, most", "Time, least",
        "Explains it",
    )  # fmt: skip
    return Listing(head, rows)


def _facts(lab: Lab, workloads: Data, readings: dict[str, Reading]) -> list[Fact]:
    facts = []
    likely = [name for name, each in readings.items() if each.likely]
    reason = f"Ours are means over {lab.seeds} jobs; the paper does not state its number. " + (
        f"Chance explains all four published ends if a bar is {' or '.join(likely)}; under the "
        "other readings of the table it does not. The ends of few jobs are far apart, because "
        "they are those of the luckiest and the unluckiest of six workloads."
        if likely
        else "No reading in the table explains all four published ends by chance."
    )
    for what, where, published, ends in (
        ("energy", "abstract; section 6.2, Figure 6a", "−15.3 % to −75.8 %", PUBLISHED[:2]),
        ("time", "section 6.2, Figure 6b", "+12.8 % at most, −60.1 % at best", PUBLISHED[2:]),
    ):
        ranked = sorted(workloads, key=lambda name: float(workloads[name]["paper"][what]))
        best, worst = ranked[0], ranked[-1]
        close = all(
            abs(float(workloads[name]["paper"][what]) - 1 - end) < 0.02
            for name, end in ((worst, ends[0]), (best, ends[1]))
        )
        note = reason + (
            " The introduction says 60.6 % where section 6.2 says 60.1 %." if what == "time" else ""
        )
        facts.append(
            Fact(
                f"{what} against the default, all workloads",
                where,
                published,
                f"{percent(workloads[worst]['paper'][what] - 1)} ({worst}) to "
                f"{percent(workloads[best]['paper'][what] - 1)} ({best})",
                note,
                agrees=close,
            )
        )
    grid = [abs(each["grid"]["energy"] - each["paper"]["energy"]) for each in workloads.values()]
    facts.append(
        Fact(
            "Grid search converges to about the same",
            "section 6.2",
            "Zeus and Grid Search perform close to each other",
            f"energy differs by {100 * float(np.median(grid)):.1f} % of the default's in the "
            f"median, {100 * max(grid):.1f} % at most",
            "Grid search uses the configuration that was luckiest in a single run of each.",
        )
    )
    facts.append(
        Fact(
            "our own policy",
            "not in the paper",
            "",
            f"energy {percent(max(e['zeus']['energy'] for e in workloads.values()) - 1)} to "
            f"{percent(min(e['zeus']['energy'] for e in workloads.values()) - 1)}",
            "It converges to the same configurations, but at a lower regret (Figures 7, 19).",
            agrees=None,
        )
    )
    return facts


def _draw(data: Data) -> Figure:
    gpus = data["gpus"]
    figure, axes = style.panels(len(gpus), 2, width=11, height=0.6 + 3.2 * len(gpus), sharex=False)
    for row, (gpu, workloads) in enumerate(gpus.items()):
        for column, (what, label) in enumerate((("energy", "Energy"), ("time", "Time"))):
            panel = axes[2 * row + column]
            _bars(panel, workloads, what)
            panel.set_title(f"{label}, {gpu.upper()}")
            panel.set_ylabel(f"{label} against the default")
    style.legend_below(figure, axes[0])
    return figure


def _bars(axes: Axes, workloads: Data, what: str) -> None:
    places = np.arange(len(workloads))
    top = 1.0
    for number, policy in enumerate(_POLICIES):
        name, color, _, hatch = style.POLICIES[policy]
        values = np.array([each[policy][what] for each in workloads.values()])
        low = np.array([each[policy][f"{what}_low"] for each in workloads.values()])
        high = np.array([each[policy][f"{what}_high"] for each in workloads.values()])
        axes.bar(
            places + (number - 1) * 0.27, values, 0.25, label=name, color=color, hatch=hatch,
            yerr=(np.maximum(values - low, 0), np.maximum(high - values, 0)),
            error_kw={"elinewidth": 1.1, "ecolor": style.INK},
        )  # fmt: skip
        top = max(top, float(high.max()))
    axes.axhline(1, color=style.INK, linestyle="--", linewidth=1, label="Default")
    axes.set_xticks(places, [style.narrow(name) for name in workloads])
    axes.tick_params(axis="x", labelsize=8.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, top * 1.06)
    style.percent_axis(axes.yaxis)


def _draw_14(data: Data) -> Figure:
    gpus = data["gpus"]
    figure, (axes,) = style.panels(width=3.2 + 1.5 * len(gpus), height=4)
    places = np.arange(len(gpus))
    for number, policy in enumerate(_POLICIES):
        name, color, _, hatch = style.POLICIES[policy]
        values = [each[policy]["energy"] for each in gpus.values()]
        bars = axes.bar(
            places + (number - 1) * 0.27, values, 0.25, label=name, color=color, hatch=hatch
        )
        axes.bar_label(bars, [f"{100 * value:.0f} %" for value in values], fontsize=8.5, padding=2)
    axes.axhline(1, color=style.INK, linestyle="--", linewidth=1, label="Default")
    axes.set_xticks(places, [gpu.upper() for gpu in gpus])
    axes.set_xlim(-0.6, len(gpus) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 1.09)
    axes.set_ylabel("Energy against the default")
    style.percent_axis(axes.yaxis)
    style.legend_below(figure, axes, 2)
    return figure
