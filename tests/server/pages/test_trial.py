"""The page of a trial, and pages that compare two trials or two jobs."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from tests.server.pages.asking import OURS, ask, text_of
from tests.server.pages.conftest import EVIL_NOTE, HOSTILE

from zeus.optimizer.batch_size.api._commands import ListEpochs, ListTrials
from zeus.server.pages._units import joules, seconds, total_joules

JOB = "/jobs/nightly-bert"


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_a_trial_has_its_curve_and_what_its_epochs_took(site):
    (trial,) = site.life.jobs.do(ListTrials(job="nightly-bert", before=6, most=1))
    epochs = site.life.jobs.do(ListEpochs(trial=trial.trial))
    answer = ask(site.server, f"{JOB}/trials/{trial.number}")
    text = answer.page().text
    assert "Trial 5" in text
    assert plain(f"Energy {total_joules(trial.energy, 4)} Time {seconds(trial.time)}") in text
    assert f"Why this batch size: {trial.reason}." in text
    assert f"How it ended: {trial.note}." in text
    said = [plain(each) for each in re.findall("<title>(trial 5, [^<]+)</title>", answer.text)]
    for epoch in epochs:
        where = f"trial 5, batch size {trial.batch_size}, epoch {epoch.epoch}: "
        for value in (f"{epoch.metric:.5g}", joules(epoch.energy), seconds(epoch.time)):
            # In both drawings, for wide windows and for phones.
            assert said.count(where + plain(value)) == 2
        assert f"{where}{epoch.power_limit:g} W" in said
    assert "other recent trials of the job" in text
    assert f"{JOB}/trials/5" in ask(site.server, f"{JOB}?before=10").page().links()


def test_two_trials_beside_each_other(site):
    text = text_of(site.server, f"{JOB}/trials/5?with=2")
    other = site.life.jobs.do(ListTrials(job="nightly-bert", before=3, most=1))[0]
    assert f"trial 2, batch size {other.batch_size}" in text
    assert plain(f"trial 2: {joules(other.energy)}") in text
    alone = text_of(site.server, f"{JOB}/trials/5")
    for odd in ("5", "999", "x", ""):
        assert text_of(site.server, f"{JOB}/trials/5?with={odd}") == alone


@pytest.mark.parametrize("number", ["0", "999", "x", "-1", "9" * 40])
def test_a_trial_that_is_not_there(site, number):
    answer = ask(site.server, f"{JOB}/trials/{number}")
    assert answer.status == 404
    assert "has no trial" in answer.page().text


def test_what_is_not_known_of_a_trial(site):
    path = f"/jobs/{quote(HOSTILE, safe='')}/trials"
    (last,) = site.life.jobs.do(ListTrials(job=HOSTILE, most=1))
    answer = ask(site.server, f"{path}/{last.number}")
    text = answer.page().text
    assert "Its energy was not measured." in text
    assert "It reported no validation metric." in text
    assert "Unknown: its reports do not say it." in text
    assert "Energy unknown" in text
    assert EVIL_NOTE in text
    assert {tag for tag, _ in answer.page().elements} <= OURS


def test_two_jobs_beside_each_other(site):
    answer = ask(site.server, f"{JOB}/compare?with={quote(HOSTILE)}")
    assert answer.status == 303
    where = f"{JOB}/compare/{quote(HOSTILE, safe='')}"
    assert answer.headers["location"] == where
    page = ask(site.server, where)
    text = page.page().text
    assert "nightly-bert and <img" in text
    assert re.search(r"energy saved −?\d+\.\d % · ", text)
    assert "break-even in energy" in text
    assert "nightly-bert, recurrence 27: " in page.text
    assert "onclick" not in page.text.replace("&lt;b onclick", "")
    assert {tag for tag, _ in page.page().elements} <= OURS
    nothing = text_of(site.server, f"/jobs/empty/compare/{quote('empty')}")
    assert "neither job can be compared with its default" in nothing
    assert ask(site.server, f"{JOB}/compare/none").status == 404
    assert ask(site.server, f"{JOB}/compare?with=").headers["location"] == JOB


def test_a_token_for_one_job_compares_no_other(guarded):
    bearer = {"Authorization": f"Bearer {guarded.one_job}"}
    assert ask(guarded.server, "/jobs/mine/compare/theirs", **bearer).status == 403
    assert ask(guarded.server, "/jobs/theirs/trials/1", **bearer).status == 403
    assert "Compare with another job" not in ask(guarded.server, "/jobs/mine", **bearer).text
