"""The figures' numbers, against the same worked out in another way from the files themselves."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict

import numpy as np
import pytest

from paper.figures import CATALOGUE
from paper.lab import Lab
from zeus.replay._study import study
from zeus.replay._traces import load_traces

SEEDS = 4


@pytest.fixture(scope="module")
def lab(traces):
    return Lab(load_traces(traces / "nsdi23", ["v100"]), SEEDS)


def of_deepspeech2(traces):
    """Mean seconds and joules until the target by batch size and power limit, on the V100."""
    folder = traces / "nsdi23"
    epochs = defaultdict(list)
    for row in csv.DictReader((folder / "summary_train.csv").read_text().splitlines()):
        if row["dataset"] == "librispeech" and float(row["target_metric"]) == 40.0:
            epochs[row["batch_size"]].append(float(row["target_epoch"]))
    found = {}
    for row in csv.DictReader((folder / "summary_power_v100.csv").read_text().splitlines()):
        if row["dataset"] == "librispeech" and row["batch_size"] in epochs:
            time = statistics.fmean(epochs[row["batch_size"]]) * float(row["time_per_epoch"])
            setting = int(row["batch_size"]), float(row["power_limit"])
            found[setting] = time, time * float(row["average_power"])
    return found


def test_savings_of_figure_1(lab, traces):
    figures = of_deepspeech2(traces)
    _, default = figures[192, 250]
    shown = CATALOGUE["figure-1"](lab).data["gpus"]["v100"]["DeepSpeech2"]
    assert shown["batch_size"] == pytest.approx(
        min(energy for (_, limit), (_, energy) in figures.items() if limit == 250) / default
    )
    assert shown["power_limit"] == pytest.approx(
        min(energy for (size, _), (_, energy) in figures.items() if size == 192) / default
    )
    assert shown["both"] == pytest.approx(min(e for _, e in figures.values()) / default)


def test_pareto_front_of_figure_2(lab, traces):
    figures = of_deepspeech2(traces)
    front = {
        setting
        for setting, (time, energy) in figures.items()
        if not any(t <= time and e <= energy and (t, e) != (time, energy)
                   for t, e in figures.values())
    }  # fmt: skip
    points = CATALOGUE["figure-2"](lab).data["points"]
    assert len(points) == len(figures)
    assert {(p["batch_size"], p["power_limit"]) for p in points if p["front"]} == front
    (default,) = (p for p in points if p["default"])
    assert (default["batch_size"], default["power_limit"]) == (192, 250)


def test_figures_6_and_19_are_what_zeus_replay_reports(lab):
    tables = [lab.table(workload.name) for workload in lab.workloads()]
    energy = CATALOGUE["figure-6"](lab).data["gpus"]["v100"]
    regret = CATALOGUE["figure-19"](lab).data["workloads"]
    for policy in ("grid", "paper", "zeus"):
        records = study(tables, policy, range(SEEDS))
        for workload in lab.workloads():
            mine = [record for record in records if record.workload == workload.name]
            shown = energy[workload.title][policy]
            assert shown["energy"] == pytest.approx(
                np.mean([record.eta_last5_vs_default for record in mine])
            )
            assert shown["time"] == pytest.approx(
                np.mean([record.tta_last5_vs_default for record in mine])
            )
            assert regret[workload.title]["policies"][policy]["final"] == pytest.approx(
                np.mean([record.cumulative_regret for record in mine]), abs=1e-6
            )


def test_published_numbers_come_out(lab):
    for name in ("figure-1", "figure-2", "figure-8", "figure-11", "figure-16"):
        for fact in CATALOGUE[name](lab).facts:
            assert fact.agrees is not False, fact
    joint = next(f for f in CATALOGUE["figure-1"](lab).facts if "both" in f.what)
    assert joint.published == joint.ours == "23.8 % to 74.7 %"
    sweep = CATALOGUE["figure-12"](lab).data
    means = sweep["gpus"]["v100"]["mean"]
    assert sweep["betas"][means.index(min(means))] == 2.0


def test_trials_of_figure_4_are_all_there_were(lab):
    trials = lab.trials("deepspeech2", "paper", 0)
    runs = lab.runs("paper")["deepspeech2"]
    by_recurrence = defaultdict(list)
    for trial in trials:
        by_recurrence[trial.recurrence].append(trial)
    assert len(by_recurrence) == runs.cost.shape[1]
    for recurrence, mine in by_recurrence.items():
        assert len(mine) == runs.trials[0, recurrence]
        assert sum(trial.cost for trial in mine) == pytest.approx(runs.cost[0, recurrence])
        assert mine[-1].converged
        assert not any(trial.converged for trial in mine[:-1])


def test_every_component_is_good_for_something(lab):
    found = CATALOGUE["figure-13"](lab).data["gpus"]["v100"]
    means = {
        label: float(np.exp(np.mean(np.log(list(each["energy"].values())))))
        for label, each in found.items()
    }
    assert all(mean > 1 for mean in means.values())
    assert max(means, key=means.__getitem__) == "Without early stopping"


def test_a_search_gains_from_sharing_its_profiles(lab):
    found = CATALOGUE["section-7"](lab).data["kinds"]
    for kind in ("default", "any", "short"):
        for title, each in found[kind].items():
            assert each["shared"]["cost"] < min(1, each["own"]["cost"]), (kind, title)
    # A trial of one epoch that profiles by itself costs more than it saves, for most workloads.
    assert sum(each["own"]["cost"] > 1 for each in found["short"].values()) >= 4
