"""Common parts of all pages: colors for light and dark mode, base style, and templates."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from zeus.drawing._colors import style_sheet
from zeus.drawing._markup import Content, Markup, tag


def resource(package: str, *path: str) -> str:
    """Return the text of a file that comes with a package."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


def style(own: str) -> str:
    """Return a page's style sheet: colors and common rules, then its own rules."""
    return style_sheet() + resource("zeus.drawing", "page.css") + own


def document(
    package: str, parts: Mapping[str, str], *, scripts: bool = False, refresh: int | None = None
) -> str:
    """Return one self-contained HTML file, of `page.html` and `page.css` in `page_parts`.

    Args:
        package: Package with the folder `page_parts`.
        parts: Values for the placeholders of the page, `title` among them.
        scripts: Whether scripts in the page may run.
        refresh: Seconds after which a browser loads the page again, for a page that is still being
            written; `None` for never.
    """
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">\n'
    whole = {
        "title": parts["title"],
        "scripts": "'unsafe-inline'" if scripts else "'none'",
        "refresh": again,
        "style": style(resource(package, "page_parts", "page.css")),
        "body": filled(resource(package, "page_parts", "page.html"), parts),
    }
    return filled(resource("zeus.drawing", "page.html"), whole)


def note(*contents: Content) -> Markup:
    """Return a paragraph in small print."""
    return tag("p", *contents, class_="note")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with every `{{name}}` replaced; inserted text is not searched for names."""
    first, *pieces = template.split("{{")
    texts = [first]
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        texts += [parts[name], rest]
    return "".join(texts)
