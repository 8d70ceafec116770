"""The list of jobs: filtered by what one types, and page by page."""

from __future__ import annotations

import re
from urllib.parse import quote

from tests.server.child import serving
from tests.server.pages.asking import ask, text_of
from tests.server.pages.conftest import HOSTILE
from tests.server.pages.world import service, spec

from zeus.optimizer.batch_size.api._commands import CreateJob, ShowJob, TagJob
from zeus.server.pages._units import joules, percent


def test_the_list_is_filtered(site):
    assert "nightly-bert" in text_of(site.server, "/jobs?q=NIGHTLY&state=running")
    assert "empty" not in text_of(site.server, "/jobs?q=NIGHTLY")
    assert "No job matches" in text_of(site.server, "/jobs?q=none")
    assert "No job matches" in text_of(site.server, "/jobs?q=empty&state=running")
    assert "empty" in text_of(
        site.server, f"/jobs?q={quote(chr(0))}&after={quote(chr(0xD800 - 1))}"
    )


def _listed(site, query):
    rows = ask(site.server, f"/jobs{query}").text.partition("<tbody>")[2]
    return re.findall(r'<th scope="row"[^>]*><a href="/jobs/([^"]+)"', rows)


def test_the_list_is_sorted_by_its_headings(site):
    page = ask(site.server, "/jobs")
    assert 'aria-sort="ascending"><a href="/jobs?reverse=1">job</a>' in page.text
    assert _listed(site, "?sort=saved")[0] == "nightly-bert"
    assert _listed(site, "?sort=name&reverse=1") == _listed(site, "")[::-1]
    chosen = ask(site.server, "/jobs?sort=saved&q=n").text
    assert 'aria-sort="descending"><a href="/jobs?q=n&amp;sort=saved&amp;reverse=1">' in chosen
    assert _listed(site, "?sort=nonsense&state=odd&days=x&page=-1") == _listed(site, "")


def test_the_list_says_what_was_saved(site):
    text = text_of(site.server, "/jobs?q=nightly-bert")
    info = site.life.jobs.do(ShowJob(job="nightly-bert"))
    share, amount = percent(info.saved_energy / info.default_energy), joules(info.saved_energy, 3)
    assert f"Energy saved {share} · {amount} of ".replace("\u00a0", " ") in text
    assert "1 job of 1 compared, 1 with a predicted default" in text
    assert "Time saved" in text
    assert "Cost saved" in text
    assert "≈" in text  # it was predicted for one of the GPUs


def test_trouble_is_shown_and_found(site):
    hostile = text_of(site.server, "/jobs?state=trouble")
    assert "target not reached by batch size" in hostile
    assert "the energy of the latest run was not measured" in hostile
    assert "nightly-bert" not in hostile
    assert "needs a person" in text_of(site.server, "/jobs")
    assert "Needs a person: target not reached" in text_of(
        site.server, f"/jobs/{quote(HOSTILE, safe='')}"
    )


def test_tags_lead_to_all_jobs_that_have_them(site):
    site.life.jobs.do(TagJob(job="nightly-bert", tags=("<i>&", "nlp")))
    page = ask(site.server, "/jobs?tag=nlp")
    assert _listed(site, "?tag=nlp") == ["nightly-bert"]
    assert f"/jobs?tag={quote('<i>&')}" in page.page().links()
    assert _listed(site, f"?tag={quote('<i>&')}") == ["nightly-bert"]
    assert "nlp" in text_of(site.server, "/jobs/nightly-bert")
    site.life.jobs.do(TagJob(job="nightly-bert", tags=()))


def test_a_long_list_has_pages(tmp_path):
    storage = f"sqlite:///{tmp_path}/jobs.db"
    jobs, _ = service(storage)
    for number in range(120):
        jobs.do(CreateJob(spec=spec(f"job {number:03}")))
    jobs.close()
    with serving(storage, "--no-token") as server:
        assert "120 jobs" in text_of(server, "/jobs")
        assert "job 049" in text_of(server, "/jobs")
        second = text_of(server, "/jobs?page=2")
        assert "job 050" in second
        assert "job 100" not in second
        assert "job 119" in text_of(server, "/jobs?page=3")
        assert "No job matches" in text_of(server, "/jobs?page=4")
