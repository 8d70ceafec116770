"""Section 6.6: several GPUs, and a batch size that follows goodput in the manner of Pollux."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from paper import style
from paper.exhibit import Data, Exhibit, Fact, Listing, percent
from paper.lab import LAST, Lab, Runs
from paper.pollux import ARCHIVE, Application, load_application, train
from paper.product import WORKLOADS, JobTable, TraceError, colors, energy_unit, time_unit
from paper.several_gpus import Outcome, exchange, follow_goodput, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GPU, _GPUS, _WORKLOAD = "a40", 4, "deepspeech2"
_ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BALANCED = _ETAS.index(0.5)
#: Applications whose batch size Pollux chooses; the artifact fixes that of the sixth, NCF.
_APPLICATIONS = {
    "deepspeech2": "DeepSpeech2",
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet",
    "yolov3": "YOLOv3",
    "bert": "BERT",
}
_TITLE, _SUBJECT = "Section 6.6", "Several GPUs, and a batch size that follows goodput"


def section_6_6(lab: Lab) -> Exhibit:
    """Zeus beside a goodput-driven batch size, on four GPUs."""
    archive = lab.traces.folder.parent / ARCHIVE
    reason = _obstacle(lab)
    applications: dict[str, Application] = {}
    if not reason:
        try:
            applications = {name: load_application(archive, name) for name in _APPLICATIONS}
        except TraceError as error:
            reason = f"It needs the traces of the Pollux artifact: {error}."
    if reason:
        return Exhibit(name="section-6.6", title=_TITLE, subject=_SUBJECT, missing=reason)
    own = applications[_WORKLOAD]
    table = _table(lab, own)
    goodput = follow_goodput(table, own)
    zeus = {policy: _zeus(lab, table, policy) for policy in ("paper", "zeus")}
    data: Data = {
        "gpus": f"{_GPUS} {_GPU.upper()}",
        "applications": {
            title: _courses(applications[name]) for name, title in _APPLICATIONS.items()
        },
        "configurations": _configurations(table),
        "goodput": vars(goodput),
        "zeus": zeus,
        "variants": _variants(lab, own),
    }
    return Exhibit(
        name="section-6.6",
        title=_TITLE,
        subject=_SUBJECT,
        caption=_caption(table, own),
        data=data,
        draw=_draw,
        listing=_listing(goodput, zeus),
        facts=_facts(data),
    )


def _obstacle(lab: Lab) -> str:
    """Return why it cannot be recomputed from the traces of this folder, if it cannot."""
    if _GPU not in lab.gpus:
        return f"It is about {_GPUS} {_GPU.upper()}, which have no power trace in the folder."
    if _WORKLOAD not in [workload.name for workload in lab.workloads(_GPU)]:
        return f"The power trace of {_GPU.upper()} has no DeepSpeech2."
    return ""


def _table(lab: Lab, steps: Application | None) -> JobTable:
    workload = next(each for each in WORKLOADS if each.name == _WORKLOAD)
    epochs: dict[int, list[float]] = {}
    for row in lab.traces.training[workload.key]:
        if row.target_metric == workload.target_metric:
            epochs.setdefault(row.batch_size, []).append(row.target_epoch)
    return spread(lab.table(_WORKLOAD, _GPU), epochs, _GPUS, steps)


def _caption(table: JobTable, steps: Application) -> str:
    """State every assumption."""
    small, large = (
        float(exchange(steps, np.array([table.batch_sizes[at] / _GPUS]), _GPUS)[0])
        for at in (0, -1)
    )
    return (
        "A model on a model: nobody published traces of this comparison. Left: five applications "
        "of the Pollux artifact on four T4 of one node, by its traces of steps and gradients; no "
        "power of these was recorded. Middle and right: DeepSpeech2 on four A40, made of both "
        "traces. Assumptions: a batch is divided evenly, and each GPU takes the time and power "
        "that one A40 was recorded with at its share (interpolated between recorded sizes); "
        f"exchanging gradients adds {percent(large, 0)} (largest batch) to {percent(small, 0)} "
        "(smallest) of a step, as on four T4, at any power limit; epochs to the target are those "
        f"recorded on one GPU with the same batch, from {table.batch_sizes[0]} samples on, the "
        "least with a recorded share. The goodput-driven run knows its throughput exactly, chooses "
        "among the batch sizes that reach the target and never sets a power limit. Its gradients "
        "are those of the Pollux trace (another speech data set) at the same fraction of the "
        "progress to the target; how they weigh the stages of training is kept, but a run with one "
        "batch size takes the epochs that the Zeus traces say. Changing the batch size costs "
        "nothing. Zeus: means of the last five recurrences of replayed jobs."
    )


def _courses(application: Application) -> Data:
    """Train an application with a batch size that follows goodput, and with each recorded one."""
    course = train(application, _GPUS)
    least = application.sizes(_GPUS)[0]
    return {
        "initial": application.initial,
        "seconds": course.seconds,
        "sizes": course.sizes,
        "fixed": {
            size: train(application, _GPUS, size).seconds
            for size in application.trainings
            if size >= least
        },
    }


def _configurations(table: JobTable) -> list[Data]:
    return [
        {
            "batch_size": table.batch_sizes[arm],
            "power_limit": limit,
            "time": float(epochs * table.time[arm, at]),
            "energy": float(epochs * table.energy[arm, at]),
        }
        for arm, epochs in enumerate(table.expected_epochs)
        for at, limit in enumerate(table.power_limits)
        if np.isfinite(epochs)
    ]


def _zeus(lab: Lab, table: JobTable, policy: str) -> list[Data]:
    """Return the energy and time that a policy converges to at each eta."""
    tables = [replace(table, eta_knob=eta) for eta in _ETAS]
    return [
        {"eta": eta, **_converged(runs)}
        for eta, runs in zip(_ETAS, lab.replayed(policy, tables), strict=True)
    ]


def _converged(runs: Runs) -> Data:
    choices = Counter(
        zip(
            runs.arm[:, -LAST:].astype(int).flat, runs.power[:, -LAST:].astype(int).flat,
            strict=True,
        )
    )  # fmt: skip
    (arm, limit), _ = choices.most_common(1)[0]
    return {
        "batch_size": runs.table.batch_sizes[arm],
        "power_limit": runs.table.power_limits[limit],
        "time": float(runs.time[:, -LAST:].mean()),
        "energy": float(runs.energy[:, -LAST:].mean()),
    }


def _variants(lab: Lab, own: Application) -> dict[str, Data]:
    """Change one assumption at a time, and compare with the best configuration at eta 0.5."""
    table, free = _table(lab, own), _table(lab, None)
    default = table.batch_sizes[table.default]
    limit = table.optimum.power
    watts = f"{table.power_limits[limit]:g} W"
    found = {
        "as assumed": (table, follow_goodput(table, own)),
        "exchanging gradients takes no time": (free, follow_goodput(free, own)),
        "every stage of training needs the same": (table, follow_goodput(table, own, alike=True)),
        f"the initial batch size is the default, {default}": (
            table,
            follow_goodput(table, own, least=default),
        ),
        "efficiency is known exactly": (table, follow_goodput(table, own, informed=True)),
        f"the goodput-driven run has Zeus's power limit, {watts}": (
            table,
            follow_goodput(table, own, limit=limit),
        ),
    }
    return {name: _compared(each, outcome) for name, (each, outcome) in found.items()}


def _compared(table: JobTable, outcome: Outcome) -> Data:
    best = table.optimum
    epochs = table.expected_epochs[best.arm]
    return {
        "goodput": vars(outcome),
        "batch_size": table.batch_sizes[best.arm],
        "power_limit": table.power_limits[best.power],
        "time": float(epochs * table.time[best.arm, best.power]) / outcome.time - 1,
        "energy": float(epochs * table.energy[best.arm, best.power]) / outcome.energy - 1,
    }


def _listing(goodput: Outcome, zeus: dict[str, list[Data]]) -> Listing:
    second, joule = time_unit(goodput.time), energy_unit(goodput.energy)

    def row(name: str, size: str, limit: str, time: float, energy: float) -> Sequence[str]:
        return (
            name, size, limit, f"{time / second.size:.2f}", f"{energy / joule.size:.2f}",
            percent(time / goodput.time - 1), percent(energy / goodput.energy - 1),
        )  # fmt: skip

    used = f"{min(goodput.sizes)} to {max(goodput.sizes)}"
    rows = [row("Goodput-driven", used, "highest", goodput.time, goodput.energy)]
    for policy, etas in zeus.items():
        rows += [
            row(
                f"{style.POLICIES[policy][0]}, eta {each['eta']:g}",
                str(each["batch_size"]),
                f"{each['power_limit']:g} W",
                each["time"],
                each["energy"],
            )
            for each in etas
        ]
    rows.append(("Paper: Zeus against Pollux", "-", "-", "-", "-", "+12 %", "−21 %"))
    head = (
        "Policy", "Batch size", "Power limit", f"Time ({second.name})", f"Energy ({joule.name})",
        "Time against goodput", "Energy against goodput",
    )  # fmt: skip
    return Listing(head, rows)


def _facts(data: Data) -> list[Fact]:
    goodput, variants = data["goodput"], data["variants"]
    ratios = [
        (each["eta"], each["time"] / goodput["time"] - 1, each["energy"] / goodput["energy"] - 1)
        for each in data["zeus"]["paper"]
    ]
    _, time, energy = ratios[_BALANCED]
    exact = variants["efficiency is known exactly"]
    limited = next(each for name, each in variants.items() if "power limit" in name)["goodput"]
    saved = limited["energy"] / goodput["energy"] - 1
    facts = [
        Fact(
            "Zeus against Pollux, DeepSpeech2 on four A40",
            "section 6.6",
            "12 % more time, 21 % less energy",
            f"Zeus as published, eta 0.5: time {percent(time)}, energy {percent(energy)}",
            "Theirs was measured, at an eta that is not stated; ours compares two models. "
            f"{percent(saved)} energy is the power limit's share: what it would change for "
            "goodput, which leaves it alone. The time depends on how well the noise scale predicts "
            "efficiency: against a run that knew efficiency exactly, the best configuration at eta "
            f"0.5 has {percent(exact['time'])} time and {percent(exact['energy'])} energy. The "
            "paper's runs had the gradients of LibriSpeech, which are in no trace.",
            agrees=None,
        ),
        Fact(
            "a different tradeoff point by eta",
            "section 6.6",
            "the user can select another point, such as more speed for more energy",
            "; ".join(
                f"eta {eta:g}: time {percent(time)}, energy {percent(energy)}"
                for eta, time, energy in ratios
            ),
            agrees=bool(ratios[0][1] < ratios[-1][1] and ratios[0][2] > ratios[-1][2]),
        ),
    ]
    facts += [
        Fact(
            f"if {name}" if name != "as assumed" else "with all assumptions of the caption",
            "not in the paper",
            "",
            f"time {percent(each['time'])}, energy {percent(each['energy'])}",
            f"Best configuration at eta 0.5 (batch size {each['batch_size']}, "
            f"{each['power_limit']:g} W) against goodput, which uses batch sizes "
            f"{min(each['goodput']['sizes'])} to {max(each['goodput']['sizes'])}.",
            agrees=None,
        )
        for name, each in variants.items()
    ]
    said = [
        f"{title} {percent(min(each['fixed'].values()) / each['seconds'] - 1, 0)} "
        f"to {percent(max(each['fixed'].values()) / each['seconds'] - 1, 0)}"
        for title, each in data["applications"].items()
    ]
    facts.append(
        Fact(
            "time with one batch size against goodput, four T4",
            "not in the paper",
            "",
            "; ".join(said),
            "From the best to the worst of the recorded batch sizes, until the progress of the "
            "recorded trainings is reached. Goodput comes close to the best of them, or beats it, "
            "without having tried them.",
            agrees=None,
        )
    )
    return facts


# --- drawing --------------------------------------------------------------------------------------


def _draw(data: Data) -> Figure:
    figure, (left, middle, right) = style.panels(1, 3, width=13, height=4.6)
    _draw_applications(left, data)
    _draw_sizes(middle, data)
    _draw_plane(right, data)
    return figure


def _draw_applications(axes: Axes, data: Data) -> None:
    for number, (title, each) in enumerate(data["applications"].items()):
        sizes = [int(size) / each["initial"] for size in each["fixed"]]
        axes.plot(
            sizes, [seconds / each["seconds"] for seconds in each["fixed"].values()],
            color=style.WORKLOADS[number], marker=style.MARKERS[number], markersize=5, label=title,
        )  # fmt: skip
    axes.axhline(1, color=style.INK, linestyle="--", linewidth=1, label="Follows goodput")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("Batch size against the initial one")
    axes.set_ylabel("Time against following goodput")
    axes.set_title("Pollux's traces, four T4")
    axes.legend(fontsize=8.5)


def _draw_sizes(axes: Axes, data: Data) -> None:
    exact = data["variants"]["efficiency is known exactly"]["goodput"]["sizes"]
    chosen = data["goodput"]["sizes"]
    done = (np.arange(len(chosen)) + 0.5) / len(chosen)
    color = colors.PURPLE
    axes.step(done, chosen, where="mid", color=color, label="Follows goodput")
    axes.step(done, exact, where="mid", color=color, linestyle=":", label="Efficiency known")
    for policy, line in (("zeus", "-"), ("paper", "--")):  # often the same: both can be seen
        name, color, marker, _ = style.POLICIES[policy]
        size = data["zeus"][policy][_BALANCED]["batch_size"]
        axes.plot(
            [0.02, 0.98], [size, size], color=color, marker=marker, linestyle=line,
            label=f"{name}, eta 0.5",
        )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(0, None)
    style.percent_axis(axes.xaxis)
    axes.set_xlabel("Progress to the target")
    axes.set_ylabel("Batch size (all GPUs)")
    axes.set_title(f"DeepSpeech2, {data['gpus']}")
    axes.legend(fontsize=8.5, loc="lower right")


def _draw_plane(axes: Axes, data: Data) -> None:
    goodput = data["goodput"]
    second, joule = time_unit(goodput["time"]), energy_unit(goodput["energy"])

    def place(each: Data) -> tuple[float, float]:
        return each["time"] / second.size, each["energy"] / joule.size

    points = [place(each) for each in data["configurations"]]
    times, energies = zip(*points, strict=True)
    axes.scatter(
        times, energies, s=12, color=colors.GRAY, linewidths=0,
        label="Configuration",
    )  # fmt: skip
    for policy in ("zeus", "paper"):
        name, color, marker, _ = style.POLICIES[policy]
        axes.plot(
            *zip(*(place(each) for each in data["zeus"][policy]), strict=True), color=color,
            marker=marker, markersize=6, linewidth=1, label=name,
        )  # fmt: skip
    axes.plot(
        *place(goodput), color=colors.PURPLE, marker="P", markersize=11, linestyle="none",
        label="Follows goodput",
    )  # fmt: skip
    x, y = place(goodput)
    axes.plot(
        1.12 * x, 0.79 * y, color=style.INK, marker="x", markersize=8, linestyle="none",
        label="Paper's ratios",
    )  # fmt: skip
    axes.set_xlim(0.85 * x, 1.5 * x)
    axes.set_ylim(0.65 * y, 1.2 * y)
    axes.set_xlabel(f"Time to target ({second.name})")
    axes.set_ylabel(f"Energy to target ({joule.name})")
    axes.set_title("Energy against time")
    shown = [place(each) for each in data["zeus"]["paper"]]
    style.label_points(
        axes,
        shown,
        [f"{each['eta']:g}" for each in data["zeus"]["paper"]],
        [*points, (x, y)],
    )
    axes.legend(fontsize=8.5, loc="lower right")
