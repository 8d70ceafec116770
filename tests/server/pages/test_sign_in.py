"""Who sees what, where tokens are required."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from tests.server.pages.asking import ask

from zeus.store import Store, Tokens


def enter(guarded, token: str, wanted: str = "/jobs", **headers: str):
    body = urlencode({"token": token, "next": wanted})
    return ask(guarded.server, "/sign-in", "POST", body, **headers)


def cookie(guarded, token: str) -> str:
    return enter(guarded, token).headers["set-cookie"].partition(";")[0]


def test_a_person_is_asked_to_sign_in_and_comes_where_they_wanted(guarded):
    wanted = "/jobs/mine?before=3&gpu=2x%20A%2BB"
    asked = ask(guarded.server, wanted)
    assert asked.status == 303
    address = urlsplit(asked.location)
    assert address.path == "/sign-in"
    assert parse_qs(address.query)["next"] == [wanted]
    form = ask(guarded.server, asked.location)
    fields = {a.get("name"): a for tag, a in form.page().elements if tag == "input"}
    assert fields["token"]["type"] == "password"
    assert fields["next"]["value"] == wanted
    entered = enter(guarded, guarded.everything, wanted)
    assert (entered.status, entered.location) == (303, wanted)
    there = ask(guarded.server, wanted, Cookie=cookie(guarded, guarded.everything))
    assert there.status == 200
    assert "Sign out" in there.page().text


def test_a_token_that_is_not_good_opens_nothing(guarded):
    store = Store(guarded.storage)
    tokens = Tokens(store)
    expired, _ = tokens.create(None, now=time.time() - 9, expires=time.time() - 3)
    revoked, token = tokens.create(None, now=time.time())
    tokens.revoke(token.id, now=time.time())
    store.close()
    for bad in ("", "zeus_wrong", "\u00fc", "a b", expired, revoked):
        answer = enter(guarded, bad)
        assert answer.status == 401
        assert "This token is invalid" in answer.page().text
        assert "set-cookie" not in answer.headers
    assert bad not in answer.text  # it is not said back
    for bad in (revoked, "x", f"{token.id}.", f"{token.id}.{'0' * 64}", "\u00fc"):
        assert (
            ask(guarded.server, "/jobs", Cookie=b"zeus_pages=" + bad.encode("latin-1")).status
            == 303
        )
    assert enter(guarded, "x" * 5_000).status == 413


def test_the_cookie_is_kept_from_scripts_and_other_sites(guarded):
    plain = enter(guarded, guarded.everything).headers["set-cookie"].lower()
    for part in ("httponly", "samesite=strict", "path=/"):
        assert part in plain
    assert "secure" not in plain
    assert "domain" not in plain
    for told in (
        {"X_Forwarded_Proto": "https"},
        {"Origin": "https://zeus.example", "Host": "zeus.example"},
    ):
        assert "secure" in enter(guarded, guarded.everything, **told).headers["set-cookie"].lower()
    refused = enter(guarded, guarded.everything, Sec_Fetch_Site="cross-site")
    assert refused.status == 403
    assert "set-cookie" not in refused.headers


def test_the_cookie_opens_pages_and_nothing_else(guarded):
    kept = cookie(guarded, guarded.everything)
    # Browsers send it to other servers on this host, too: they cannot use it as a token.
    value = kept.partition("=")[2]
    assert guarded.everything not in kept
    assert ask(guarded.server, "/api/jobs", Authorization=f"Bearer {value}").status == 401
    assert ask(guarded.server, "/jobs", Cookie=kept).status == 200
    assert ask(guarded.server, "/jobs/mine/export.json", Cookie=kept).status == 200
    for method, path in (
        ("GET", "/api/jobs"),
        ("GET", "/metrics"),
        ("DELETE", "/api/jobs/mine"),
        ("POST", "/api/jobs/mine/trials"),
        ("POST", "/jobs"),
        ("DELETE", "/jobs/mine"),
    ):
        assert ask(guarded.server, path, method, Cookie=kept).status == 401
    # Who bears a token in the header needs no cookie, and a bad one is not mended by it.
    bearer = {"Authorization": f"Bearer {guarded.everything}"}
    assert ask(guarded.server, "/jobs", **bearer).status == 200
    assert ask(guarded.server, "/jobs", Authorization="Bearer x", Cookie=kept).status == 303


def test_a_token_for_one_job_shows_that_job_only(guarded):
    kept = {"Cookie": cookie(guarded, guarded.one_job)}
    listed = ask(guarded.server, "/jobs?q=theirs&after=zzz", **kept).page().text
    assert "mine" in listed
    assert "theirs" not in listed.replace("Your", "")
    assert ask(guarded.server, "/jobs/mine", **kept).status == 200
    for path in ("/jobs/theirs", "/jobs/none", "/jobs/theirs/export.json"):
        answer = ask(guarded.server, path, **kept)
        assert answer.status == 403
        assert "Your token is for job 'mine' only." in answer.page().text


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/jobs",
        "/\\evil.example",
        "\\jobs",
        "jobs",
        "/api/jobs",
        "/jobs\r\nSet-Cookie: a=b",
        "/jobs/ü",
        "",
    ],
)
def test_nobody_is_sent_elsewhere(guarded, elsewhere):
    assert enter(guarded, guarded.everything, elsewhere).location == "/jobs"
    form = ask(guarded.server, f"/sign-in?next={quote(elsewhere)}")
    fields = {a.get("name"): a for tag, a in form.page().elements if tag == "input"}
    assert fields["next"]["value"] == "/jobs"


def test_signing_out(guarded):
    kept = cookie(guarded, guarded.everything)
    assert ask(guarded.server, "/sign-out", Cookie=kept).status == 405  # a link does not do it
    answer = ask(guarded.server, "/sign-out", "POST", "", Cookie=kept)
    assert (answer.status, answer.location) == (303, "/sign-in")
    assert "max-age=0" in answer.headers["set-cookie"].lower()


def test_what_anybody_may_see_needs_no_token(guarded):
    form = ask(guarded.server, "/sign-in").page()
    for link in form.links():
        if link.startswith("/assets/"):
            assert ask(guarded.server, link).status == 200
    program = ask(guarded.server, "/jobs", Accept="application/json")
    assert program.status == 401
    assert program.headers["www-authenticate"] == "Bearer"
