"""The arena and the board: models answer side by side, people vote, then see the energy.

`_round.py` has the rules of a round and `_events.py` its events; `_bradley_terry.py` rates models;
`_storage.py` keeps events and rows in a store. `_pacing.py` releases two answers in step, so that
nothing tells them apart; `_duel.py` runs a round, `_arena.py` all of them. `pages/` is for people.
"""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import fastapi  # noqa: F401
    import httptools  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtraError("the arena", "server") from None

from zeus.arena._app import create_app
from zeus.arena._arena import ArenaSettings
from zeus.arena._contenders import Contender

__all__ = ["ArenaSettings", "Contender", "create_app"]
