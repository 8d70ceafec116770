"""Tokens of clients: what they may look like, and that they are shown nowhere."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here
from tests.optimizer.batch_size.histories import spec
from tests.server.child import serving

from zeus.errors import ServerError, TokenError
from zeus.optimizer.batch_size.api._commands import CreateJob, ListJobs
from zeus.optimizer.batch_size.api._remote import RemoteJobs
from zeus.optimizer.batch_size.running._connect import open_jobs
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.pipeline_frequency.api._commands import ListPipelines
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.store import Store, Tokens

NOBODY = "http://127.0.0.1:9"  # nobody answers there


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server that others can reach, with a token."""
    storage = f"sqlite:///{tmp_path_factory.mktemp('guarded')}/jobs.db"
    store = Store(storage)
    secret, _ = Tokens(store).create(None, now=time.time())
    store.close()
    with serving(storage, "--host", "0.0.0.0") as server:
        RemoteJobs(f"http://127.0.0.1:{server.port}", secret, 60.0).do(CreateJob(spec=spec()))
        yield server, secret


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " \t{} "])
def test_white_space_around_a_token_is_none_of_it(guarded, around, monkeypatch, capfd):
    server, secret = guarded
    url = f"http://127.0.0.1:{server.port}"
    given = around.format(secret)
    assert [job.name for job in RemoteJobs(url, given, 60.0).do(ListJobs())] == ["nightly"]
    monkeypatch.setenv("ZEUS_TOKEN", given)
    assert [job.name for job in open_jobs(url, timeout=60.0).do(ListJobs())] == ["nightly"]
    assert RemotePipelines(url, timeout=60.0).do(ListPipelines()) == []
    done = zeus_here(capfd, "jobs", "list", "--server", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nightly" in done.stdout


WRONG = [
    ("zeus_sesame\nopen", "character 12 of 16 is a line break"),
    ("zeus sesame", "character 5 of 11 is white space"),
    ("zeus_sesam\u00e9", "character 11 of 11 is not ASCII"),
    ("zeus_\x00sesame", "character 6 of 12 is a control character"),
]


@pytest.mark.parametrize(("token", "said"), WRONG)
def test_what_cannot_be_a_token_is_refused_and_not_repeated(token, said, monkeypatch, capfd):
    makers: list[Callable[[str, str], object]]
    makers = [RemoteJobs, RemotePipelines, lambda url, token: Location.of(url, token=token)]
    for make in makers:
        with pytest.raises(TokenError) as found:
            make(NOBODY, token)
        assert f"token must be printable ASCII without spaces, but {said}" in str(found.value)
        assert "sesam" not in repr(found.value)
    if "\x00" in token:  # no variable can hold that
        return
    monkeypatch.setenv("ZEUS_TOKEN", token)
    for command in (["jobs", "list"], ["straggler"]):
        done = zeus_here(capfd, *command, "--server", NOBODY)
        assert done.returncode == 1
        assert f"ZEUS_TOKEN must be printable ASCII without spaces, but {said}" in one_error_line(
            done
        )
        assert "sesam" not in done.stdout + done.stderr


def test_a_token_that_is_no_text_is_refused():
    with pytest.raises(TokenError, match="token must be a string, but got one of type bytes"):
        RemoteJobs(NOBODY, b"zeus_sesame")  # type: ignore[arg-type]


def test_nothing_that_a_client_says_shows_its_token(monkeypatch, capfd, caplog):
    monkeypatch.setenv("ZEUS_TOKEN", "zeus_sesame\n")
    with caplog.at_level(logging.DEBUG):
        for made in (RemoteJobs(NOBODY, "zeus_sesame"), Location.of(NOBODY, token="zeus_sesame")):
            assert "sesame" not in f"{made!r} {made}"
        with pytest.raises(ServerError) as found:
            RemotePipelines(NOBODY).do(ListPipelines())
        assert "sesame" not in str(found.value)
    assert "sesame" not in caplog.text
    for words in (["env"], ["env", "--json"], ["jobs", "list", "--server", NOBODY]):
        done = zeus(*words, ZEUS_DEBUG="1", ZEUS_SIMULATE="v100")
        assert "sesame" not in done.stdout + done.stderr


def test_a_link_that_is_no_server_is_not_repeated_with_its_secrets():
    for url in ("http://me:sesame@host/?a=sesame", "http://host/sign-in#code=sesame"):
        with pytest.raises(ServerError, match="but got 'http://host/") as found:
            RemoteJobs(url)
        assert "sesame" not in str(found.value)


def _address_of_this_machine() -> str:
    """One that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_a_token_over_plain_http_is_warned_of_once(guarded):
    server, secret = guarded
    url = f"http://{_address_of_this_machine()}:{server.port}"
    program = (
        "import logging, sys; logging.basicConfig()\n"
        "from zeus.optimizer.batch_size.api._commands import ListJobs\n"
        "from zeus.optimizer.batch_size.api._remote import RemoteJobs\n"
        "for url in sys.argv[1:]:\n"
        "    for _ in range(2): RemoteJobs(url, sys.stdin.readline(), 60.0).do(ListJobs())\n"
    )

    def said_by(*urls: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *urls],
            input=f"{secret}\n" * 4,
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        )
        assert secret not in done.stderr
        return done.stderr

    said = said_by(f"http://127.0.0.1:{server.port}", url)
    assert said.count("over plain http") == 1
    assert url in said
    assert said_by(f"http://localhost:{server.port}") == ""
    done = zeus("jobs", "list", "--server", url, ZEUS_TOKEN=secret)
    assert done.returncode == 0
    assert done.stderr.startswith(f"zeus: warning: the token is sent to {url} over plain http")
    assert zeus("jobs", "list", "--server", url).returncode == 1  # no token, nothing to warn of
