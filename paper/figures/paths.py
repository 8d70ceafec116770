"""Figures 4, 8, 20 and 21: the configurations that a job tries, by recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact
from paper.lab import Lab
from paper.product import colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORKLOAD = "deepspeech2"
_SEED = 0  # seed of the job that is shown
_STAGES = ("First round of pruning", "Second round of pruning", "Thompson sampling")
_WORST = 4.0  # times the minimum cost; everything above has the same color


def figure_4(lab: Lab) -> Exhibit:
    """Batch sizes chosen for a recurring job."""
    name = _shown(lab)
    table = lab.table(name)
    trials = lab.trials(name, "paper", _SEED)
    # Long enough to see it converge.
    last = next((t.recurrence for t in trials if t.stage is not None and t.stage >= 2), 0) + 40
    data: Data = {
        "gpu": lab.gpu,
        "workload": name,
        "batch_sizes": list(table.batch_sizes),
        "default": table.default,
        "optimum": table.optimum.arm,
        "trials": [
            {
                "recurrence": trial.recurrence + 1,
                "arm": trial.arm,
                "stage": min(trial.stage or 0, 2),
                "converged": trial.converged,
            }
            for trial in trials
            if trial.recurrence < last
        ],
    }
    pruning = [trial for trial in data["trials"] if trial["stage"] < 2 and trial["converged"]]
    counts = np.bincount([trial["arm"] for trial in pruning], minlength=len(table.batch_sizes))
    return Exhibit(
        name="figure-4",
        title="Figure 4",
        subject="Batch sizes chosen for a recurring job",
        caption=(
            f"{_title(lab, name)} on {lab.gpu.upper()}, Zeus as published, one job (seed {_SEED}). "
            "A cross is a run that was stopped before it reached the target; the recurrence "
            "continues with another batch size."
        ),
        data=data,
        draw=_draw_4,
        facts=(
            Fact(
                "trials of each batch size while pruning",
                "section 4.4, Figure 4",
                "Zeus explores each batch size 2 times in order to observe the cost variance",
                f"{int((counts == 2).sum())} batch sizes twice, {int((counts == 1).sum())} once, "
                f"{int((counts == 0).sum())} never with success",
                "A batch size that is stopped once is pruned, and those beyond it are not tried.",
            ),
        ),
    )


def figure_8(lab: Lab) -> Exhibit:
    """Search paths of DeepSpeech2."""
    name = _shown(lab)
    data: Data = {"gpu": lab.gpu, "panels": []}
    for policy in ("paper", "grid", "zeus"):
        data["panels"].append(
            {"title": style.POLICIES[policy][0], **_path(lab, name, policy, _SEED)}
        )
    optimum = lab.table(name).optimum
    said, share = [], {}
    for policy in ("paper", "grid", "zeus"):
        runs = lab.runs(policy)[name]
        there = (runs.arm[:, -1] == optimum.arm) & (runs.power[:, -1] == optimum.power)
        cost = [
            runs.table.expected_epochs[int(a)] * runs.table.epoch_cost[int(a), int(p)]
            for a, p in zip(runs.arm[:, -1], runs.power[:, -1], strict=True)
        ]
        share[policy] = float(there.mean())
        beyond = float(np.mean(cost)) / optimum.cost - 1
        said.append(
            f"{style.POLICIES[policy][0]} {100 * share[policy]:.0f} % "
            f"({100 * beyond:.1f} % above the minimum expected cost)"
        )
    return Exhibit(
        name="figure-8",
        title="Figure 8",
        subject=f"Search paths, {_title(lab, name)}",
        caption=_caption(lab),
        data=data,
        draw=_draw_paths,
        facts=(
            Fact(
                "grid search may miss the optimum",
                "section 6.2, Figure 8",
                "Grid Search may not even converge to optimal configuration",
                f"jobs that end at the optimum: {', '.join(said)}",
                "Grid search runs each configuration once and keeps the luckiest.",
                agrees=share["grid"] < 1,
            ),
        ),
    )


def figure_20(lab: Lab) -> Exhibit:
    """Search paths of Zeus for all workloads."""
    return _all_workloads(lab, ("paper", "zeus"), "figure-20", "Figure 20", "Search paths of Zeus")


def figure_21(lab: Lab) -> Exhibit:
    """Search paths of grid search for all workloads."""
    return _all_workloads(lab, ("grid",), "figure-21", "Figure 21", "Search paths of grid search")


def _all_workloads(
    lab: Lab, policies: Sequence[str], name: str, title: str, subject: str
) -> Exhibit:
    data: Data = {"gpu": lab.gpu, "panels": []}
    counts: dict[str, list[int]] = {policy: [] for policy in policies}
    for policy in policies:
        for workload in lab.workloads():
            path = _path(lab, workload.name, policy, _SEED)
            counts[policy].append(len({tuple(each) for each in path["path"]}))
            short = "today" if policy == "zeus" else "as published"
            label = workload.title if len(policies) == 1 else f"{workload.title}, {short}"
            data["panels"].append({"title": label, **path})
    said = "; ".join(
        f"{style.POLICIES[policy][0]} tries {min(each)} to {max(each)} configurations"
        for policy, each in counts.items()
    )
    total = [
        len(lab.table(each.name).batch_sizes) * len(lab.table(each.name).power_limits)
        for each in lab.workloads()
    ]
    return Exhibit(
        name=name,
        title=title,
        subject=f"{subject}, all workloads",
        caption=_caption(lab),
        data=data,
        draw=_draw_paths,
        facts=(
            Fact(
                "number of configurations tried",
                f"appendix E, {title}",
                "Zeus is able to more efficiently navigate the search space"
                if "paper" in policies
                else "Grid search goes through the whole space",
                f"{said} (of {min(total)} to {max(total)})",
                "Profiling the power limits in the first epoch of a batch size leaves only batch "
                "sizes to be tried."
                if "paper" in policies
                else "Batch sizes that miss the target are tried at one power limit only.",
            ),
        ),
    )


def _caption(lab: Lab) -> str:
    return (
        f"One job (seed {_SEED}) on {lab.gpu.upper()}. The darker a configuration, the lower its "
        "expected cost; hatched ones never reach the target. The path goes from yellow to red as "
        "time passes, and dots grow with the number of visits. The star is the optimum."
    )


def _shown(lab: Lab) -> str:
    names = [workload.name for workload in lab.workloads()]
    return _WORKLOAD if _WORKLOAD in names else names[0]


def _title(lab: Lab, name: str) -> str:
    return next(workload.title for workload in lab.workloads() if workload.name == name)


def _path(lab: Lab, name: str, policy: str, seed: int) -> dict[str, Any]:
    table = lab.table(name)
    cost = table.expected_epochs[:, None] * table.epoch_cost / table.optimum.cost
    path = []
    for trial in lab.trials(name, policy, seed):
        power = trial.power if trial.power >= 0 else int(table.best_power[trial.arm])
        path.append([trial.arm, power])
    return {
        "batch_sizes": list(table.batch_sizes),
        "power_limits": list(table.power_limits),
        "cost": [[None if not np.isfinite(x) else float(x) for x in row] for row in cost],
        "optimum": [table.optimum.arm, table.optimum.power],
        "path": path,
    }


# --- drawing --------------------------------------------------------------------------------------


def _draw_4(data: Data) -> Figure:
    figure, (axes,) = style.panels(width=9.5, height=4.4)
    trials = data["trials"]
    looks = ((colors.SKY, "o"), (colors.GREEN, "s"), (colors.BLUE, "D"))
    last = max(trial["recurrence"] for trial in trials)
    for stage, (color, marker) in enumerate(looks):
        mine = [trial for trial in trials if trial["stage"] == stage]
        good = [trial for trial in mine if trial["converged"]]
        axes.plot(
            [t["recurrence"] for t in good], [t["arm"] for t in good], marker, color=color,
            markersize=5.5, linestyle="none", label=_STAGES[stage],
        )  # fmt: skip
        later = [trial["recurrence"] for trial in trials if trial["stage"] > stage]
        if mine:
            end = min(later, default=last + 1)
            axes.axvspan(
                mine[0]["recurrence"] - 0.5, end - 0.5, color=color, alpha=0.09, linewidth=0
            )
    stopped = [trial for trial in trials if not trial["converged"]]
    axes.plot(
        [t["recurrence"] for t in stopped], [t["arm"] for t in stopped], "x", color=colors.ORANGE,
        markersize=7, markeredgewidth=2, linestyle="none", label="Stopped",
    )  # fmt: skip
    for arm, text in ((data["default"], "default"), (data["optimum"], "best")):
        axes.axhline(arm, color=style.MUTED, linestyle=":", linewidth=1.2, zorder=0)
        axes.annotate(
            text, (1.005, arm), xycoords=("axes fraction", "data"), va="center", fontsize=9,
            color=style.MUTED,
        )  # fmt: skip
    style.batch_size_axis(axes, data["batch_sizes"])
    axes.set_xlim(0, last + 1)
    axes.set_xlabel("Recurrence")
    style.legend_below(figure, axes)
    return figure


def _draw_paths(data: Data) -> Figure:
    shown = data["panels"]
    # Every batch size needs a row: the longest list sets the height.
    height = max(0.2 * max(len(panel["batch_sizes"]) for panel in shown) + 0.9, 3.0)
    figure, axes = style.panel_for_each(shown, row_height=height)
    for panel, found in zip(axes, shown, strict=True):
        _path_panel(panel, found)
        panel.set_title(found["title"])
    return figure


def _path_panel(axes: Axes, found: dict[str, Any]) -> None:
    import matplotlib  # noqa: PLC0415
    from matplotlib.collections import LineCollection  # noqa: PLC0415
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    cost = np.array([[np.nan if x is None else x for x in row] for row in found["cost"]])
    never = np.isnan(cost)
    shade = np.log(np.minimum(np.where(never, _WORST, cost), _WORST)) / np.log(_WORST)
    arms, limits = cost.shape
    edges = np.arange(limits + 1) - 0.5, np.arange(arms + 1) - 0.5
    axes.pcolormesh(
        *edges, 0.62 - 0.57 * shade, cmap="Blues", vmin=0, vmax=1, edgecolors="white",
        linewidth=0.4,
    )  # fmt: skip
    # The color of hatches is taken from the style when a patch is created.
    with matplotlib.rc_context({"hatch.color": "#9aa5b3"}):
        for arm, limit in np.argwhere(never):
            axes.add_patch(
                Rectangle((limit - 0.5, arm - 0.5), 1, 1, fill=False, hatch="////", linewidth=0)
            )
    path = np.array(found["path"])
    warmth = [colors.shade(share) for share in np.linspace(0.15, 1, len(path)).tolist()]
    ends = path[:, ::-1].astype(float)
    moved = np.flatnonzero((np.diff(path, axis=0) != 0).any(axis=1))
    axes.add_collection(
        LineCollection(
            [ends[i : i + 2] for i in moved],
            colors=[warmth[i] for i in moved],
            linewidths=1.6,
            zorder=3,
        )
    )
    visits: dict[tuple[int, int], list[int]] = {}
    for step, (arm, limit) in enumerate(path):
        visits.setdefault((int(arm), int(limit)), []).append(step)
    axes.scatter(
        [limit for _, limit in visits], [arm for arm, _ in visits],
        s=[14 + 5 * min(len(steps), 30) for steps in visits.values()],
        c=[warmth[steps[-1]] for steps in visits.values()], edgecolors=style.INK, linewidths=0.6,
        zorder=4,
    )  # fmt: skip
    best_arm, best_limit = found["optimum"]
    axes.plot(
        best_limit, best_arm, "*", color=style.PAPER, markeredgecolor=style.INK, markersize=13,
        markeredgewidth=1, zorder=5,
    )  # fmt: skip
    style.batch_size_axis(axes, found["batch_sizes"])
    axes.set_xticks(range(limits), [f"{limit:g}" for limit in found["power_limits"]])
    axes.set_xlim(-0.5, limits - 0.5)
    axes.set_ylim(-0.5, arms - 0.5)
    axes.set_xlabel("Power limit (W)")
    axes.grid(visible=False)
