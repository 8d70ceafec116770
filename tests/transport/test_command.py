"""Commands as requests: what is in the path, the query and the body, and what comes back."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from zeus.errors import ServerError, TokenError
from zeus.transport._command import Command, Remote, parsed, plain


@dataclass(frozen=True)
class Thing:
    size: int

    def to_dict(self):
        return {"size": self.size}

    @classmethod
    def from_dict(cls, record):
        return cls(record["size"])


@dataclass(frozen=True, kw_only=True)
class Put(Command[Thing]):
    """Put a thing."""

    method = "PUT"
    path = "/things/{name}/{number}"
    renamed: ClassVar = {"name": "thing"}
    inline = "new"

    thing: str
    number: int
    new: Thing
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class List(Command[list[Thing]]):
    """List things."""

    method = "GET"
    path = "/things"

    after: str = ""
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Forget(Command[None]):
    """Forget one."""

    method = "DELETE"
    path = "/things/{thing}"

    thing: str


# --- what they are made of ------------------------------------------------------------------------


def test_what_is_not_in_the_path_is_content():
    command = Put(thing="a", number=3, new=Thing(5), note="n", scope="mine")
    assert Put.in_path() == {"name": "thing", "number": "number"}
    assert command.content() == {"new": Thing(5), "note": "n"}
    assert List().content() == {"after": "", "most": None}
    assert Forget(thing="a").content() == {}


def test_the_answer_is_that_of_the_base_class():
    assert (Put.answer, List.answer, Forget.answer) == (Thing, list[Thing], None)


def test_a_token_for_one_job_opens_no_other():
    List(scope=None).permit("any")
    List(scope="mine").permit("mine")
    with pytest.raises(TokenError, match="the token is for job 'mine' only"):
        List(scope="mine").permit("theirs")


def test_values_as_json_and_back():
    things = [Thing(1), Thing(2)]
    assert plain(things) == [{"size": 1}, {"size": 2}]
    assert parsed(list[Thing], plain(things)) == things
    assert parsed(None, None) is None
    assert parsed(dict, {"a": 1}) == {"a": 1}

    @dataclass
    class Plain:
        a: int

    assert plain(Plain(1)) == {"a": 1}


# --- on the wire ----------------------------------------------------------------------------------


@pytest.fixture
def server():
    """Says what it was asked, or what it is told to."""

    class Handler(BaseHTTPRequestHandler):
        answer: ClassVar[Any] = None
        heard: ClassVar[list[Any]] = []
        remote: ClassVar[Remote]

        def _reply(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            self.heard.append((self.command, self.path, body))
            content = b"" if self.answer is None else json.dumps(self.answer).encode()
            self.send_response(200 if content else 204)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_DELETE = _reply

        def log_message(self, *_):
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        Handler.remote = Remote(f"http://127.0.0.1:{listening.server_port}", None, 60.0, ())
        Handler.heard = []
        yield Handler
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["a", "a b", "ä/ö", "..", "%2F", "a?b#c"])
def test_fields_in_the_path_are_escaped(server, name):
    server.remote.do(Forget(thing=name))
    ((method, path, body),) = server.heard
    assert (method, body) == ("DELETE", None)
    prefix, _, last = path.rpartition("/")
    assert (prefix, unquote(last)) == ("/things", name)


def test_a_body_has_the_fields_of_what_is_inline(server):
    server.answer = {"size": 5}
    assert server.remote.do(Put(thing="a", number=3, new=Thing(5), note="n")) == Thing(5)
    assert server.heard == [("PUT", "/things/a/3", {"size": 5, "note": "n"})]


def test_a_query_has_what_is_given(server):
    server.answer = [{"size": 1}]
    assert server.remote.do(List(after="ü&b")) == [Thing(1)]
    server.remote.do(List(most=7))
    queries = [dict(parse_qsl(urlsplit(path).query)) for _, path, _ in server.heard]
    assert queries == [{"after": "ü&b"}, {"most": "7"}]


@pytest.mark.parametrize("answer", [3, "yes", [1], {"size": 1}, [{"weight": 1}]])
def test_an_answer_of_another_kind_is_the_servers_mistake(server, answer):
    server.answer = answer
    with pytest.raises(ServerError, match="invalid"):
        server.remote.do(List())
