"""Section 7: the trials of a hyperparameter search, which share their power profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact, Listing, percent
from paper.lab import Lab
from paper.product import Floats, Ints, JobTable, Profiles, replay_search

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TRIALS = 20
_WAYS: tuple[Profiles, ...] = ("own", "shared")
_WHAT = ("cost", "energy", "time")
_KINDS = {
    "default": f"{_TRIALS} trials with the default batch size",
    "any": f"{_TRIALS} trials, batch sizes at random",
    "short": f"{_TRIALS} trials of one epoch, default batch size",
}


def section_7(lab: Lab) -> Exhibit:
    """Power limits for a hyperparameter search."""
    data: Data = {
        "gpu": lab.gpu,
        "kinds": {
            kind: {
                workload.title: _search(lab, lab.table(workload.name), kind)
                for workload in lab.workloads()
            }
            for kind in _KINDS
        },
    }
    return Exhibit(
        name="section-7",
        title="Section 7",
        subject="Power profiles shared by the trials of a hyperparameter search",
        caption=(
            f"Searches of {_TRIALS} trials on {lab.gpu.upper()}, {lab.seeds} of each kind, against "
            "the same trials at the highest power limit. The batch size of a trial is given, and "
            "Zeus chooses the power limit at eta 0.5. With profiles of their own, each trial tries "
            "all power limits in its first epoch, as in all replays; with shared ones, only the "
            "first with its batch size does. The traces vary no hyperparameter but the batch size: "
            "trials draw recorded runs."
        ),
        data=data,
        draw=_draw,
        listing=_listing(data),
        facts=_facts(data),
    )


def _search(lab: Lab, table: JobTable, kind: str) -> Data:
    """Return what searches take against the highest limit, by whose profile is used."""
    most = 1 if kind == "short" else None

    def total(way: Profiles) -> Floats:
        found = [
            replay_search(table, _arms(table, kind, seed), profiles=way, max_epochs=most, seed=seed)
            for seed in range(lab.seeds)
        ]
        return np.array([sum(getattr(each, what).sum() for each in found) for what in _WHAT])

    reference = total("none")
    return {way: dict(zip(_WHAT, (total(way) / reference).tolist(), strict=True)) for way in _WAYS}


def _arms(table: JobTable, kind: str, seed: int) -> Ints:
    if kind != "any":
        return np.full(_TRIALS, table.default)
    trained = np.flatnonzero(np.isfinite(table.epochs).any(axis=1))
    return np.random.default_rng(seed).choice(trained, _TRIALS)


def _listing(data: Data) -> Listing:
    rows = []
    for kind, workloads in data["kinds"].items():
        for title, each in workloads.items():
            values = [percent(each[way][what] - 1) for what in _WHAT for way in _WAYS]
            rows.append((f"{title}, {_KINDS[kind]}", *values))
    head = [f"{what.capitalize()}, {way}" for what in _WHAT for way in _WAYS]
    return Listing(("Search", *head), rows)


def _facts(data: Data) -> list[Fact]:
    facts = []
    default = data["kinds"]["default"]
    saved = [each["shared"]["energy"] - 1 for each in default.values()]
    facts.append(
        Fact(
            "trials with a specific batch size",
            "section 7",
            "Zeus can still reduce energy by searching for the best power limit",
            f"energy {percent(max(saved))} to {percent(min(saved))} by workload",
            f"With shared profiles. The paper states no number. {_KINDS['default'].capitalize()}.",
            agrees=max(saved) < 0,
        )
    )
    for kind, name in _KINDS.items():
        gains = {
            what: [
                each["shared"][what] / each["own"][what] - 1
                for each in data["kinds"][kind].values()
            ]
            for what in _WHAT
        }
        facts.append(
            Fact(
                f"what sharing adds: {name}",
                "not in the paper",
                "",
                "; ".join(
                    f"{what} {percent(max(found))} to {percent(min(found))}"
                    for what, found in gains.items()
                ),
                "Against profiles of their own. Trying power limits costs time, and may even save "
                "energy, because most of them are low; the cost at eta 0.5 counts both.",
                agrees=None,
            )
        )
    return facts


def _draw(data: Data) -> Figure:
    kinds = data["kinds"]
    figure, axes = style.panels(1, len(kinds), width=13, height=4.2, sharey=True)
    for panel, (kind, workloads) in zip(axes, kinds.items(), strict=True):
        _bars(panel, workloads)
        panel.set_title(_KINDS[kind].replace(", ", ",\n"))
    axes[0].set_ylabel("Cost against the highest limit")
    style.percent_axis(axes[0].yaxis)
    style.legend_below(figure, axes[0])
    return figure


def _bars(axes: Axes, workloads: Data) -> None:
    places = np.arange(len(workloads))
    for number, (way, (label, policy)) in enumerate(
        zip(_WAYS, (("Own profiles", "grid"), ("Shared profiles", "paper")), strict=True)
    ):
        _, color, _, hatch = style.POLICIES[policy]
        axes.bar(
            places + (number - 0.5) * 0.4, [each[way]["cost"] for each in workloads.values()],
            0.37, label=label, color=color, hatch=hatch,
        )  # fmt: skip
    axes.axhline(1, color=style.INK, linestyle="--", linewidth=1, label="Highest power limit")
    axes.set_xticks(places, [style.narrow(name) for name in workloads])
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(visible=False, axis="x")
