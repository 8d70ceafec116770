"""Pages over HTTP: what they are sent with, what they say, and to whom."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from tests.present import present
from tests.server.child import serving
from tests.server.pages.asking import ask
from tests.server.pages.conftest import EVIL_GPU, EVIL_NOTE, HOSTILE
from tests.server.pages.world import A40, service, spec

from zeus.frontier import Frontier, Point
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    ListTrials,
    PutProfile,
    ReportEpoch,
    ShowJob,
    ShowLog,
    ShowProfiles,
)
from zeus.optimizer.batch_size.storage import writing_jobs
from zeus.store import Store

JOB = "/jobs/nightly-bert"
HOSTILE_JOB = f"/jobs/{quote(HOSTILE, safe='')}"
# What an element of ours may be; anything else came in with a text.
OURS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "footer"),
    *("div", "section", "h1", "h2", "h3", "p", "a", "span", "bdi", "time", "pre", "code"),
    *("dl", "dt", "dd", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "form", "input", "label", "button"),
    *("figure", "figcaption", "svg", "path", "circle", "polyline", "text"),
}


@pytest.mark.parametrize("path", ["/jobs", JOB, HOSTILE_JOB, "/jobs/empty", "/jobs/none"])
def test_nothing_is_inline_or_from_elsewhere(site, path):
    answer = ask(site.server, path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = answer.page()
    assert {tag for tag, _ in page.elements} <= OURS
    assert page.open == []
    names = {name for _, attributes in page.elements for name in attributes}
    assert not any(name.startswith("on") or name == "style" for name in names)
    assert all(link.startswith(("/", "#")) and link[:2] != "//" for link in page.links() if link)
    # Whatever an `id` names is there once.
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_whatever_a_job_is_called_is_only_text(site):
    listed = ask(site.server, "/jobs").page()
    assert HOSTILE in listed.text
    assert HOSTILE_JOB in listed.links()
    shown = ask(site.server, HOSTILE_JOB)
    assert shown.status == 200
    text = shown.page().text
    for said in (HOSTILE, EVIL_GPU, EVIL_NOTE):
        assert said in text
    assert json.loads(ask(site.server, f"{HOSTILE_JOB}/export.json").text)["job"]["name"] == HOSTILE


def test_one_job(site):
    text = ask(site.server, JOB).page().text
    trials = site.life.jobs.do(ListTrials(job="nightly-bert"))
    assert "Metric ≥ 0.9 within 60 epochs, default batch size 256." in text
    assert f"Recurrences 28 {len(trials)} trials" in text
    assert "Running now" in text
    assert "of 0.9" in text
    assert re.search(r"Saved so far −?\d+\.\d % \d", text)
    assert "On NVIDIA A40 it costs" in text
    assert "at full power" in text
    # It never ran with the default there.
    assert "On Tesla V100-PCIE-32GB it costs" in text
    assert "expected by the policy, not measured" in text
    assert f"/{quote('nightly-bert')}/export.json" in ask(site.server, JOB).text


def test_unknown_is_not_zero(site):
    # Its energy was not measured, so the sum is a lower bound.
    assert "at least" in ask(site.server, HOSTILE_JOB).page().text
    text = ask(site.server, "/jobs/empty").page().text
    assert "Saved so far unknown no run has converged yet" in text
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


def test_costs_are_those_of_the_gpu_that_is_asked_for(site):
    def about(query):
        return present(
            re.search(r"Cost of each batch size On (.+?)\.", _text(site, f"{JOB}{query}"))
        )[1]

    # It runs there now.
    assert about("") == A40
    assert about("?gpu=1x%20Tesla%20V100-PCIE-32GB") == "Tesla V100-PCIE-32GB"
    assert about("?gpu=1x%20none") == about("?gpu=") == about("?gpu=x") == A40


def _text(site, path):
    answer = ask(site.server, path)
    assert answer.status == 200
    return answer.page().text


def _recurrences(site, query):
    section = ask(site.server, f"{JOB}{query}").text.partition('<section id="trials"')[2]
    return [int(number) for number in re.findall(r'<tr[^>]*><th scope="row">(\d+)', section)]


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
    assert "Latest" in _text(site, f"{JOB}?before=3")
    assert _recurrences(site, "?before=0") == []
    for odd in ("-1", "x", "9" * 50, "²"):
        assert _recurrences(site, f"?before={quote(odd)}") == first


def test_the_list_is_filtered(site):
    assert "nightly-bert" in _text(site, "/jobs?q=NIGHTLY&running=1")
    assert "empty" not in _text(site, "/jobs?q=NIGHTLY")
    assert "No job matches" in _text(site, "/jobs?q=none")
    assert "No job matches" in _text(site, "/jobs?q=empty&running=1")
    assert "empty" in _text(site, f"/jobs?q={quote(chr(0))}&after={quote(chr(0xD800 - 1))}")


def test_everything_as_json(site):
    answer = ask(site.server, f"{JOB}/export.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"].startswith("attachment")
    found = json.loads(answer.text)
    jobs = site.life.jobs
    assert found["job"] == jobs.do(ShowJob(job="nightly-bert")).to_dict()
    assert found["trials"] == [each.to_dict() for each in jobs.do(ListTrials(job="nightly-bert"))]
    assert found["profiles"] == [
        each.to_dict() for each in jobs.do(ShowProfiles(job="nightly-bert"))
    ]
    assert found["log"] == jobs.do(ShowLog(job="nightly-bert", most=1_000))


def test_errors_are_pages_for_people_and_json_for_programs(site):
    for path, said in (
        ("/jobs/none", "There is no job 'none'."),
        ("/jobs/none/export.json", "There is no job 'none'."),
        ("/nowhere", "There is no page at this URL."),
    ):
        answer = ask(site.server, path)
        assert answer.status == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert said in answer.page().text
        assert "/jobs" in answer.page().links()
        program = ask(site.server, path, Accept="*/*")
        assert program.status == 404
        assert "error" in json.loads(program.text)
    assert ask(site.server, "/jobs", "POST").status == 405
    assert json.loads(ask(site.server, "/api/jobs/none").text)["error"]["kind"] == "UnknownJobError"
    elsewhere = ask(site.server, "/jobs", Host="evil.example")
    assert (elsewhere.status, "loopback" in elsewhere.page().text) == (403, True)


def test_heads_and_the_way_home(site):
    assert ask(site.server, "/jobs", "HEAD").status == 200
    home = ask(site.server, "/")
    assert (home.status, home.location) == (303, "/jobs")
    # There is nobody to sign in where no tokens are required.
    assert ask(site.server, "/sign-in").location == "/jobs"
    assert ask(site.server, "/sign-in", "POST", "token=x").location == "/jobs"


def test_files_are_kept_as_long_as_they_are_the_same(site):
    page = ask(site.server, "/jobs").page()
    files = [link for link in page.links() if link.startswith("/assets/")]
    assert len(files) == 3
    for link in files:
        answer = ask(site.server, link)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
        assert ask(site.server, link.partition("?")[0]).headers["cache-control"] == "no-cache"
        assert "url(" not in answer.text
        assert "@import" not in answer.text
    assert ask(site.server, "/assets/..%2F__init__.py").status == 404
    assert ask(site.server, "/assets/routes.py").status == 404


def test_a_store_that_fails_is_a_page_too(tmp_path):
    storage = f"sqlite:///{tmp_path}/jobs.db"
    jobs, _ = service(storage)
    jobs.do(CreateJob(spec=spec()))
    jobs.close()
    with serving(storage, complaints=True) as server:
        store = Store(storage)
        with writing_jobs(store) as transaction:
            transaction._connection.exec_driver_sql("ALTER TABLE zeus_trials RENAME TO gone")
        store.close()
        answer = ask(server, JOB, **server.bearer)
        assert answer.status == 503
        assert "The store of this server is unavailable for now." in answer.page().text
        assert "Traceback" not in answer.text
        assert "zeus_trials" not in answer.text
