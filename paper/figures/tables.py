"""Tables 1 and 2, the cost of profiling (section 6.5), and the drawing of Figure 3."""

from __future__ import annotations

import math
import statistics

import numpy as np

from paper.exhibit import Exhibit, Fact, Listing, percent
from paper.lab import Lab
from paper.product import WORKLOADS, JobTable, TrainingRow, Workload

_TASKS = {
    "deepspeech2": ("Speech Recognition", "LibriSpeech", "AdamW", 192, "WER = 40.0 %"),
    "bert_qa": ("Question Answering", "SQuAD", "AdamW", 32, "F1 = 84.0"),
    "bert_sa": ("Sentiment Analysis", "Sentiment140", "AdamW", 128, "Acc. = 84 %"),
    "resnet50": ("Image Classification", "ImageNet", "Adadelta", 256, "Acc. = 65 %"),
    "shufflenetv2": ("Image Classification", "CIFAR-100", "Adadelta", 1024, "Acc. = 60 %"),
    "neumf": ("Recommendation", "MovieLens-1M", "Adam", 1024, "NDCG = 0.41"),
}
_GPUS = {
    "a40": ("A40 PCIe", "48 GB", "Ampere"),
    "v100": ("V100 PCIe", "32 GB", "Volta"),
    "rtx6000": ("RTX6000", "24 GB", "Turing"),
    "p100": ("P100", "16 GB", "Pascal"),
}
#: Published change of energy and time by profiling.
_MEASURED = {"deepspeech2": (0.0001, 0.0003), "shufflenetv2": (-0.028, 0.006)}
_FAR = 1.5  # times as long: more than measuring explains
_SECONDS = 5.0  # profiling time at each power limit (paper, section 5)


def table_1(lab: Lab) -> Exhibit:
    """List the workloads."""
    rows, data = [], {}
    for workload in WORKLOADS:
        task, dataset, optimizer, default, target = _TASKS[workload.name]
        here = [gpu for gpu in lab.gpus if workload in lab.workloads(gpu)]
        here.sort(key=lambda gpu: gpu != lab.gpu)  # the shown GPU comes first
        table = lab.table(workload.name, here[0]) if here else None
        sizes = "-" if table is None else f"{table.batch_sizes[0]} to {table.batch_sizes[-1]}"
        reached = "-"
        if table is not None:
            runs = [row.target_epoch for row in _recorded(lab, workload, table)]
            reached = f"{sum(epoch <= table.max_epochs for epoch in runs)} of {len(runs)}"
        used = [
            f"{lab.table(workload.name, gpu).batch_sizes[lab.table(workload.name, gpu).default]}"
            for gpu in here
        ]
        rows.append(
            (task, dataset, workload.title, optimizer, str(default), target,
             ", ".join(dict.fromkeys(used)) or "-", sizes, reached)
        )  # fmt: skip
        data[workload.title] = {
            "default_batch_size": default,
            "default_used": {
                gpu: lab.table(workload.name, gpu).batch_sizes[
                    lab.table(workload.name, gpu).default
                ]
                for gpu in here
            },
            "batch_sizes": list(table.batch_sizes) if table is not None else [],
        }
    return Exhibit(
        name="table-1",
        title="Table 1",
        subject="Models and data sets",
        caption=(
            "The first six columns are the paper's; the others come from the traces: the default "
            f"that is used, batch sizes recorded on {lab.gpu.upper()} (or the first GPU that has "
            "the workload), and runs of these that reach the target."
        ),
        data=data,
        listing=Listing(
            (
                "Task", "Dataset", "Model", "Optimizer", "b₀", "Target",
                "b₀ used here", "Batch sizes", "Runs that reach it",
            ),
            rows,
        ),
        facts=(
            Fact(
                "runs of each combination",
                "section 6.1",
                "four different random seeds for every combination",
                _runs(lab),
                "The published traces hold other numbers of runs than the text says. A combination "
                "that was never trained is not offered.",
                agrees=None,
            ),
        ),
    )  # fmt: skip


def _recorded(lab: Lab, workload: Workload, table: JobTable) -> list[TrainingRow]:
    """Return the runs of all batch sizes that have a power trace."""
    return [
        row
        for row in lab.traces.training[workload.key]
        if math.isclose(row.target_metric, workload.target_metric)
        and row.batch_size in table.batch_sizes
        and workload.admits(row.batch_size, row.learning_rate)
    ]


