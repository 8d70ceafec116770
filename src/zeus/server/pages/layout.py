"""The frame around every page for people, and the blocks that pages are built of.

A page is a plain function that builds its content of `tag`s (see `markup`, which escapes every
text) and of the blocks below, and hands it to `respond`:

    def show(request: Request) -> Response:
        content = join(
            heading("Pipelines", "Plans of frequencies"),
            facts([("Plans", "3")]),
            section("All of them", table("Plans", ["name", "energy"], rows, numbers=[1])),
        )
        return respond(request, "Pipelines", content, at="/pipelines")

    routes = [Route("/pipelines", show)]

A new part of the site is one more entry in `SECTIONS`, its first path segment in `PAGES` (pages
open with the cookie of `sign_in`; nothing else does), and its routes in `pages.routes`. Errors need
nothing: any `ZeusError` or `HTTPException` that a page raises becomes a page (`faults`).

Quantities are worded by `units`, charts are drawn by `plotting`. Colours are the variables of the
style sheet: --paper, --ink, --muted, --grid, --axis, --line, --other, --chosen, --panel, --row,
--bad. Nothing may be inline (style or script): the policy that every page is sent with forbids it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse

from zeus import __version__
from zeus.server.pages import assets
from zeus.server.pages.markup import Content, Markup, join, tag, trusted


@dataclass(frozen=True)
class Section:
    """A part of the site that the navigation leads to.

    Attributes:
        title: What it is called.
        path: Where it begins.
    """

    title: str
    path: str


SECTIONS = (Section("Jobs", "/jobs"), Section("Pipelines", "/pipelines"))

#: First segments of the paths of pages, which alone open with a cookie.
PAGES = frozenset({"jobs", "pipelines"})

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_page(path: str) -> bool:
    """Whether a path is that of a page."""
    return path == "/" or (path[:1] == "/" and path[1:].partition("/")[0] in PAGES)


def respond(
    request: Request,
    title: str,
    content: Content,
    *,
    at: str = "",
    status: int = 200,
    refresh: float = 0,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """A page as the answer to a request.

    Args:
        request: What is answered.
        title: Of the window.
        content: What is on it.
        at: Path of the section that it belongs to.
        status: Of the answer.
        refresh: Seconds after which the script asks for the page again, while somebody looks at
            it, and puts in what has changed; 0 for never. What is to change must have an `id`.
        headers: Further ones.
    """
    signed_in = bool(request.scope.get("state", {}).get("signed_in"))
    text = document(title, content, at=at, signed_in=signed_in, refresh=refresh)
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})


def document(
    title: str, content: Content, *, at: str = "", signed_in: bool = False, refresh: float = 0
) -> str:
    """The whole text of a page; see `respond`."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · Zeus"),
        tag("link", rel="icon", href=assets.address("zeus.svg"), type="image/svg+xml"),
        tag("link", rel="stylesheet", href=assets.address("zeus.css")),
        tag("script", src=assets.address("zeus.js"), defer=True),
    )
    links = (
        tag("a", each.title, href=each.path, aria_current="page" if each.path == at else None)
        for each in SECTIONS
    )
    sign_out = tag("form", tag("button", "Sign out"), method="post", action="/sign-out")
    header = tag(
        "header",
        tag("a", trusted(_BOLT), "Zeus", class_="brand", href="/jobs"),
        tag("nav", *links, aria_label="Sections"),
        sign_out if signed_in else None,
    )
    seconds = f"{refresh:g}" if refresh > 0 else None
    body = tag(
        "body",
        tag("a", "Skip to the content", class_="skip", href="#main"),
        header,
        tag("main", content, id="main", data_refresh=seconds),
        tag("footer", f"Zeus {__version__}"),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


_BOLT = (
    '<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">'
    '<path fill="currentColor" d="M13.5 1.5 4 13.5h6.2L9 22.5l10.5-13h-6.8z"/></svg>'
)


# --- blocks -------------------------------------------------------------------------------------


def heading(title: Content, *below: Content) -> Markup:
    """The title of a page, with a line about it."""
    about = tag("p", *below, class_="about") if below else None
    return tag("div", tag("h1", title), about, class_="heading", id="heading")


def section(title: str, *content: Content, name: str = "", about: Content = None) -> Markup:
    """A part of a page.

    Args:
        title: What it is about.
        content: What is in it.
        name: Its `id`, in addresses and for what is refreshed; made of the title by default.
        about: A sentence or two below the title.
    """
    name = name or "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
    lead = None if about is None else tag("p", about, class_="about")
    title_ = tag("h2", title, id=f"{name}-title")
    return tag("section", title_, lead, *content, id=name, aria_labelledby=f"{name}-title")


def columns(*content: Content) -> Markup:
    """Sections side by side, where there is room."""
    return tag("div", *content, class_="columns")


def facts(entries: Iterable[tuple[str, Content] | tuple[str, Content, Content]]) -> Markup:
    """Figures at a glance: what each is, its value and, if given, a remark."""
    cells = []
    for name, value, *remark in entries:
        note = tag("dd", remark[0], class_="remark") if remark and remark[0] else None
        cells.append(tag("div", tag("dt", name), tag("dd", value, class_="value"), note))
    return tag("dl", *cells, class_="facts", id="facts")


def properties(entries: Iterable[tuple[str, Content]]) -> Markup:
    """Names and values in two columns."""
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in entries)
    return tag("dl", *pairs, class_="properties")


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        cells: The first one names it.
        kind: Class of the row: "muted", "chosen" or none.
    """

    cells: Sequence[Content]
    kind: str = ""


def table(
    caption: str,
    head: Sequence[Content],
    rows: Iterable[Row | Sequence[Content]],
    *,
    numbers: Sequence[int] = (),
    optional: Sequence[int] = (),
) -> Markup:
    """A table that scrolls by itself where it is too wide.

    Args:
        caption: What it is, for those who cannot see it.
        head: Titles of the columns.
        rows: Cells, or `Row`s.
        numbers: Columns of numbers.
        optional: Columns that phones leave out.
    """

    def kind(column: int) -> str | None:
        found = ["number"] * (column in numbers) + ["optional"] * (column in optional)
        return " ".join(found) or None

    titles = (tag("th", cell, scope="col", class_=kind(i)) for i, cell in enumerate(head))
    lines = []
    for row in rows:
        given = row if isinstance(row, Row) else Row(row)
        first, *others = given.cells
        lines.append(
            tag(
                "tr",
                tag("th", first, scope="row", class_=kind(0)),
                *(tag("td", cell, class_=kind(i)) for i, cell in enumerate(others, 1)),
                class_=given.kind or None,
            )
        )
    inner = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def notice(*content: Content, kind: str = "") -> Markup:
    """A remark that stands out; of kind "bad", one about something wrong."""
    role = "alert" if kind == "bad" else None
    return tag("p", *content, class_=f"notice {kind}".rstrip(), role=role)


def pager(label: str, entries: Iterable[tuple[str, str | None]]) -> Markup:
    """Links to other pages of a list; one without an address cannot be followed.

    Args:
        label: What is paged, for those who cannot see it.
        entries: Text and address.
    """
    links = (
        tag("span", text, aria_disabled="true") if href is None else tag("a", text, href=href)
        for text, href in entries
    )
    return tag("nav", *links, class_="pager", aria_label=label)


def details(summary: Content, *content: Content, name: str) -> Markup:
    """Something that is unfolded only if somebody asks for it; `name` is its `id`."""
    return tag("details", tag("summary", summary), *content, id=name)


def unbroken(*words: Content) -> Markup:
    """Words that stay on one line."""
    return tag("span", join(*words), class_="unbroken")
