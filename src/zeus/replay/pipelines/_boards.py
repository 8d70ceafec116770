"""GPU models of the recorded pipelines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zeus.errors import TraceError


@dataclass(frozen=True)
class Board:
    """A GPU model.

    Attributes:
        name: Its name.
        blocking_power: Watts of a GPU that waits for another, as measured by the Perseus authors.
        power_limit: Watts that the board holds itself to by lowering its clock, from its data
            sheet.
    """

    name: str
    blocking_power: float
    power_limit: float


BOARDS = (Board("A40", 70.38, 300.0), Board("A100", 83.64, 300.0))


def board_named(text: str) -> Board:
    """Return the GPU model whose name is a word of a text, such as "a40-bert-huge-pp8-mb32".

    Raises:
        TraceError: If there is none.
    """
    words = re.split(r"[^a-z0-9]+", text.lower())
    for board in BOARDS:
        if board.name.lower() in words:
            return board
    known = ", ".join(board.name for board in BOARDS)
    raise TraceError(f"{text!r} must name a known GPU model ({known}), but does not")
