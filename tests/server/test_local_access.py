"""A server on this machine: its user gets in without any configuration, and nobody else does."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.cli.support import one_error_line, zeus, zeus_here
from tests.optimizer.batch_size.histories import spec
from tests.present import present
from tests.server.child import Server, serving

from zeus.errors import TokenError
from zeus.optimizer.batch_size.api._commands import CreateJob, ListJobs
from zeus.optimizer.batch_size.api._remote import RemoteJobs
from zeus.optimizer.pipeline_frequency.api._commands import ListPipelines
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.server._local_access import SignInCode
from zeus.store import Store, Tokens


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def kept(tmp_path) -> Path:
    """The file with the token."""
    return tmp_path / "zeus-state" / "server-token"


def status(server: Server, path: str = "/api/jobs", **headers: str) -> int:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("GET", path, headers=headers)
    found = connection.getresponse().status
    connection.close()
    return found


def tokens_of(storage: str):
    store = Store(storage)
    found = Tokens(store).all()
    store.close()
    return found


# --- programs -------------------------------------------------------------------------------------


def test_programs_of_this_user_need_no_configuration_and_others_a_token(storage, kept, capfd):
    with serving(storage) as server:
        assert status(server) == 401
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        for host in ("127.0.0.1", "localhost"):
            RemoteJobs(f"http://{host}:{server.port}", timeout=60.0).do(CreateJob(spec=spec()))
        assert RemotePipelines(server.url, timeout=60.0).do(ListPipelines()) == []
        done = zeus("jobs", "list", "--server", server.url)
        assert (done.returncode, done.stderr) == (0, "")
        assert "nightly" in done.stdout
        assert zeus_here(capfd, "straggler", "--server", server.url).returncode == 0
        # As in a container, or as another user: nothing is found, and it is said what to do.
        done = zeus("jobs", "list", "--server", server.url, ZEUS_STATE_DIR=str(kept.parent / "b"))
        assert done.returncode == 1
        said = one_error_line(done)
        assert "in the file server-token of the state directory" in said
        assert "set ZEUS_TOKEN to the content of that file" in said
        assert str(kept) not in said
        (token,) = tokens_of(storage)
        assert (token.job, token.read_only, token.expires) == (None, False, None)


def test_the_token_stays_until_it_is_not_good_any_more(storage, kept, tmp_path):
    with serving(storage) as server:
        first = server.token
    with serving(storage) as server:
        assert server.token == first
        # Another store learns it, so that clients find both servers.
        with serving(f"sqlite:///{tmp_path}/other.db") as other:
            assert other.token == first
            assert status(server, **other.bearer) == status(other, **server.bearer) == 200
    store = Store(storage)
    (token,) = Tokens(store).all()
    Tokens(store).revoke(token.id, now=time.time())
    store.close()
    with serving(storage) as server:
        assert server.token != first
        assert RemoteJobs(server.url, timeout=60.0).do(ListJobs()) == []
        assert status(server, Authorization=f"Bearer {first}") == 401
    kept.unlink()
    with serving(storage) as server:
        assert RemoteJobs(server.url, timeout=60.0).do(ListJobs()) == []
    assert len(tokens_of(storage)) == 3


def test_a_token_that_others_could_read_is_replaced(storage, kept):
    with serving(storage) as server:
        first = server.token
    kept.chmod(0o644)
    with serving(storage) as server:
        assert server.token != first
        assert status(server, Authorization=f"Bearer {first}") == 401
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert RemoteJobs(server.url, timeout=60.0).do(ListJobs()) == []
        kept.chmod(0o640)  # then clients do not believe it, either
        with pytest.raises(TokenError):
            RemoteJobs(server.url, timeout=60.0).do(ListJobs())


@pytest.mark.parametrize("what", ["directory", "link", "pipe", "nonsense"])
@pytest.mark.thorough(keep=2)
def test_what_is_no_token_is_not_sent(storage, kept, what):
    kept.parent.mkdir()
    if what == "directory":
        kept.mkdir()
    elif what == "link":
        elsewhere = kept.with_name("secret")
        elsewhere.touch(0o600)
        elsewhere.write_text("hunter2")
        kept.symlink_to(elsewhere)
    elif what == "pipe":
        os.mkfifo(kept, 0o600)
    else:
        kept.touch(0o600)
        kept.write_bytes(b"two words\x00")
    with serving(storage, "--no-token") as server:
        assert RemoteJobs(server.url, timeout=60.0).do(ListJobs()) == []
    if what == "directory":
        done = zeus("serve", "--port", "0", "--storage", storage)
        assert done.returncode == 1
        assert "the token of this server cannot be saved" in one_error_line(done)
        return
    with serving(storage) as server:
        assert RemoteJobs(server.url, timeout=60.0).do(ListJobs()) == []
    assert stat.S_IMODE(kept.lstat().st_mode) == 0o600
    assert kept.is_file()
    assert not kept.is_symlink()


def test_servers_that_start_together_agree_on_one_token(tmp_path):
    command = [sys.executable, "-m", "zeus", "serve", "--port", "0", "--storage"]
    several = [
        subprocess.Popen(
            [*command, f"sqlite:///{tmp_path}/{number}.db"], stdout=subprocess.PIPE, text=True
        )
        for number in range(3)
    ]
    try:
        for process in several:
            greeting = present(process.stdout).readline()
            url = present(re.search(r"serving on (\S+) ", greeting))[1]
            assert RemoteJobs(url, timeout=60.0).do(ListJobs()) == []
    finally:
        for process in several:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=240)


def test_the_token_is_sent_to_this_machine_only(storage, kept):
    heard = []
    with serving(storage) as server:
        secret = server.token
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = probe.getsockname()[0]
    listening = socket.create_server(("0.0.0.0", 0))

    def listen() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            heard.append(connection.recv(65536).decode())
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            connection.close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    port = listening.getsockname()[1]
    for host in (address, "127.0.0.1"):
        assert RemoteJobs(f"http://{host}:{port}", timeout=60.0).do(ListJobs()) == []
    thread.join(60)
    listening.close()
    assert secret == kept.read_text().strip()
    assert [present(secret) in each for each in heard] == [False, True]


# --- without, and elsewhere -----------------------------------------------------------------------


def test_without_tokens_for_who_wants_that(storage, kept):
    with serving(storage, "--no-token") as server:
        assert "no tokens" in server.greeting
        assert status(server) == 200
    assert not kept.exists()
    assert tokens_of(storage) == []


def test_without_tokens_on_a_network_is_refused(storage, capfd):
    words = ("serve", "--port", "0", "--storage", storage)
    done = zeus_here(capfd, *words, "--host", "0.0.0.0", "--no-token")
    assert done.returncode == 2
    assert "--no-token is for a loopback address only" in one_error_line(done)
    assert "but got 0.0.0.0" in one_error_line(done)
    done = zeus_here(capfd, *words, "--require-token", "--no-token")
    assert done.returncode == 2


def test_what_was_asked_for_by_an_option_is_the_default(storage):
    with serving(storage, "--require-token") as server:
        assert status(server) == 401


# --- a browser ------------------------------------------------------------------------------------


def link_of(server: Server) -> str:
    line = present(server.process.stdout).readline()
    return present(re.search(r"open (\S+/sign-in#code=\S+) ", line))[1]


def test_a_link_signs_one_browser_in_once(storage, browser):
    with serving(storage) as server:
        link = link_of(server)
        assert present(server.token) not in link
        heard = []
        context = browser.new_context()
        page = context.new_page()
        page.on("request", lambda request: heard.append((request.url, request.headers)))
        page.goto(link)
        page.wait_for_url(f"{server.url}/jobs")
        assert page.get_by_role("button", name="Sign out").is_visible()
        code = link.partition("#code=")[2]
        assert not any(code in f"{url.partition('#')[0]} {headers}" for url, headers in heard)
        # It works like any other: also to leave.
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{server.url}/sign-in")
        context.close()
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        page.get_by_text("This link has already been used or has expired.").wait_for()
        assert "#" not in page.url
        assert page.locator("main").get_by_text("server-token").is_visible()
        page.get_by_label("Token").fill(server.token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{server.url}/jobs")
        context.close()


def test_a_code_that_is_wrong_signs_nobody_in(storage):
    with serving(storage) as server:
        for code in ("x", "\u00fc", "x" * 43):
            connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/sign-in", urlencode({"code": code}), form)
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("set-cookie")) == (401, None)
            connection.close()


def test_a_code_is_good_for_some_minutes_and_once():
    now = [0.0]
    code = SignInCode("secret", lambda: now[0])
    assert code.take("wrong") is None
    now[0] = 60.0 * SignInCode.MINUTES - 1
    assert [code.take(code.code), code.take(code.code)] == ["secret", None]
    late = SignInCode("secret", lambda: now[0])
    now[0] += 60.0 * SignInCode.MINUTES
    assert late.take(late.code) is None
