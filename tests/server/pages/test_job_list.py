"""The list of jobs: filtered by what one types, and page by page."""

from __future__ import annotations

from urllib.parse import quote

from tests.server.pages.asking import text_of


def test_the_list_is_filtered(site):
    assert "nightly-bert" in text_of(site.server, "/jobs?q=NIGHTLY&running=1")
    assert "empty" not in text_of(site.server, "/jobs?q=NIGHTLY")
    assert "No job matches" in text_of(site.server, "/jobs?q=none")
    assert "No job matches" in text_of(site.server, "/jobs?q=empty&running=1")
    assert "empty" in text_of(
        site.server, f"/jobs?q={quote(chr(0))}&after={quote(chr(0xD800 - 1))}"
    )
