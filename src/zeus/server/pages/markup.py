"""HTML that is escaped unless somebody says that it is HTML.

Names of jobs and GPUs, notes and tokens come from others. So pages are not made of strings but of
`tag`s, which escape every text; only what `tag`, `join` and `trusted` return is put in as it is.
"""

from __future__ import annotations

from typing import Any, Self

from zeus.drawing.text import safe

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})


class Markup(str):
    """A piece of HTML."""

    __slots__ = ()

    def __add__(self, other: str) -> Self:
        return type(self)(str.__add__(self, escaped(other)))


Content = Markup | str | int | None
"""What may stand in an element: HTML, or a text that is escaped; `None` is nothing."""


def trusted(html: str) -> Markup:
    """Something that is HTML already; never give it what somebody sent."""
    return Markup(html)


def escaped(content: Content) -> Markup:
    """Content as HTML."""
    if isinstance(content, Markup):
        return content
    return Markup("" if content is None else safe(str(content)))


def join(*contents: Content, between: Content = "") -> Markup:
    """One after the other."""
    return Markup(escaped(between).join(escaped(content) for content in contents))


def tag(name: str, /, *contents: Content, **attributes: Any) -> Markup:
    """An element.

    Args:
        name: Of the element.
        contents: What is in it.
        attributes: An underscore in a name stands for a hyphen, but one at its end is left out
            (`class_`). One that is `None` or `False` is left out, and one that is `True` stands
            without a value.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.removesuffix("_").replace("_", "-")
        parts.append(label if value is True else f'{label}="{escaped(str(value))}"')
    start = f"<{' '.join(parts)}>"
    return Markup(start if name in _VOID else f"{start}{join(*contents)}</{name}>")
