"""Pictures as files, of the type that the file name ends in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import PurePath

from zeus.drawing._shapes import Picture
from zeus.drawing._svg import svg
from zeus.drawing._text import Measure, estimated_width
from zeus.errors import PictureError

KINDS = (".svg", ".png")


def kind_of(path: str | os.PathLike[str], kinds: Sequence[str] = KINDS) -> str:
    """Return the type of picture that a file name ends in.

    Raises:
        PictureError: If it is not one of `kinds`.
    """
    kind = PurePath(path).suffix.lower()
    if kind not in kinds:
        known = ", ".join(map(repr, kinds))
        raise PictureError(
            f"a picture's file name must end in one of {known}, but got {os.fspath(path)!r}"
        )
    return kind


def rendered(lay_out: Callable[[Measure], Picture], kind: str) -> bytes:
    """Return the content of a file.

    Args:
        lay_out: Makes the picture, given a function for the width of texts.
        kind: One of `KINDS`.

    Raises:
        MissingExtraError: If matplotlib is needed and not installed.
    """
    if kind == ".png":
        from zeus.drawing._png import png, text_width  # noqa: PLC0415

        return png(lay_out(text_width()))
    return svg(lay_out(estimated_width)).encode()
