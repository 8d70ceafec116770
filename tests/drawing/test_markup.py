"""HTML of pages: texts are escaped, and a column of a table is one entry."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from zeus.drawing._markup import Markup, escaped, join, tag, trusted
from zeus.drawing._table import Column, table


class _Seen(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@given(st.text(alphabet=st.characters(exclude_categories=["C"])))
def test_a_text_is_never_markup(text):
    seen = _Seen(join(tag("p", text, title=text), "<i>", between=text))
    assert [name for name, _ in seen.tags] == ["p"]
    assert seen.tags[0][1] == {"title": text}
    assert seen.text == text + text + "<i>"


def test_markup_is_kept():
    assert tag("p", tag("b", "x"), trusted("<i>"), None, 3) == "<p><b>x</b><i>3</p>"
    assert tag("input", type="text", required=True, checked=False, value=None) == (
        '<input type="text" required>'
    )
    assert tag("a", class_="x", aria_label='"') == '<a class="x" aria-label="&quot;"></a>'
    both = tag("b", "1") + "<"
    assert (both, type(both)) == ("<b>1</b>&lt;", Markup)
    assert escaped("a\x00\x1b[1m\udc80b") == "a[1mb"
    assert "&lt;b&gt;" in table("<b>", [Column("<b>", str), Column("<b>", str)], ["<b>"])
    assert "<b>" not in table("<b>", [Column("<b>", str), Column("<b>", str)], ["<b>"])


def test_a_column_is_one_entry():
    columns: list[Column] = [
        Column("name", lambda pair: pair[0]),
        Column("amount", lambda pair: pair[1], number=True, optional=True),
    ]
    html = table("Amounts", columns, [("a", 1), ("b", None)], kind=lambda pair: pair[0] * 2)
    assert '<th scope="col">name</th><th scope="col" class="number optional">amount</th>' in html
    assert '<tr class="aa"><th scope="row">a</th><td class="number optional">1</td></tr>' in html
    assert '<tr class="bb"><th scope="row">b</th><td class="number optional"></td></tr>' in html
