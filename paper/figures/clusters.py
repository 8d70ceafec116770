"""Figure 9: all jobs of a cluster. Alibaba's tables are too large to ship; ours are synthetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact, percent
from paper.lab import Lab
from paper.product import ALL_WORKLOADS, made_up_trace, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POLICIES = ("default", "grid", "paper", "zeus")
_ALL = "All"
JOBS = 300_000


def figure_9(lab: Lab, jobs: int = JOBS) -> Exhibit:
    """Energy and time by workload.

    Args:
        lab: Source of the tables.
        jobs: Number of jobs of the synthetic cluster.
    """
    trace = made_up_trace(jobs)
    tables = [lab.table(workload.name) for workload in lab.workloads()]
    result = simulate(trace, tables, _POLICIES, seed=0, beta=2.0)
    titles = {workload.name: workload.title for workload in lab.workloads()}
    titles[ALL_WORKLOADS] = _ALL
    found: Data = {}
    for record in result.records:
        found.setdefault(titles[record.workload], {"jobs": record.jobs, "groups": record.groups})[
            record.policy
        ] = {
            "energy": record.energy_vs_default,
            "time": record.time_vs_default,
            "regret": record.cumulative_regret,
        }
    return Exhibit(
        name="figure-9",
        title="Figure 9",
        subject="All jobs of a cluster",
        caption=(
            f"Energy and time of all recurrences against the default, {lab.gpu.upper()}, on a "
            f"synthetic cluster with the published statistics of Alibaba's: {jobs:,} jobs of which "
            f"{trace.jobs:,} succeed and recur, in {trace.groups:,} groups. The scale is "
            "logarithmic. `zeus cluster` replays the original tables."
        ),
        data={"gpu": lab.gpu, "workloads": found},
        draw=_draw,
        facts=_facts(found) if lab.is_papers_gpu else (),
    )


def _facts(found: Data) -> list[Fact]:
    kinds = {name: each for name, each in found.items() if name != _ALL}
    few = min(kinds.values(), key=lambda each: int(each["jobs"]))
    note = (
        "The original tables are not available here: group sizes and overlaps are synthetic, and "
        "they decide how long exploration has time to pay off. "
        f"The longest jobs are rare ({few['jobs']} jobs in {few['groups']} groups here)."
    )
    facts = []
    for what, published in (
        ("energy", "−7 % to −52 %"),
        ("time", "+16 % at most, −33 % at best"),
    ):
        values = {name: float(each["paper"][what]) - 1 for name, each in kinds.items()}
        low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        facts.append(
            Fact(
                f"{what} against the default, by workload",
                "section 6.3, Figure 9",
                published,
                f"{percent(values[high])} ({high}) to {percent(values[low])} ({low})",
                note,
                agrees=None,
            )
        )
    worse = [name for name, each in kinds.items() if each["grid"]["energy"] > 1]
    facts += [
        Fact(
            "grid search may be worse than the default",
            "section 6.3",
            "there are scenarios where the Grid Search performs worse than Default",
            f"for {', '.join(worse)}" if worse else "for none of the workloads",
            "Batch sizes that never reach the target run for the maximum number of epochs.",
            agrees=bool(worse),
        ),
        Fact(
            "our own policy",
            "not in the paper",
            "",
            "energy of all jobs "
            + ", ".join(
                f"{style.POLICIES[policy][0]} {percent(found[_ALL][policy]['energy'] - 1)}"
                for policy in ("paper", "zeus")
            ),
            "Most groups recur only a few times, and our policy needs fewer trials to converge.",
            agrees=None,
        ),
    ]
    return facts


def _draw(data: Data) -> Figure:
    found = data["workloads"]
    figure, axes = style.panels(1, 2, width=11, height=4.2)
    places = np.arange(len(found))
    policies = _POLICIES[1:]
    for panel, what in zip(axes, ("energy", "time"), strict=True):
        for number, policy in enumerate(policies):
            name, color, _, hatch = style.POLICIES[policy]
            values = np.array([each[policy][what] for each in found.values()])
            spots = places + (number - 1) * 0.27
            panel.bar(spots, values - 0.3, 0.25, bottom=0.3, label=name, color=color, hatch=hatch)
        panel.axhline(1, color=style.INK, linestyle="--", linewidth=1, label="Default")
        panel.set_yscale("log")
        highest = max(each[policy][what] for each in found.values() for policy in policies)
        ticks = [t for t in (0.3, 0.5, 0.7, 1, 2, 5, 10, 50, 200) if t <= 1.5 * highest]
        panel.set_yticks(ticks, [f"{100 * tick:,.0f} %" for tick in ticks])
        panel.set_ylim(0.3, highest * 1.3)
        panel.minorticks_off()
        names = [style.narrow(name) for name in found]
        panel.set_xticks(places, names)
        panel.tick_params(axis="x", labelsize=8)
        panel.grid(visible=False, axis="x")
        panel.set_title(f"{what.capitalize()}, {data['gpu'].upper()}")
        panel.set_ylabel(f"{what.capitalize()} against the default")
    style.legend_below(figure, axes[0])
    return figure
