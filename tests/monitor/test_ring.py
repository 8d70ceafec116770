"""The memory that is shared with the helper."""

from __future__ import annotations

import os

import pytest

from zeus.errors import CapabilityError, Reason
from zeus.monitor.looks import Look, Senses
from zeus.monitor.ring import SharedLooks


@pytest.mark.parametrize("character", ["x", "ü", "\0", "🔥"])
def test_the_longest_notes_arrive_and_touch_no_look(character: str) -> None:
    memory = SharedLooks(2)
    other = SharedLooks(2, os.dup(memory.descriptor))
    look = Look(1.0, 2.0, 3.0, 4.0, None)
    for gpu in (0, 1):
        memory.tell(gpu, look, Senses(), None)
    long = character * 5_000
    trouble = CapabilityError(Reason.LOST, long, long)
    memory.tell(0, None, Senses(counter_note=long, trouble=trouble), None)
    version, senses = other.senses(0, 0.0)
    assert version == 2.0
    assert long.startswith(senses.counter_note)
    assert len(senses.counter_note) >= 100
    assert long.startswith(senses.trouble.detail)
    assert [list(other.looks(gpu, 0)) for gpu in (0, 1)] == [[(1, look)]] * 2
    memory.close_descriptor()
    other.close_descriptor()
