"""`zeus token`."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import one_error_line, zeus_here
from tests.present import present

from zeus.store import Store, Tokens


@pytest.fixture
def token(tmp_path, capfd):
    """Run `zeus token` on a store of its own."""

    class Command:
        def __init__(self, storage: str) -> None:
            self.storage = storage

        def __call__(self, *arguments: str):
            return zeus_here(capfd, "token", *arguments, "--storage", self.storage)

    return Command(f"sqlite:///{tmp_path}/jobs.db")


def test_a_token_from_creation_to_revocation(token):
    created = token("create", "--job", "nightly", "--expires", "30", "--note", "cron on gpu7")
    assert created.returncode == 0, created.stderr
    secret = created.stdout.strip()
    assert secret.startswith("zeus_")
    store = Store(token.storage)
    known = present(Tokens(store).find(secret))
    store.close()
    assert known.job == "nightly"
    assert known.expires == pytest.approx(known.created + 30 * 86400)

    listed = token("list")
    assert known.id in listed.stdout
    assert "'nightly'" in listed.stdout
    assert "cron on gpu7" in listed.stdout
    assert secret not in listed.stdout

    assert token("revoke", known.id).returncode == 0
    assert "revoked" in token("list").stdout
    again = json.loads(token("revoke", known.id, "--json").stdout)
    (entry,) = json.loads(token("list", "--json").stdout)
    assert entry["id"] == known.id
    assert entry["revoked"] > entry["created"]
    assert again == entry  # when it was revoked stays
    assert set(entry) == {"id", "job", "note", "created", "expires", "revoked", "read_only"}


def test_a_token_for_all_jobs_as_json(token):
    created = json.loads(token("create", "--all", "--json").stdout)
    assert created["job"] is None
    assert created["token"].startswith("zeus_")
    assert token("list").stdout.count("all") == 1


def test_a_token_for_reading_only(token):
    created = json.loads(token("create", "--job", "a", "--read-only", "--json").stdout)
    assert (created["job"], created["read_only"]) == ("a", True)
    assert json.loads(token("create", "--all", "--json").stdout)["read_only"] is False
    head, first, second = token("list").stdout.splitlines()
    place = head.split().index("access")
    assert (first.split()[place], second.split()[place]) == ("read-only", "full")


def test_no_tokens(token):
    assert token("list").stdout == "No tokens.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create"], "needs either --job NAME or --all"),
        (["create", "--job", "a", "--all"], "needs either --job NAME or --all"),
        (["create", "--all", "--expires", "0"], "must be days, more than 0"),
        (["create", "--all", "--expires", "soon"], "must be days, more than 0"),
        (["create", "some-id", "--all"], "`zeus token create` takes no ID, but got 'some-id'"),
        (["revoke"], "`zeus token revoke` needs the ID of a token"),
        (["list", "--all"], "are for `zeus token create`"),
        (["list", "--read-only"], "are for `zeus token create`"),
        (["forge"], "must be one of create, list, revoke, but got 'forge'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(token, arguments, said):
    done = token(*arguments)
    assert done.returncode == 2
    assert said in one_error_line(done)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["revoke", "nobody"], "there is no token with the id 'nobody'"),
        (["create", "--job", ""], "`job` must not be empty"),
        (["create", "--job", "a\nb"], "`job` must be printable"),
    ],
)
def test_mistakes_are_one_line(token, arguments, said):
    done = token(*arguments)
    assert done.returncode == 1
    assert said in one_error_line(done)
