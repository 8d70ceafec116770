"""The frame of every page, and the blocks that pages are built of.

A page is a plain function that builds its content from `tag`s (of `zeus.drawing._markup`, which
escapes every text), tables (`zeus.drawing._table`) and the blocks below, and hands it to `respond`:

    def show(request: Request) -> Response:
        columns = [Column("name", lambda plan: plan.name),
                   Column("energy", lambda plan: joules(plan.energy), number=True)]
        content = join(
            heading("Pipelines", "Plans of frequencies"),
            facts([("Plans", "3")]),
            section("All of them", table("Plans", columns, plans)),
        )
        return respond(request, "Pipelines", content, at="/pipelines")

    routes = [Route("/pipelines", show)]

A new part of the site needs an entry in `SECTIONS`, and its routes in `pages.routes`. Errors need
nothing: any `ZeusError` or `HTTPException` that a page raises becomes an error page (`faults`).

`units` formats quantities, `plotting` draws charts. Colors are the variables of the style sheet:
--paper, --ink, --muted, --grid, --axis, --line, --other, --chosen, --panel, --row, --bad. Inline
styles and scripts are forbidden by the Content-Security-Policy of every page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse

from zeus import __version__
from zeus.drawing._markup import Content, Markup, join, tag, trusted
from zeus.server.pages import _assets as assets


@dataclass(frozen=True)
class Section:
    """A part of the site with a link in the navigation.

    Attributes:
        title: Text of the link.
        path: Path of its first page.
    """

    title: str
    path: str


@dataclass(frozen=True)
class Site:
    """The pages of one application, which is in the attribute `site` of its state.

    Attributes:
        sections: Its parts; the first is its home page.
        assets: Further style sheets and scripts.
        notice: A remark at the top of every page; empty for none.
    """

    sections: tuple[Section, ...]
    assets: tuple[str, ...] = ()
    notice: str = ""

    @property
    def home(self) -> Section:
        """Its first section."""
        return self.sections[0]


SECTIONS = (
    Section("Jobs", "/jobs"),
    Section("Pipelines", "/pipelines"),
    Section("Services", "/services"),
)
ARENA_SECTIONS = (Section("Arena", "/arena"), Section("Board", "/board"))
_JOBS = Site(SECTIONS)

#: First path segments of pages, the only paths that accept the cookie.
_PAGES = frozenset(section.path.strip("/") for section in (*SECTIONS, *ARENA_SECTIONS))

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
    """Return whether a path is that of a page."""
    return path == "/" or (path[:1] == "/" and path[1:].partition("/")[0] in _PAGES)


def site_of(request: Request) -> Site:
    """Return the site that a request is for."""
    found = getattr(request.app.state, "site", _JOBS) if "app" in request.scope else _JOBS
    return found if isinstance(found, Site) else _JOBS


def number_in(text: str) -> int | None:
    """Return the whole number that a query parameter is; `None` for anything else."""
    # Python refuses to read thousands of digits.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


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
    """Return a page as the response to a request.

    Args:
        request: The request.
        title: Title of the browser window.
        content: Content of the page.
        at: Path of its section in the navigation.
        status: Status code.
        refresh: Seconds after which the script fetches the page again while it is visible, and
            replaces the parts that changed; 0 for never. Such parts must have an `id`.
        headers: Further headers.
    """
    signed_in = bool(request.scope.get("state", {}).get("signed_in"))
    text = document(
        title, content, at=at, signed_in=signed_in, refresh=refresh, site=site_of(request)
    )
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})


def document(
    title: str,
    content: Content,
    *,
    at: str = "",
    signed_in: bool = False,
    refresh: float = 0,
    site: Site = _JOBS,
) -> str:
    """Return the HTML document of a page; see `respond`."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · Zeus"),
        tag("link", rel="icon", href=assets.address("zeus.svg"), type="image/svg+xml"),
        *map(_asset, ("zeus.css", "zeus.js", *site.assets)),
    )
    links = (
        tag("a", each.title, href=each.path, aria_current="page" if each.path == at else None)
        for each in site.sections
    )
    sign_out = tag("form", tag("button", "Sign out"), method="post", action="/sign-out")
    header = tag(
        "header",
        tag("a", trusted(_BOLT), "Zeus", class_="brand", href=site.home.path),
        tag("nav", *links, aria_label="Sections"),
        sign_out if signed_in else None,
    )
    seconds = f"{refresh:g}" if refresh > 0 else None
    body = tag(
        "body",
        tag("a", "Skip to the content", class_="skip", href="#main"),
        header,
        tag("p", site.notice, class_="banner", role="note") if site.notice else None,
        tag("main", content, id="main", data_refresh=seconds),
        tag("footer", f"Zeus {__version__}"),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _asset(name: str) -> Markup:
    if name.endswith(".css"):
        return tag("link", rel="stylesheet", href=assets.address(name))
    return tag("script", src=assets.address(name), defer=True)


_BOLT = (
    '<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">'
    '<path fill="currentColor" d="M13.5 1.5 4 13.5h6.2L9 22.5l10.5-13h-6.8z"/></svg>'
)


# --- blocks -------------------------------------------------------------------------------------


def heading(title: Content, *below: Content) -> Markup:
    """Return the title of a page, with a line of text below."""
    about = tag("p", *below, class_="about") if below else None
    return tag("div", tag("h1", title), about, class_="heading", id="heading")


def crumb(title: str, path: str) -> Markup:
    """Return a link to the page above."""
    return tag("p", tag("a", title, href=path), " /", class_="crumb")


def section(title: str, *content: Content, name: str = "", about: Content = None) -> Markup:
    """Return a section of a page.

    Args:
        title: Its title.
        content: Its content.
        name: Its `id`, for links and refreshing; derived from the title by default.
        about: A sentence or two below the title.
    """
    name = name or "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
    lead = None if about is None else tag("p", about, class_="about")
    title_ = tag("h2", title, id=f"{name}-title")
    return tag("section", title_, lead, *content, id=name, aria_labelledby=f"{name}-title")


def columns(*content: Content) -> Markup:
    """Place sections side by side, where there is room."""
    return tag("div", *content, class_="columns")


def facts(entries: Iterable[tuple[str, Content] | tuple[str, Content, Content]]) -> Markup:
    """Return key figures, each with name, value and optional remark."""
    cells = []
    for name, value, *remark in entries:
        note = tag("dd", remark[0], class_="remark") if remark and remark[0] else None
        cells.append(tag("div", tag("dt", name), tag("dd", value, class_="value"), note))
    return tag("dl", *cells, class_="facts", id="facts")


def properties(entries: Iterable[tuple[str, Content]]) -> Markup:
    """Return names and values in two columns."""
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in entries)
    return tag("dl", *pairs, class_="properties")


def notice(*content: Content, kind: str = "") -> Markup:
    """Return a highlighted remark; kind "bad" is for errors."""
    role = "alert" if kind == "bad" else None
    return tag("p", *content, class_=f"notice {kind}".rstrip(), role=role)


def pager(label: str, entries: Iterable[tuple[str, str | None]]) -> Markup:
    """Return links to other pages of a list; one without a URL is disabled.

    Args:
        label: Label for screen readers.
        entries: Text and URL of each link.
    """
    links = (
        tag("span", text, aria_disabled="true") if href is None else tag("a", text, href=href)
        for text, href in entries
    )
    return tag("nav", *links, class_="pager", aria_label=label)


def details(summary: Content, *content: Content, name: str) -> Markup:
    """Return a collapsed block that users can expand; `name` is its `id`."""
    return tag("details", tag("summary", summary), *content, id=name)


def unbroken(*words: Content) -> Markup:
    """Return text that stays on one line."""
    return tag("span", join(*words), class_="unbroken")


def aside(text: str) -> Markup:
    """Return a remark of less weight than the text around it."""
    return tag("span", text, class_="why")
