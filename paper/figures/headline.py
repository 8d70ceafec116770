"""The headline claims on every GPU in the folder, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paper.exhibit import Exhibit, Fact, Listing, interval, percent
from paper.figures.converged import figure_23
from paper.figures.sensitivity import figure_12, figure_13
from paper.lab import Lab, geometric_mean

if TYPE_CHECKING:
    from paper.exhibit import Data

_LEAST = 0.02  # of a run; a regret below this is noise


def headline(lab: Lab) -> Exhibit:
    """Compare the headline claims of the paper with ours, by GPU."""
    reached = figure_23(lab).data["gpus"]
    betas, parts = figure_12(lab).data, figure_13(lab).data["gpus"]
    data: Data = {}
    for gpu in lab.gpus:
        energy = [1 - each["paper"]["energy"] for each in reached[gpu].values()]
        time = [each["paper"]["time"] - 1 for each in reached[gpu].values()]
        regret = {
            policy: [
                max(float(runs.regret[:, -1].mean()) / runs.table.optimum.cost, _LEAST)
                for runs in lab.runs(policy, gpu=gpu).values()
            ]
            for policy in ("grid", "paper", "zeus")
        }
        grid = [a / b for a, b in zip(regret["grid"], regret["paper"], strict=True)]
        today = [a / b for a, b in zip(regret["zeus"], regret["paper"], strict=True)]
        means = betas["gpus"][gpu]["mean"]
        slowdown = {
            label: geometric_mean(list(each["time"].values())) for label, each in parts[gpu].items()
        }
        data[gpu] = {
            "energy_saved": [min(energy), max(energy)],
            "time_change": [max(time), min(time)],
            "grid_regret_times": [min(grid), max(grid)],
            "best_beta": betas["betas"][means.index(min(means))],
            "most_needed": max(slowdown, key=slowdown.__getitem__),
            "regret_today_against_published": geometric_mean(today),
        }
    rows = [
        (
            gpu.upper(),
            interval(*each["energy_saved"]),
            f"{percent(each['time_change'][0])} to {percent(each['time_change'][1])}",
            f"{each['grid_regret_times'][0]:.1f}× to {each['grid_regret_times'][1]:,.0f}×",
            f"{each['best_beta']:g}",
            each["most_needed"].replace("Without ", ""),
            f"{each['regret_today_against_published']:.2f}",
        )
        for gpu, each in data.items()
    ]
    stated = ("Paper, V100", "15.3 % to 75.8 %", "+12.8 % to −60.1 %", "up to 72×", "2",
              "early stopping", "-")  # fmt: skip
    facts = []
    if lab.is_papers_gpu:
        ours = data[lab.gpu]
        facts.append(
            Fact(
                "energy saved for diverse workloads",
                "abstract",
                "15.3 % to 75.8 %",
                interval(*ours["energy_saved"]),
                "Means over jobs. Figure 6 has more about the difference.",
                agrees=all(
                    abs(a - b) < 0.02
                    for a, b in zip(ours["energy_saved"], (0.153, 0.758), strict=True)
                ),
            )
        )
    return Exhibit(
        name="headline",
        title="Headline claims",
        subject="results of Zeus as published on every GPU here",
        caption=(
            f"{lab.seeds} jobs of each workload. Energy and time: last five recurrences against "
            "the default. Regret of grid search: against that of Zeus as published. The last "
            "column is the regret of this project's own policy against that of Zeus as published."
        ),
        data=data,
        listing=Listing(
            ("GPU", "Energy saved", "Time", "Regret of grid search", "Best beta",
             "Component that matters most", "Regret of Zeus today"),
            [stated, *rows],
        ),
        facts=facts,
    )  # fmt: skip
