"""Figures 12, 13 and 22: early-stopping threshold, components, and the weight of energy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paper import style
from paper.ablation import WithoutJitProfiling, WithoutPruning
from paper.exhibit import Data, Exhibit, Fact, percent
from paper.lab import Lab, geometric_mean
from paper.product import colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BETAS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
_ETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MEAN = "Geometric mean"
_VARIANTS: Mapping[str, dict[str, Any]] = {
    "Without early stopping": {"beta": None},
    "Without pruning": {"variant": WithoutPruning()},
    "Without JIT profiling": {"variant": WithoutJitProfiling()},
}


def figure_12(lab: Lab) -> Exhibit:
    """Cumulative energy by early-stopping threshold beta."""
    gpus: Data = {}
    for gpu in lab.gpus:
        reference = lab.runs("paper", gpu=gpu, beta=2.0)
        sweep: dict[str, list[float]] = {each.title: [] for each in lab.workloads(gpu)}
        for beta in _BETAS:
            runs = lab.runs("paper", gpu=gpu, beta=beta)
            for workload in lab.workloads(gpu):
                name = workload.name
                ratio = runs[name].energy.sum() / reference[name].energy.sum()
                sweep[workload.title].append(float(ratio))
        gpus[gpu] = {
            "workloads": sweep,
            "mean": [geometric_mean(column) for column in zip(*sweep.values(), strict=True)],
        }
    best = {gpu: _BETAS[int(np.argmin(found["mean"]))] for gpu, found in gpus.items()}
    facts = [
        Fact(
            "best stopping threshold",
            "section 6.7, Figure 12",
            "beta = 2.0 achieves the lowest geometric mean across all jobs",
            "; ".join(
                f"{gpu.upper()}: {beta:g} (1.5: {percent(gpus[gpu]['mean'][0] - 1)}, 5: "
                f"{percent(gpus[gpu]['mean'][-1] - 1)} against 2)"
                for gpu, beta in best.items()
            ),
            ""
            if set(best.values()) == {2.0}
            else "Where another is best, the difference to 2 is "
            + ", ".join(
                f"{percent(min(found['mean']) - 1, 2)} ({gpu.upper()})"
                for gpu, found in gpus.items()
                if best[gpu] != 2.0
            )
            + "; the paper's sweep was on V100.",
            agrees=best[lab.gpu] == 2.0,
        )
    ]
    return Exhibit(
        name="figure-12",
        title="Figure 12",
        subject="Energy by the early-stopping threshold beta",
        caption=(
            "Energy of all recurrences of Zeus as published, against beta = 2; "
            f"{lab.seeds} jobs of each workload."
        ),
        data={"betas": list(_BETAS), "gpus": gpus},
        draw=_draw_12,
        facts=facts,
    )


def figure_13(lab: Lab) -> Exhibit:
    """Energy and time without each component."""
    gpus: Data = {}
    for gpu in lab.gpus:
        full = lab.runs("paper", gpu=gpu)
        found: Data = {}
        for label, options in _VARIANTS.items():
            runs = lab.runs("paper", gpu=gpu, **options)
            found[label] = {
                what: {
                    workload.title: float(
                        getattr(runs[workload.name], what).sum()
                        / getattr(full[workload.name], what).sum()
                    )
                    for workload in lab.workloads(gpu)
                }
                for what in ("energy", "time")
            }
        gpus[gpu] = found
    means = {
        gpu: {label: geometric_mean(list(each["time"].values())) for label, each in found.items()}
        for gpu, found in gpus.items()
    }
    said = "; ".join(
        f"{gpu.upper()}: "
        + ", ".join(f"{k[0].lower()}{k[1:]} {percent(v - 1)}" for k, v in each.items())
        for gpu, each in means.items()
    )
    worst = max(gpus[lab.gpu]["Without early stopping"]["time"].items(), key=lambda each: each[1])
    return Exhibit(
        name="figure-13",
        title="Figure 13",
        subject="Zeus with one component removed",
        caption=(
            "Energy and time of all recurrences against the complete Zeus as published. The scale "
            "is logarithmic."
        ),
        data={"gpus": gpus},
        draw=_draw_13,
        facts=(
            Fact(
                "the component that matters most",
                "section 6.7, Figure 13",
                "Zeus benefits mostly from early stopping",
                f"slowdown, geometric mean. {said}",
                f"The paper states no numbers. Ours depend on {worst[0]} ({worst[1]:.1f}× the time "
                "without early stopping), whose smallest batch sizes never reach the target. That "
                "a run of a batch size that is not pruned counts at least the threshold at which "
                "it was stopped is our interpretation.",
                agrees=max(means[lab.gpu], key=means[lab.gpu].__getitem__)
                == "Without early stopping",
            ),
        ),
    )


def figure_22(lab: Lab) -> Exhibit:
    """Energy and time by eta."""
    gpus: Data = {}
    for gpu in lab.gpus:
        found: Data = {"energy": {}, "time": {}}
        for workload in lab.workloads(gpu):
            for what, ratio in (("energy", "energy_ratio"), ("time", "time_ratio")):
                found[what][workload.title] = [
                    1
                    / float(
                        getattr(lab.runs("paper", gpu=gpu, eta=eta)[workload.name], ratio).mean()
                    )
                    for eta in _ETAS
                ]
        gpus[gpu] = found
    said, holds = [], True
    for gpu, found in gpus.items():
        ends = {
            what: [geometric_mean([curve[at] for curve in found[what].values()]) for at in (0, -1)]
            for what in ("energy", "time")
        }
        holds &= ends["energy"][1] > ends["energy"][0] and ends["time"][1] < ends["time"][0]
        said.append(
            f"{gpu.upper()}: energy {ends['energy'][0]:.2f} at 0 to {ends['energy'][1]:.2f} at 1, "
            f"time {ends['time'][0]:.2f} to {ends['time'][1]:.2f}"
        )
    return Exhibit(
        name="figure-22",
        title="Figure 22",
        subject="Effect of eta, the weight of energy",
        caption=(
            "Improvement factors of the last five recurrences of Zeus as published: energy or time "
            "of the default over that of Zeus. Eta 0 weighs only time, 1 only energy."
        ),
        data={"etas": list(_ETAS), "gpus": gpus},
        draw=_draw_22,
        facts=(
            Fact(
                "more weight of energy saves more of it",
                "appendix F, Figure 22",
                "with higher eta, higher improvement factor of energy, and vice versa",
                "geometric mean of improvement factors. " + "; ".join(said),
                "The paper states no numbers.",
                agrees=holds,
            ),
        ),
    )


# --- drawing --------------------------------------------------------------------------------------


def _curves(axes: Axes, places: list[float], curves: dict[str, list[float]]) -> None:
    for number, (title, values) in enumerate(curves.items()):
        axes.plot(
            places, values, color=style.WORKLOADS[number % 6], marker=style.MARKERS[number % 6],
            markersize=5, linewidth=1.2, label=title,
        )  # fmt: skip
    mean = [geometric_mean(column) for column in zip(*curves.values(), strict=True)]
    axes.plot(places, mean, color=style.INK, linewidth=3, label=_MEAN)


def _draw_12(data: Data) -> Figure:
    gpus = data["gpus"]
    figure, axes = style.panel_for_each(gpus, columns=2, row_height=3.8, sharey=True)
    for panel, (gpu, found) in zip(axes, gpus.items(), strict=True):
        _curves(panel, data["betas"], found["workloads"])
        panel.axvline(2, color=style.MUTED, linestyle=":", linewidth=1.2)
        panel.set_title(gpu.upper())
        panel.set_xlabel("Early-stopping threshold beta")
        panel.yaxis.set_major_formatter(lambda value, _: percent(value - 1, 0))
    for panel in axes[::2]:
        panel.set_ylabel("Energy against beta = 2")
    style.legend_below(figure, axes[0])
    return figure


def _draw_13(data: Data) -> Figure:
    gpus = data["gpus"]
    figure, axes = style.panels(len(gpus), 2, width=11, height=0.6 + 3.3 * len(gpus))
    looks = ((colors.BLUE, ""), (colors.AMBER, "///"), (colors.GREEN, "\\\\\\"))
    for row, (gpu, found) in enumerate(gpus.items()):
        for column, what in enumerate(("energy", "time")):
            panel = axes[2 * row + column]
            for number, (label, each) in enumerate(found.items()):
                values = [*each[what].values(), geometric_mean(list(each[what].values()))]
                places = np.arange(len(values)) + (number - 1) * 0.27
                color, hatch = looks[number]
                panel.bar(
                    places, np.array(values) - 0.9, 0.25, bottom=0.9, label=label, color=color,
                    hatch=hatch,
                )  # fmt: skip
                panel.text(
                    places[-1], max(values[-1], 1.0) * 1.05, f"{values[-1]:.2f}", ha="center",
                    fontsize=8, rotation=90, va="bottom",
                )  # fmt: skip
            names = [*next(iter(found.values()))[what], _MEAN]
            panel.set_yscale("log")
            panel.set_ylim(0.9, 1.15 * max(max(each[what].values()) for each in found.values()))
            style.plain_log(panel.yaxis)
            panel.set_xticks(range(len(names)), [style.narrow(name) for name in names])
            panel.tick_params(axis="x", labelsize=8)
            panel.grid(visible=False, axis="x")
            panel.axhline(1, color=style.INK, linestyle="--", linewidth=1)
            panel.set_title(f"{what.capitalize()}, {gpu.upper()}")
            panel.set_ylabel("Relative to complete Zeus")
    style.legend_below(figure, axes[0])
    return figure


def _draw_22(data: Data) -> Figure:
    gpus = data["gpus"]
    figure, axes = style.panels(len(gpus), 2, width=11, height=1 + 3.3 * len(gpus))
    for row, (gpu, found) in enumerate(gpus.items()):
        for column, what in enumerate(("energy", "time")):
            panel = axes[2 * row + column]
            _curves(panel, data["etas"], found[what])
            panel.axhline(1, color=style.INK, linestyle="--", linewidth=1)
            panel.set_title(f"{what.capitalize()}, {gpu.upper()}")
            panel.set_xlabel("Eta")
            panel.set_ylabel("Improvement over the default (×)")
            panel.set_ylim(bottom=0)
    style.legend_below(figure, axes[0])
    return figure
