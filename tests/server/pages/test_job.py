"""The page of one job: what it says, and of what is not known."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from tests.present import present
from tests.server.pages.asking import OURS, ask, text_of
from tests.server.pages.conftest import HOSTILE
from tests.server.pages.world import A40, spec

from zeus.frontier import Frontier, Point
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    DeleteJob,
    ListTrials,
    PutProfile,
    PutSize,
    ReportEpoch,
)

JOB = "/jobs/nightly-bert"
HOSTILE_JOB = f"/jobs/{quote(HOSTILE, safe='')}"


def test_one_job(site):
    text = ask(site.server, JOB).page().text
    trials = site.life.jobs.do(ListTrials(job="nightly-bert"))
    assert "Metric ≥ 0.9 within 60 epochs, default batch size 256." in text
    assert f"Recurrences 28 {len(trials)} trials" in text
    assert "Running now" in text
    assert "of 0.9" in text
    assert re.search(r"Energy saved −?\d+\.\d % · −?\d", text)
    assert re.search(r"Time saved −?\d+\.\d % · −?\d", text)
    assert re.search(r"Cost saved −?\d+\.\d % · −?\d", text)
    assert re.search(r"Break-even (recurrence \d+ from then on less energy|not yet)", text)
    assert "On NVIDIA A40 a run takes" in text
    assert "at full power" in text
    # It never ran with the default there.
    assert "On Tesla V100-PCIE-32GB a run " in text
    assert "predicted by the policy, not measured" in text
    assert f"/{quote('nightly-bert')}/export.json" in ask(site.server, JOB).text


def test_unknown_is_not_zero(site):
    # Its energy was not measured, so the sum is a lower bound.
    assert "at least" in ask(site.server, HOSTILE_JOB).page().text
    text = ask(site.server, "/jobs/empty").page().text
    assert "Energy saved unknown no run has reached the target yet" in text
    assert "No trial has run yet" in text


@pytest.mark.parametrize("policy", ["zeus", "paper", "grid"])
def test_odd_values_are_shown_too(site, policy):
    jobs, name = site.life.jobs, f"odd {policy}"
    limits = (1.0, 1e9) if policy == "grid" else ()
    jobs.do(
        CreateJob(
            spec=spec(
                name,
                batch_sizes=range(1, 257),
                eta_knob=1.0,
                target_metric=-1e150,
                higher_is_better=False,
                policy=policy,
                power_limits=limits,
                beta=None,
                profile_key="<b>search",
            )
        )
    )
    path = f"/jobs/{quote(name)}"
    for energy, seconds, metric in (
        (0.0, 1e-9, -1e150),  # a run that cost nothing
        (1e15, 1e9, 1e150),
        (1e-6, 1e9, -1e150),
        (None, 1.0, None),
    ):
        trial = jobs.do(Decide(job=name, gpu="X" * 200, gpus=1_000_000, max_power=1e9)).trial
        assert ask(site.server, path).status == 200
        jobs.do(ReportEpoch(trial=trial, epoch=1, time=seconds, energy=energy, metric=metric))
        answer = ask(site.server, path)
        assert answer.status == 200
        assert " nan" not in answer.text
        assert '="nan' not in answer.text
        answer.page()
    points = [Point(knob, 1.0, 2.0) for knob in (100, "<b>", (1, 2), {"a": 1})]
    jobs.do(
        PutProfile(
            job=name,
            gpu="X" * 200,
            gpus=1_000_000,
            batch_size=1,
            frontier=Frontier(points, knob_name="<u>", knob_unit="<i>", work="<s>").to_dict(),
            power_limit=100.0,
        )
    )
    answer = ask(site.server, path)
    assert answer.status == 200
    assert {tag for tag, _ in answer.page().elements} <= OURS
    assert "Power profiles shared by jobs with the key '<b>search'" in answer.page().text


def test_costs_are_those_of_the_gpu_that_is_asked_for(site):
    def about(query):
        return present(
            re.search(r"Cost of each batch size On (.+?)\.", text_of(site.server, f"{JOB}{query}"))
        )[1]

    # It runs there now.
    assert about("") == A40
    assert about("?gpu=1x%20Tesla%20V100-PCIE-32GB") == "Tesla V100-PCIE-32GB"
    assert about("?gpu=1x%20none") == about("?gpu=") == about("?gpu=x") == A40


def test_batch_sizes_of_which_only_steps_were_measured_say_so(site):
    jobs = site.life.jobs
    jobs.do(CreateJob(spec=spec("steps", batch_sizes=(16, 32, 64), default_batch_size=32)))
    for size, cost in ((32, 90.0), (16, 100.0), (64, None)):
        jobs.do(PutSize(job="steps", gpu="A40", batch_size=size, epoch_cost=cost))
    trial = jobs.do(Decide(job="steps", gpu="A40", max_power=300.0, default=True)).trial
    jobs.do(ReportEpoch(trial=trial, epoch=1, time=1.0, energy=90.0, metric=0.95))
    shown = text_of(site.server, "/jobs/steps")
    assert re.search(r"16 \((next, )?not tried yet, steps measured\)", shown)
    assert "64 (fails to run)" in shown
    jobs.do(DeleteJob(job="steps"))


def _recurrences(site, query):
    section = ask(site.server, f"{JOB}{query}").text.partition('<section id="trials"')[2]
    return [int(number) for number in re.findall(r'<th scope="row"><a [^>]*>(\d+)', section)]


def test_trials_page_by_page(site):
    first = _recurrences(site, "")
    assert first == sorted(first, reverse=True)
    assert (len(first), first[0]) == (25, 28)
    (older,) = {
        link
        for link in ask(site.server, JOB).page().links()
        if "before=" in link and "#trials" in link
    }
    second = _recurrences(site, older.partition("?")[2].partition("#")[0].join(["?", ""]))
    assert second[-1] == 1
    assert len(first) + len(second) == len(site.life.jobs.do(ListTrials(job="nightly-bert")))
    assert "Latest" in text_of(site.server, f"{JOB}?before=3")
    assert _recurrences(site, "?before=0") == []
    for odd in ("-1", "x", "9" * 50, "²"):
        assert _recurrences(site, f"?before={quote(odd)}") == first
