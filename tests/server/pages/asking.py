"""Requests as browsers and programs make them, and what a page is made of."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from html.parser import HTMLParser

from tests.server.child import Server

# What an element of ours may be; anything else came in with a text.
OURS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "footer"),
    *("div", "section", "h1", "h2", "h3", "p", "a", "span", "strong", "bdi", "time", "pre", "code"),
    *("dl", "dt", "dd", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "form", "input", "label", "button", "select", "option", "datalist"),
    *("figure", "figcaption", "svg", "path", "circle", "polyline", "text"),
}

PERSON = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def location(self) -> str:
        """Where it sends to."""
        return self.headers["location"]

    def page(self) -> Page:
        """Its elements."""
        page = Page()
        page.feed(self.text)
        page.close()
        return page


def ask(
    server: Server, path: str, method: str = "GET", body: str | None = None, **headers: str | bytes
):
    """An answer; without further headers, to a person."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    named = {**PERSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body is not None:
        named["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request(method, path, body, named)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, text)


@dataclass
class Page(HTMLParser):
    """The elements of a page, and its text."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag  # every element is closed, in order

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """All of it, with plain spaces."""
        return " ".join(" ".join(self.words).split())

    def links(self) -> list[str]:
        """Every address in it."""
        return [
            value or ""
            for _, attributes in self.elements
            for name, value in attributes.items()
            if name in ("href", "src", "action")
        ]


def text_of(server: Server, path: str) -> str:
    """The words of a page that is there."""
    answer = ask(server, path)
    assert answer.status == 200
    return answer.page().text
