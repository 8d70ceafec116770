"""Figures 7 and 19: cumulative regret over the recurrences of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact
from paper.lab import Lab, geometric_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POLICIES = ("grid", "paper", "zeus")
_PAPERS = ("deepspeech2", "resnet50")
_FLAT = 0.2  # of a run; a regret that grows by less per recurrence has reached its plateau
_LEAST = 0.02  # of a run; a regret below this is noise


def figure_7(lab: Lab) -> Exhibit:
    """Cumulative regret of DeepSpeech2 and ResNet-50."""
    names = [workload.name for workload in lab.workloads() if workload.name in _PAPERS]
    data = _data(lab, names or [lab.workloads()[0].name])
    plateau = "; ".join(
        f"{title}: {', '.join(_plateau_words(found))}" for title, found in data["workloads"].items()
    )
    share = "; ".join(
        f"{title}: {', '.join(_plateau_words(found, 'most_of_it'))}"
        for title, found in data["workloads"].items()
    )
    return Exhibit(
        name="figure-7",
        title="Figure 7",
        subject="Cumulative regret of two jobs",
        caption=_caption(lab),
        data=data,
        draw=_draw,
        facts=(
            Fact(
                "plateau of the regret",
                "section 6.2, Figure 7",
                "Zeus reaches the plateau in the cumulative regret earlier than Grid Search",
                f"recurrences after which none costs {100 * _FLAT:.0f} % more than the best, on "
                f"average: {plateau}; until 95 % of the final regret: {share}",
                "The paper shows plateaus but does not define them, and the result depends on the "
                "definition: Zeus as published is earlier by the first, but not by the second, "
                "since sampling adds small regrets to a total that is small."
                if _orders(data) == (True, False)
                else "The paper shows plateaus but does not define them; these are two of ours.",
                agrees=True if _orders(data) == (True, True) else None,
            ),
        ),
    )


def figure_19(lab: Lab) -> Exhibit:
    """Cumulative regret of all workloads."""
    data = _data(lab, [workload.name for workload in lab.workloads()])
    workloads = data["workloads"]
    return Exhibit(
        name="figure-19",
        title="Figure 19",
        subject="Cumulative regret of all jobs",
        caption=_caption(lab),
        data=data,
        draw=_draw,
        facts=[
            _worst_case(lab, data),
            Fact(
                "our own policy",
                "not in the paper",
                "",
                f"{_times(workloads, 'zeus', 'paper'):.2f} of the regret of Zeus as published, "
                "geometric mean",
                "It models the epochs to target as a smooth curve over the batch size, so it need "
                "not try all of them, and tries none twice only to learn its variance.",
                agrees=None,
            ),
        ],
    )


def _caption(lab: Lab) -> str:
    return (
        f"Cost beyond the oracle's, in units of one oracle run, {lab.gpu.upper()}: mean of "
        f"{lab.seeds} jobs, and a band of 90 % of them. The scale is logarithmic."
    )


def _data(lab: Lab, names: list[str]) -> Data:
    found: Data = {}
    for workload in lab.workloads():
        if workload.name not in names:
            continue
        policies: Data = {}
        for policy in _POLICIES:
            runs = lab.runs(policy)[workload.name]
            regret = runs.regret / runs.table.optimum.cost
            mean = regret.mean(axis=0)
            low, high = np.percentile(regret, [5, 95], axis=0)
            # Recurrences in which a run missed the target, and another had to follow.
            extra = runs.cost / runs.table.optimum.cost - 1
            missed = np.where(runs.trials > 1, extra, 0.0).sum(axis=1).mean()
            policies[policy] = {
                "mean": mean.tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
                "plateau": int(np.flatnonzero(extra.mean(axis=0) > _FLAT)[-1]) + 1
                if (extra.mean(axis=0) > _FLAT).any()
                else 0,
                "most_of_it": int(np.argmax(mean >= 0.95 * mean[-1])) + 1,
                "final": float(mean[-1]),
                "with_missed_runs": float(missed),
            }
        found[workload.title] = {"policies": policies}
    return {"gpu": lab.gpu, "workloads": found}


def _orders(data: Data) -> tuple[bool, ...]:
    """Return, for each definition of a plateau, whether Zeus as published is always first."""
    return tuple(
        all(
            found["policies"]["paper"][kind] <= found["policies"]["grid"][kind]
            for found in data["workloads"].values()
        )
        for kind in ("plateau", "most_of_it")
    )


def _plateau_words(found: Data, kind: str = "plateau") -> list[str]:
    return [
        f"{style.POLICIES[policy][0]} {found['policies'][policy][kind]}" for policy in _POLICIES
    ]


def _times(workloads: Data, policy: str, other: str) -> float:
    return geometric_mean(
        [
            max(found["policies"][policy]["final"], _LEAST)
            / max(found["policies"][other]["final"], _LEAST)
            for found in workloads.values()
        ]
    )


def _worst_case(lab: Lab, data: Data) -> Fact:
    workloads = data["workloads"]
    ratios, without = {}, {}
    for title, found in workloads.items():
        grid, paper = (found["policies"][policy] for policy in ("grid", "paper"))
        ratios[title] = grid["final"] / max(paper["final"], _LEAST)
        without[title] = (grid["final"] - grid["with_missed_runs"]) / max(
            paper["final"] - paper["with_missed_runs"], _LEAST
        )
    worst = max(ratios, key=ratios.__getitem__)
    grid = workloads[worst]["policies"]["grid"]
    share = grid["with_missed_runs"] / grid["final"]
    ours = ", ".join(f"{title} {ratio:.0f}×" for title, ratio in ratios.items())
    by_epochs = _by_max_epochs(lab, worst)
    data["ratio_by_max_epochs"] = {worst: by_epochs}
    shorter = ", ".join(f"{epochs} epochs {ratio:,.0f}×" for epochs, ratio in by_epochs.items())
    note = (
        f"{worst}: {100 * share:.0f} % of grid search's regret are recurrences in which a run of "
        "some batch size missed the target. It has no stopping rule, so such a run takes the "
        "maximum number of epochs, which the paper does not state; the ratio by that number: "
        f"{shorter}. Without recurrences in which a run missed the target, on both sides, the "
        f"worst case is {max(without.values()):.0f}× ({max(without, key=without.__getitem__)})."
        if share > 0.5
        else "The paper does not state the maximum epochs of a run that misses the target."
    )
    return Fact(
        "cumulative regret of grid search against Zeus",
        "section 6.2",
        "72× in the worst case" if lab.is_papers_gpu else "72× in the worst case (V100)",
        ours,
        note,
        agrees=None,
    )


def _by_max_epochs(lab: Lab, title: str) -> dict[int, float]:
    """Return the regret of grid search against Zeus as published, by the maximum of epochs."""
    name = next(each.name for each in lab.workloads() if each.title == title)
    table = lab.table(name)
    recorded = table.epochs[table.default]
    needed = int(recorded[np.isfinite(recorded)].max())  # by the default, which must converge
    limits = sorted({needed, needed + 1, needed + 2, 2 * needed, table.max_epochs // 2})
    tables = [replace(table, max_epochs=most) for most in limits if most <= table.max_epochs]
    grid, paper = (
        [float(runs.regret[:, -1].mean()) for runs in lab.replayed(policy, tables)]
        for policy in ("grid", "paper")
    )
    return {
        each.max_epochs: tried / max(found, _LEAST * each.optimum.cost)
        for each, tried, found in zip(tables, grid, paper, strict=True)
    }


def _draw(data: Data) -> Figure:
    workloads = data["workloads"]
    figure, axes = style.panel_for_each(workloads)
    for panel, (title, found) in zip(axes, workloads.items(), strict=True):
        _panel(panel, found["policies"])
        panel.set_title(title)
        panel.set_xlabel("Recurrence")
    for panel in axes[::3]:
        panel.set_ylabel("Cumulative regret\n(runs of the best)")
    style.legend_below(figure, axes[0])
    return figure


def _panel(axes: Axes, policies: Data) -> None:
    least = 0.05
    for policy, found in policies.items():
        name, color, marker, _ = style.POLICIES[policy]
        mean = np.maximum(found["mean"], least)
        recurrence = np.arange(1, len(mean) + 1)
        axes.fill_between(
            recurrence, np.maximum(found["low"], least), np.maximum(found["high"], least),
            color=color, alpha=0.18, linewidth=0,
        )  # fmt: skip
        axes.plot(
            recurrence, mean, color=color, label=name, marker=marker, markersize=5,
            markevery=max(len(mean) // 6, 1),
        )  # fmt: skip
    highest = max(max(found["high"]) for found in policies.values())
    axes.set_yscale("log")
    style.plain_log(axes.yaxis, 5)
    axes.set_ylim(least, highest * 1.7)
