"""Pages over HTTP: what they are sent with, what they say, and to whom."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from tests.server.child import serving
from tests.server.pages.asking import OURS, ask
from tests.server.pages.conftest import EVIL_GPU, EVIL_NOTE, HOSTILE
from tests.server.pages.world import service, spec

from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
)
from zeus.optimizer.batch_size.storage import writing_jobs
from zeus.store import Store

JOB = "/jobs/nightly-bert"
HOSTILE_JOB = f"/jobs/{quote(HOSTILE, safe='')}"


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
