"""The page: every figure with the published numbers and ours side by side.

One self-contained HTML file with embedded pictures. The same pictures and their data are also
written as separate files.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from paper.exhibit import Exhibit, Fact, Listing
from paper.lab import Lab
from paper.product import document

_VERDICTS = {True: ("agrees", "agrees"), False: ("differs", "differs"), None: ("open", "see note")}


_RELOAD = 3  # seconds between two loads of a page that is not complete


def page(
    names: Sequence[str],
    exhibits: Mapping[str, Exhibit],
    pictures: Mapping[str, bytes],
    lab: Lab,
    *,
    current: str | None = None,
) -> str:
    """Return the page as HTML.

    Args:
        names: Names of all exhibits, in the order of the page.
        exhibits: Those that have been computed, by name.
        pictures: SVG documents by name of the exhibit.
        lab: The lab that computed them.
        current: Name of the exhibit that is being computed; the page then loads itself again
            after some seconds.
    """
    facts = [fact for each in exhibits.values() for fact in each.facts if fact.published]
    counts = {verdict: sum(fact.agrees is verdict for fact in facts) for verdict in _VERDICTS}
    contents, sections = [], []
    for name in names:
        exhibit = exhibits.get(name)
        contents.append(_absent_entry(name) if exhibit is None else _entry(exhibit))
        sections.append(
            _absent(name, current) if exhibit is None else _section(exhibit, pictures.get(name))
        )
    parts = {
        "title": "The Zeus paper, recomputed",
        "gpus": ", ".join(gpu.upper() for gpu in lab.gpus),
        "gpu": lab.gpu.upper(),
        "seeds": str(lab.seeds),
        "statements": str(len(facts)),
        "agree": str(counts[True]),
        "differ": str(counts[False]),
        "open": str(counts[None]),
        "status": _status(len(exhibits), len(names), ended=current is None),
        "contents": "\n".join(contents),
        "exhibits": "\n".join(sections),
    }
    return document("paper", parts, refresh=None if current is None else _RELOAD)


def _status(done: int, total: int, *, ended: bool) -> str:
    """Say how much of the page is missing, above it."""
    if done == total:
        return ""
    count = f"{done} of {total} figures and tables"
    text = (
        f"The computation ended early: the page has {count}."
        if ended
        else f"Being computed: {count} so far. The page loads itself again until all are here; "
        "the counts above are of those that are."
    )
    return f'<p class="status" role="status">{text}</p>\n'


def _absent_entry(name: str) -> str:
    return f'<li class="absent"><a href="#{name}"><b>{_title(name)}</b></a></li>'


def _absent(name: str, current: str | None) -> str:
    later = "Not computed." if current is None else "Not computed yet."
    text = "Being computed." if name == current else later
    return (
        f'<section id="{name}">\n<h2>{_title(name)}</h2>\n<p class="missing">{text}</p>\n</section>'
    )


def _title(name: str) -> str:
    """Return the title of an exhibit that is only known by its name, such as "figure-4"."""
    return escape(name.replace("-", " ").capitalize())


def _entry(exhibit: Exhibit) -> str:
    marks = {fact.agrees for fact in exhibit.facts if fact.published}
    kind = (
        "none"
        if not marks
        else "differs"
        if False in marks
        else "agrees"
        if True in marks
        else "open"
    )
    if exhibit.missing:
        kind = "missing"
    return (
        f'<li class="{kind}"><a href="#{exhibit.name}"><b>{escape(exhibit.title)}</b> '
        f"{escape(exhibit.subject)}</a></li>"
    )


def _section(exhibit: Exhibit, picture: bytes | None) -> str:
    lines = [
        f'<section id="{exhibit.name}">',
        f"<h2>{escape(exhibit.title)} <span>{escape(exhibit.subject)}</span></h2>",
    ]
    if exhibit.missing:
        lines += [f'<p class="missing">Not recomputed. {_text(exhibit.missing)}</p>', "</section>"]
        return "\n".join(lines)
    if picture is not None:
        lines.append(_picture(exhibit, picture))
    if exhibit.listing is not None:
        lines.append(_listing(exhibit.listing, exhibit.subject))
    if exhibit.caption:
        lines.append(f'<p class="caption">{_text(exhibit.caption)}</p>')
    if exhibit.facts:
        lines.append(_facts(exhibit.facts))
    kinds = ("svg", "png", "json") if picture is not None else ("json",)
    links = ", ".join(f'<a href="{exhibit.name}.{kind}">{kind.upper()}</a>' for kind in kinds)
    lines += [f'<p class="files">{links}</p>', "</section>"]
    return "\n".join(lines)


def _picture(exhibit: Exhibit, picture: bytes) -> str:
    content = base64.b64encode(picture).decode("ascii")
    return (
        f'<figure tabindex="0" role="region" aria-label="{escape(exhibit.title)}">'
        f'<img alt="{escape(f"{exhibit.title}: {exhibit.subject}")}" '
        f'src="data:image/svg+xml;base64,{content}"></figure>'
    )


def _listing(listing: Listing, name: str) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in listing.head)
    body = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in listing.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table class="listing"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
        "</div>"
    )


def _facts(facts: Sequence[Fact]) -> str:
    rows = []
    for fact in facts:
        kind, verdict = _VERDICTS[fact.agrees] if fact.published else ("ours", "ours")
        rows.append(
            f'<tr class="{kind}"><th scope="row">{_text(fact.what)}'
            f"<small>{escape(fact.where)}</small></th>"
            f'<td data-label="Paper">{_text(fact.published) or "–"}</td>'
            f'<td data-label="Ours">{_text(fact.ours)}</td>'
            f'<td data-label="Note"><span class="verdict">{verdict}</span> {_text(fact.note)}</td>'
            "</tr>"
        )
    body = "\n".join(rows)
    return (
        '<table class="facts"><thead><tr><th scope="col">What</th><th scope="col">Paper</th>'
        '<th scope="col">Ours</th><th scope="col">Why they differ, or not</th></tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def _text(text: str) -> str:
    """Format text as HTML: `code` is marked up, and a number and its % stay on one line."""
    parts = escape(text).replace(" %", "\u00a0%").split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
