"""Files that outlive a process: the state directory, atomic writes, and locks with deadlines."""

from __future__ import annotations

from zeus.state._files import state_directory, write_atomically
from zeus.state._locks import locked

__all__ = ["locked", "state_directory", "write_atomically"]