def _runs(lab: Lab) -> str:
    """Describe the number of runs of each combination."""
    counts = []
    for workload in lab.workloads():
        sizes = [row.batch_size for row in _recorded(lab, workload, lab.table(workload.name))]
        swept = {row.batch_size for row in lab.traces.power[lab.gpu][workload.key]}
        counts += [sizes.count(size) for size in swept]
    trained = [count for count in counts if count]
    return (
        f"{min(trained)} to {max(trained)} runs, {statistics.median(trained):g} in the median; "
        f"{counts.count(0)} of {len(counts)} combinations with a power trace were never trained"
    )


def table_2(lab: Lab) -> Exhibit:
    """List the GPUs."""
    rows, data = [], {}
    for gpu in dict.fromkeys((*_GPUS, *lab.gpus)):
        model, memory, architecture = _GPUS.get(gpu, (gpu.upper(), "-", "-"))
        if gpu in lab.gpus:
            limits = sorted(
                {
                    limit
                    for workload in lab.workloads(gpu)
                    for limit in lab.table(workload.name, gpu).power_limits
                }
            )
            found = f"{limits[0]:g} to {limits[-1]:g} W"
            data[gpu] = {"power_limits": limits, "workloads": len(lab.workloads(gpu))}
            rows.append((model, memory, architecture, found, str(len(lab.workloads(gpu)))))
        else:
            rows.append((model, memory, architecture, "no power trace in the folder", "-"))
    return Exhibit(
        name="table-2",
        title="Table 2",
        subject="GPUs",
        caption=(
            "The first three columns are the paper's; the others come from the traces, which do "
            "not describe hosts."
        ),
        data=data,
        listing=Listing(
            ("GPU", "Memory", "Architecture", "Power limits recorded", "Workloads"), rows
        ),
    )


def section_6_5(lab: Lab) -> Exhibit:
    """Cost of just-in-time profiling."""
    published = {name: tuple(map(_shown, values)) for name, values in _MEASURED.items()}
    rows, facts, data = [], [], {}
    for workload in lab.workloads():
        energy, time = _overhead(lab.table(workload.name))
        data[workload.title] = {"energy": energy, "time": time}
        stated = published.get(workload.name, ("-", "-"))
        rows.append((workload.title, stated[0], percent(energy, 2), stated[1], percent(time, 2)))
        if workload.name in published and lab.is_papers_gpu:
            wanted = _MEASURED[workload.name]
            longer = wanted[0] / energy if energy * wanted[0] > 0 else 0.0
            facts.append(
                Fact(
                    f"overhead of profiling, {workload.title}",
                    "section 6.5",
                    f"energy {stated[0]}, time {stated[1]}",
                    f"energy {percent(energy, 2)}, time {percent(time, 2)}",
                    "Theirs was measured; ours is computed from the power trace: five seconds at "
                    "each power limit, against the same work at the highest limit. Replays for "
                    "other figures count the whole first epoch of a batch size as profiling."
                    + (
                        f" Longer slices do not explain the energy: they would have to be "
                        f"{longer:.1f} times as long, and time would be {percent(longer * time)}."
                        if longer > _FAR
                        else ""
                    ),
                    agrees=None,
                )
            )
    return Exhibit(
        name="section-6.5",
        title="Section 6.5",
        subject="Cost of profiling power limits in the first epoch",
        caption=(
            f"Default batch size on {lab.gpu.upper()}: five seconds at each power limit, then the "
            "highest, against the highest throughout."
        ),
        data=data,
        listing=Listing(
            ("Workload", "Energy, paper", "Energy, ours", "Time, paper", "Time, ours"), rows
        ),
        facts=facts,
    )


def _shown(change: float) -> str:
    """Format a change with as many digits as the paper does."""
    return percent(change, 2 if abs(change) < 0.001 else 1)


def _overhead(table: JobTable) -> tuple[float, float]:
    """Return the relative change of energy and time by profiling, against the highest limit."""
    arm = table.default
    known = np.isfinite(table.time[arm])
    time, power = table.time[arm][known], table.power[arm][known]
    default_energy, default_time = table.default_expectation()
    # Each slice does a fraction of an epoch, which would be faster at the highest limit.
    done = _SECONDS / time
    extra_time = float((_SECONDS - done * time[-1]).sum())
    extra_energy = float((_SECONDS * power - done * time[-1] * power[-1]).sum())
    return extra_energy / default_energy, extra_time / default_time


def figure_3(lab: Lab) -> Exhibit:  # noqa: ARG001
    """The workflow, which cannot be recomputed."""
    return Exhibit(
        name="figure-3",
        title="Figure 3",
        subject="Zeus workflow",
        missing=(
            "A drawing of the components and their interaction; there is nothing to recompute. "
            "`docs/architecture.md` describes our implementation."
        ),
    )
