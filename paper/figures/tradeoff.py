"""Figures 2, 11 and 16: time against energy, the Pareto frontier, and eta's choices on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact
from paper.lab import Lab
from paper.product import JobTable, Unit, colors, energy_unit, time_unit, zeus_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORKLOAD = "deepspeech2"
_ETAS = tuple(round(0.05 * step, 2) for step in range(21))


def figure_2(lab: Lab) -> Exhibit:
    """All configurations of DeepSpeech2, and their Pareto frontier."""
    name = _shown(lab)
    table = lab.table(name)
    data = {"gpu": lab.gpu, "workload": name, **_configurations(table)}
    least_energy = min(data["points"], key=lambda point: float(point["energy"]))
    least_time = min(data["points"], key=lambda point: float(point["time"]))
    facts = []
    if lab.is_papers_gpu and name == _WORKLOAD:
        facts = [
            Fact(
                "configuration with the lowest energy",
                "section 2.3, Figure 2b",
                "batch size 32, 100 W",
                _setting(least_energy),
                agrees=(least_energy["batch_size"], least_energy["power_limit"]) == (32, 100),
            ),
            Fact(
                "configuration with the shortest time",
                "section 2.3, Figure 2b",
                "batch size 48, 250 W",
                _setting(least_time),
                agrees=(least_time["batch_size"], least_time["power_limit"]) == (48, 250),
            ),
            Fact(
                "average power that bounds all configurations",
                "section 2.3, Figure 2a",
                "90 W (light load) and 210 W (heavy load)",
                f"{data['least_power']:.0f} W and {data['most_power']:.0f} W",
                "The paper's lines are drawn by eye around the points; ours are the minimum and "
                "the maximum of average power in the power trace.",
                agrees=abs(data["least_power"] - 90) < 10 and abs(data["most_power"] - 210) < 10,
            ),
        ]
    return Exhibit(
        name="figure-2",
        title="Figure 2",
        subject="Energy against time of every configuration",
        caption=(
            f"{_title(lab, name)} on {lab.gpu.upper()}. Left: every batch size at every power "
            "limit, between two lines of constant average power. Right: the Pareto frontier, with "
            "batch size and power limit."
        ),
        data=data,
        draw=_draw_2,
        facts=facts,
    )


def figure_11(lab: Lab) -> Exhibit:
    """The optimum for each eta."""
    name = _shown(lab)
    data: Data = {"gpu": lab.gpu, "workload": name, **_configurations(lab.table(name))}
    front = {
        (point["batch_size"], point["power_limit"]) for point in data["points"] if point["front"]
    }
    choices = []
    for eta in _ETAS:
        table = lab.table(name, eta=eta)
        best = table.optimum
        choices.append(
            {
                "eta": eta,
                "time": float(table.expected_epochs[best.arm] * table.time[best.arm, best.power]),
                "energy": float(
                    table.expected_epochs[best.arm] * table.energy[best.arm, best.power]
                ),
                "batch_size": table.batch_sizes[best.arm],
                "power_limit": table.power_limits[best.power],
                "cost": best.cost,
            }
        )
    on_front = sum((each["batch_size"], each["power_limit"]) in front for each in choices)
    data |= {"choices": choices, "max_power": lab.table(name).max_power}
    return Exhibit(
        name="figure-11",
        title="Figure 11",
        subject="How eta moves along the Pareto frontier",
        caption=(
            f"{_title(lab, name)} on {lab.gpu.upper()}: the optimum for eta from 0 (only time "
            "counts) to 1 (only energy counts). Dotted: lines of the same cost as the optimum."
        ),
        data=data,
        draw=_draw_11,
        facts=(
            Fact(
                "optima of all eta lie on the Pareto frontier",
                "section 6.7, Figure 11",
                "(TTA, ETA) points fall closely to the Pareto front",
                f"{on_front} of {len(choices)} values of eta are on it",
                "Computed from expected values, so only points of the frontier can be chosen.",
                agrees=on_front == len(choices),
            ),
        ),
    )


def figure_16(lab: Lab) -> Exhibit:
    """The Pareto frontier of every workload."""
    data: Data = {"gpu": lab.gpu, "workloads": {}}
    dominated = []
    for workload in lab.workloads():
        found = _configurations(lab.table(workload.name))
        data["workloads"][workload.title] = found
        default = next(point for point in found["points"] if point["default"])
        if not default["front"]:
            dominated.append(workload.title)
    return Exhibit(
        name="figure-16",
        title="Figure 16",
        subject="Pareto frontiers of all workloads",
        caption=(
            f"Energy against time on {lab.gpu.upper()}, cropped around the frontier; "
            "axes do not start at zero. The triangle is the default."
        ),
        data=data,
        draw=_draw_16,
        facts=(
            Fact(
                "baselines are suboptimal",
                "section 2.3",
                "baseline configurations can lead to suboptimal energy efficiency, and to "
                "suboptimal time as well",
                f"the default is off the frontier for {len(dominated)} of "
                f"{len(data['workloads'])} workloads: {', '.join(dominated)}",
                agrees=bool(dominated),
            ),
        ),
    )


def _shown(lab: Lab) -> str:
    names = [workload.name for workload in lab.workloads()]
    return _WORKLOAD if _WORKLOAD in names else names[0]


def _title(lab: Lab, name: str) -> str:
    return next(workload.title for workload in lab.workloads() if workload.name == name)


def _setting(point: dict[str, Any]) -> str:
    return f"batch size {point['batch_size']}, {point['power_limit']:g} W"


def _configurations(table: JobTable) -> Data:
    time = table.expected_epochs[:, None] * table.time
    energy = table.expected_epochs[:, None] * table.energy
    highest = int(np.flatnonzero(np.isfinite(table.time[table.default]))[-1])
    points: list[dict[str, Any]] = []
    for arm, limit in np.argwhere(np.isfinite(time)):
        points.append(
            {
                "batch_size": table.batch_sizes[arm],
                "power_limit": table.power_limits[limit],
                "time": float(time[arm, limit]),
                "energy": float(energy[arm, limit]),
                "default": (int(arm), int(limit)) == (table.default, highest),
            }
        )
    points.sort(key=lambda point: (point["time"], point["energy"]))
    least = np.inf
    for point in points:
        point["front"] = bool(point["energy"] < least)
        least = min(least, float(point["energy"]))
    power = table.power[np.isfinite(time)]
    return {
        "points": points,
        "least_power": float(power.min()),
        "most_power": float(power.max()),
    }


# --- drawing --------------------------------------------------------------------------------------


def _units(points: list[dict[str, Any]]) -> tuple[Unit, Unit]:
    middle = float(np.median([point["time"] for point in points]))
    return time_unit(middle), energy_unit(max(point["energy"] for point in points))


def _label_axes(axes: Axes, units: tuple[Unit, Unit]) -> None:
    axes.set_xlabel(f"Time to target ({units[0].name})")
    axes.set_ylabel(f"Energy to target ({units[1].name})")


def _scatter(
    axes: Axes,
    data: Data,
    units: tuple[Unit, Unit],
    size: float = 16,
    with_default: bool = True,
) -> list[dict[str, Any]]:
    second, joule = (unit.size for unit in units)
    points = data["points"]
    beaten = [point for point in points if not point["front"]]
    front = [point for point in points if point["front"]]
    axes.scatter(
        [p["time"] / second for p in beaten], [p["energy"] / joule for p in beaten],
        s=size, color=colors.GRAY, linewidths=0, label="Configuration",
    )  # fmt: skip
    axes.plot(
        [p["time"] / second for p in front], [p["energy"] / joule for p in front],
        color=colors.BLUE, marker="o", markersize=4.5, label="Pareto frontier",
    )  # fmt: skip
    default = next(p for p in points if p["default"])
    if with_default:
        axes.plot(
        default["time"] / second, default["energy"] / joule, linestyle="none", marker="^",
        markersize=9, color=colors.ORANGE, label="Default",
    )  # fmt: skip
    return front


def _zoom(
    axes: Axes, points: list[dict[str, Any]], units: tuple[Unit, Unit], margin: float = 0.12
) -> None:
    second, joule = (unit.size for unit in units)
    times = [point["time"] / second for point in points]
    energies = [point["energy"] / joule for point in points]
    for low, high, place in (
        (min(times), max(times), axes.set_xlim),
        (min(energies), max(energies), axes.set_ylim),
    ):
        room = margin * ((high - low) or high)
        place(low - room, high + 1.4 * room)


def _obstacles(
    points: list[dict[str, Any]], front: list[dict[str, Any]], second: float, joule: float
) -> list[tuple[float, float]]:
    """Return places that labels must not cover: all points, and the line of the frontier."""
    places = [(point["time"] / second, point["energy"] / joule) for point in points]
    corners = np.array([(point["time"] / second, point["energy"] / joule) for point in front])
    steps = np.linspace(0, len(corners) - 1, 60 * len(corners))
    across, up = (np.interp(steps, range(len(corners)), each) for each in corners.T)
    return [*places, *zip(across.tolist(), up.tolist(), strict=True)]


def _draw_2(data: Data) -> Figure:
    figure, (left, right) = style.panels(1, 2, width=11, height=4.6)
    units = _units(data["points"])
    _scatter(left, data, units)
    second, joule = (unit.size for unit in units)
    # Tiny batch sizes take ten times as long and are cropped; the lines extend towards them.
    longest = float(np.percentile([point["time"] for point in data["points"]], 90)) / second
    highest = data["most_power"] * longest * second / joule
    for power in (data["least_power"], data["most_power"]):
        left.plot(
            [0, longest * 2], [0, power * 2 * longest * second / joule], linestyle=":",
            color=style.MUTED, linewidth=1.3,
        )  # fmt: skip
        left.annotate(
            f"{power:.0f} W", (longest * 0.8, power * longest * 0.8 * second / joule),
            xytext=(-6, 8), textcoords="offset points", color=style.MUTED, fontsize=9, ha="right",
        )  # fmt: skip
    left.set_xlim(0, longest * 1.05)
    left.set_ylim(0, highest * 1.02)
    left.set_title("All configurations")
    front = _scatter(right, data, units)
    _zoom(right, front, units, margin=0.22)
    right.set_title("Pareto frontier (batch size, power limit)")
    for axes in (left, right):
        _label_axes(axes, units)
    style.label_points(
        right,
        [(point["time"] / second, point["energy"] / joule) for point in front],
        [f"{point['batch_size']}, {point['power_limit']:g} W" for point in front],
        _obstacles(data["points"], front, second, joule),
    )
    left.legend(loc="upper left")
    return figure


def _draw_11(data: Data) -> Figure:
    figure, (axes,) = style.panels(width=7.6, height=5)
    units = _units(data["points"])
    second, joule = (unit.size for unit in units)
    front = _scatter(axes, data, units, with_default=False)
    chosen: dict[tuple[float, float], list[float]] = {}
    for choice in data["choices"]:
        place = (choice["time"] / second, choice["energy"] / joule)
        chosen.setdefault(place, []).append(choice["eta"])
    _zoom(axes, front, units, margin=0.3)
    low, high = axes.get_xlim()
    times = np.array([low, high])
    first = True
    for place, etas in chosen.items():
        eta = etas[len(etas) // 2]
        choice = next(each for each in data["choices"] if each["eta"] == eta)
        if eta > 0:
            # The energy at which the cost is as large as at the optimum.
            of_time = zeus_cost(0 * times, times * second, data["max_power"], eta)
            energy = (choice["cost"] - of_time) / eta
            axes.plot(
                times, energy / joule, linestyle=":", color=colors.AMBER, linewidth=1.4,
                label="Same cost" if first else None,
            )  # fmt: skip
            first = False
        axes.plot(*place, "D", color=colors.GREEN, markersize=8, zorder=4)
    axes.plot([], [], "D", color=colors.GREEN, label="Chosen by eta")
    _label_axes(axes, units)
    style.label_points(
        axes,
        list(chosen),
        [
            f"eta {min(etas):g}" + (f" to {max(etas):g}" if len(etas) > 1 else "")
            for etas in chosen.values()
        ],
        _obstacles(data["points"], front, second, joule),
    )
    style.legend_below(figure, axes, 5)
    return figure


def _draw_16(data: Data) -> Figure:
    workloads = data["workloads"]
    figure, axes = style.panel_for_each(workloads)
    for panel, (title, found) in zip(axes, workloads.items(), strict=True):
        points = found["points"]
        front = [p for p in points if p["front"] or p["default"]]
        units = (
            time_unit(max(p["time"] for p in front)),
            energy_unit(max(p["energy"] for p in front)),
        )
        _scatter(panel, found, units, size=12)
        _zoom(panel, front, units, margin=0.15)
        _label_axes(panel, units)
        panel.set_title(title)
    style.legend_below(figure, axes[0])
    return figure
