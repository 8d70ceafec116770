"""HTML builders that escape all text by default.

Names of work, jobs and GPUs, notes and tokens are untrusted. So pages are built from `tag`s, not
strings; `tag` escapes every text except what `tag`, `join` and `trusted` return.
"""

from __future__ import annotations

from typing import Any, Self

from zeus.drawing._text import safe

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})


class Markup(str):
    """A piece of HTML."""

    __slots__ = ()

    def __add__(self, other: str) -> Self:
        return type(self)(str.__add__(self, escaped(other)))


Content = Markup | str | int | None
"""Content of an element: HTML, or text that is escaped; `None` is empty."""


def trusted(html: str) -> Markup:
    """Mark a string as HTML; never use it for untrusted text."""
    return Markup(html)


def escaped(content: Content) -> Markup:
    """Return content as HTML."""
    if isinstance(content, Markup):
        return content
    return Markup("" if content is None else safe(str(content)))


def join(*contents: Content, between: Content = "") -> Markup:
    """Concatenate contents."""
    return Markup(escaped(between).join(escaped(content) for content in contents))


def tag(name: str, /, *contents: Content, **attributes: Any) -> Markup:
    """Return an element.

    Args:
        name: Name of the element.
        contents: Its contents.
        attributes: Underscores in names become hyphens; a trailing one is dropped (`class_`).
            `None` and `False` omit the attribute; `True` gives it no value.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.removesuffix("_").replace("_", "-")
        parts.append(label if value is True else f'{label}="{escaped(str(value))}"')
    start = f"<{' '.join(parts)}>"
    return Markup(start if name in _VOID else f"{start}{join(*contents)}</{name}>")
