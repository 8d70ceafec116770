"""Figures 5, 17 and 18: energy by batch size, and by power limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact
from paper.lab import Lab
from paper.product import JobTable, colors, energy_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORKLOAD = "deepspeech2"


def figure_5(lab: Lab) -> Exhibit:
    """Energy of each batch size of DeepSpeech2."""
    workload = next(
        (each for each in lab.workloads() if each.name == _WORKLOAD), lab.workloads()[0]
    )
    data: Data = {
        "gpu": lab.gpu,
        "workloads": {workload.title: _batch_sizes(lab.table(workload.name))},
    }
    return Exhibit(
        name="figure-5",
        title="Figure 5",
        subject="Energy of each batch size",
        caption=(
            f"{workload.title} on {lab.gpu.upper()} at the highest power limit: mean of the "
            "recorded runs, and their range."
        ),
        data=data,
        draw=_draw_batch_sizes,
        facts=(_valley(data["workloads"], "section 4.4, Figure 5"),),
    )


def figure_17(lab: Lab) -> Exhibit:
    """Energy of each batch size of every workload."""
    data: Data = {
        "gpu": lab.gpu,
        "workloads": {
            workload.title: _batch_sizes(lab.table(workload.name)) for workload in lab.workloads()
        },
    }
    return Exhibit(
        name="figure-17",
        title="Figure 17",
        subject="Energy of each batch size, all workloads",
        caption=(
            f"On {lab.gpu.upper()} at the highest power limit: mean of the recorded runs that "
            "reached the target, and their range. A cross marks batch sizes of which no run did."
        ),
        data=data,
        draw=_draw_batch_sizes,
        facts=(_valley(data["workloads"], "appendix C, Figure 17"),),
    )


def figure_18(lab: Lab) -> Exhibit:
    """Energy at each power limit."""
    found: Data = {}
    inner = []
    for workload in lab.workloads():
        table = lab.table(workload.name)
        curves = {}
        for kind, arm in (
            ("default", table.default),
            ("best", int((table.expected_epochs * np.nanmin(table.energy, axis=1)).argmin())),
        ):
            energy = table.expected_epochs[arm] * table.energy[arm]
            curves[kind] = {
                "batch_size": table.batch_sizes[arm],
                "energy": [None if np.isnan(each) else float(each) for each in energy],
            }
        found[workload.title] = {"power_limits": list(table.power_limits), **curves}
        if np.nanargmin(table.energy[table.default]) not in (0, len(table.power_limits) - 1):
            inner.append(workload.title)
    return Exhibit(
        name="figure-18",
        title="Figure 18",
        subject="Energy at each power limit",
        caption=(
            f"On {lab.gpu.upper()}, for the default batch size and for the one with the lowest "
            "energy; both are in brackets. Axes do not start at zero."
        ),
        data={"gpu": lab.gpu, "workloads": found},
        draw=_draw_power_limits,
        facts=(
            Fact(
                "the best power limit is below the maximum",
                "section 2.2, Figure 18",
                "the optimal energy consumption may happen at a lower power limit than the maximum",
                f"at the default batch size the minimum is strictly between the lowest and "
                f"the highest limit for {len(inner)} of {len(found)} workloads"
                + (f": {', '.join(inner)}" if inner else ""),
                "For the others the lowest limit takes the least energy, or the job draws so "
                "little power that no limit matters.",
            ),
        ),
    )


def _batch_sizes(table: JobTable) -> Data:
    highest = int(np.flatnonzero(np.isfinite(table.time[table.default]))[-1])
    rows: list[dict[str, Any]] = []
    for arm, size in enumerate(table.batch_sizes):
        runs = table.epochs[arm]
        reached = runs[np.isfinite(runs) & (runs <= table.max_epochs)]
        # Some power limits may not have been recorded for this batch size.
        known = np.flatnonzero(np.isfinite(table.energy[arm]))
        energy = reached * table.energy[arm, known[known <= highest][-1]]
        missing = not len(reached)
        rows.append(
            {
                "batch_size": size,
                "default": arm == table.default,
                "mean": None if missing else float(energy.mean()),
                "least": None if missing else float(energy.min()),
                "most": None if missing else float(energy.max()),
            }
        )
    return {"batch_sizes": rows, "power_limit": table.power_limits[highest]}


def _valley(workloads: Data, where: str) -> Fact:
    """Check that curves fall up to the best batch size and rise after it."""
    worst: tuple[float, str] = (0.0, "")
    for title, found in workloads.items():
        means = np.array([row["mean"] for row in found["batch_sizes"] if row["mean"] is not None])
        best = int(means.argmin())
        for side in (means[best:], means[best::-1]):
            dip = float((1 - side / np.maximum.accumulate(side)).max())
            if dip > worst[0]:
                worst = (dip, title)
    dip, title = worst
    return Fact(
        "energy by batch size has one minimum",
        where,
        "convexity of all BS-ETA curves"
        if len(workloads) > 1
        else "convexity around the optimal batch size",
        "falls up to the best batch size and rises after it, everywhere"
        if dip == 0
        else f"yes, except for a dip of {100 * dip:.1f} % ({title})",
        "Batch sizes that miss the target are left out."
        if dip == 0
        else "Means of a few runs with whole numbers of epochs are not smoother than that. "
        "Batch sizes that miss the target are left out.",
        agrees=dip < 0.1 or None,
    )


def _draw_batch_sizes(data: Data) -> Figure:
    workloads = data["workloads"]
    figure, axes = style.panel_for_each(workloads)
    for panel, (title, found) in zip(axes, workloads.items(), strict=True):
        _batch_size_panel(panel, found["batch_sizes"])
        panel.set_title(title)
    # The panel with the most legend entries.
    rich = max(axes, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
    style.legend_below(figure, rich)
    return figure


def _batch_size_panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    known = [(place, row) for place, row in enumerate(rows) if row["mean"] is not None]
    least = min(row["mean"] for _, row in known)
    shown = energy_unit(max(row["most"] for _, row in known if row["mean"] < 20 * least))
    unit = shown.size
    places = [place for place, _ in known]
    axes.fill_between(
        places, [row["least"] / unit for _, row in known], [row["most"] / unit for _, row in known],
        color=colors.SKY, alpha=0.45, linewidth=0, label="Range of the runs",
    )  # fmt: skip
    axes.plot(
        places, [row["mean"] / unit for _, row in known], color=colors.BLUE, marker="o",
        markersize=4.5, label="Mean",
    )  # fmt: skip
    for place, row in known:
        if row["default"]:
            axes.plot(
                place, row["mean"] / unit, "^", color=colors.ORANGE, markersize=9,
                label="Default",
            )  # fmt: skip
    top = max(row["most"] for _, row in known) / unit
    bottom = min(row["least"] for _, row in known) / unit
    if top > 8 * bottom:
        axes.set_yscale("log")
        style.plain_log(axes.yaxis, float(np.log10(top / bottom)))
        missed = bottom / 1.6
    else:
        axes.set_ylim(0, top * 1.08)
        missed = top * 0.04
    never = [place for place, row in enumerate(rows) if row["mean"] is None]
    if never:
        axes.plot(
            never, [missed] * len(never), "x", color=style.INK, markersize=7, linestyle="none",
            label="Misses the target",
        )  # fmt: skip
    style.batch_size_axis(axes, [row["batch_size"] for row in rows], "x")
    axes.set_ylabel(f"Energy to target ({shown.name})")


def _draw_power_limits(data: Data) -> Figure:
    workloads = data["workloads"]
    figure, axes = style.panel_for_each(workloads)
    looks = {
        "default": ("Default batch size", colors.ORANGE, "^", "--"),
        "best": ("Batch size with the lowest energy", colors.BLUE, "o", "-"),
    }
    for panel, (title, found) in zip(axes, workloads.items(), strict=True):
        values = [each for kind in looks for each in found[kind]["energy"] if each is not None]
        unit = energy_unit(max(values))
        sizes = []
        for kind, (label, color, marker, line) in looks.items():
            curve = found[kind]
            sizes.append(f"{curve['batch_size']}")
            panel.plot(
                found["power_limits"],
                [np.nan if each is None else each / unit.size for each in curve["energy"]],
                color=color, marker=marker, markersize=5, linestyle=line, label=label,
            )  # fmt: skip
        panel.set_title(f"{title} ({' and '.join(dict.fromkeys(sizes))})")
        panel.set_xlabel("Power limit (W)")
        panel.set_ylabel(f"Energy to target ({unit.name})")
    style.legend_below(figure, axes[0])
    return figure
