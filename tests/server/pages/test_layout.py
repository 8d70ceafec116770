"""What all pages have in common."""

from __future__ import annotations

from zeus.server.pages._layout import is_page


def test_only_pages_are_pages():
    assert all(map(is_page, ("/", "/jobs", "/jobs/x", "/jobs/x/export.json")))
    assert not any(map(is_page, ("/api/jobs", "/metrics", "/jobsx", "//jobs/x", "jobs", "")))
