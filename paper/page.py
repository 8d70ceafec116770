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


def page(exhibits: Sequence[Exhibit], pictures: Mapping[str, bytes], lab: Lab) -> str:
    """Return the page as HTML.

    Args:
        exhibits: Exhibits in the order of the page.
        pictures: SVG documents by name of the exhibit.
        lab: The lab that computed them.
    """
    facts = [fact for exhibit in exhibits for fact in exhibit.facts if fact.published]
    counts = {verdict: sum(fact.agrees is verdict for fact in facts) for verdict in _VERDICTS}
    parts = {
        "title": "The Zeus paper, recomputed",
        "gpus": ", ".join(gpu.upper() for gpu in lab.gpus),
        "gpu": lab.gpu.upper(),
        "seeds": str(lab.seeds),
        "statements": str(len(facts)),
        "agree": str(counts[True]),
        "differ": str(counts[False]),
        "open": str(counts[None]),
        "contents": "\n".join(_entry(exhibit) for exhibit in exhibits),
        "exhibits": "\n".join(_section(each, pictures.get(each.name)) for each in exhibits),
    }
    return document("paper", parts)


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
