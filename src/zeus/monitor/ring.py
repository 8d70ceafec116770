"""Memory shared with the helper process: what it is asked, and what it has seen.

Every number is a double. The parent writes the requests, the helper everything else. A ring of
looks per GPU is written record first, count last, so a reader that goes by the count never sees
half a record; one that comes too late to read all of them notices by the count.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator
from enum import IntEnum

from zeus.errors import CapabilityError, Reason
from zeus.monitor.looks import Look, Senses


class Slot(IntEnum):
    """Numbers at the front of the memory."""

    ACTIVE_UNTIL = 0  # asked: go on looking until this instant
    YOUNGEST = 1  # asked: when the youngest window began
    WANTED = 2  # asked: number of the latest "look at everything now"
    ANSWERED = 3  # told: number of the latest such request that was carried out
    STATE = 4  # told: see `State`
    READING = 5  # told: which GPU is being read, -1 for none
    READING_SINCE = 6  # told: since when
    NEXT_LOOK = 7  # told: when it will look next if nobody asks


class State(IntEnum):
    """Where the helper stands."""

    STARTING = 0
    READY = 1
    FAILED = 2


_FRONT = 16
_RECORD = 5
_LOOKS = 2048
# As JSON a character takes up to twelve bytes, and a text that was cut could not be decoded.
_NOTE, _DETAIL, _CURE = 200, 300, 200
_SENSES_BYTES = 12 * (_NOTE + _DETAIL + _CURE) + 600
# Per GPU: count of looks, version and length of the senses' text, the text, the looks.
_COUNT, _VERSION, _LENGTH, _TEXT = 0, 1, 2, 3
_RECORDS = _TEXT + _SENSES_BYTES // 8
_BLOCK = _RECORDS + _LOOKS * _RECORD


class SharedLooks:
    """The shared memory, from either side."""

    def __init__(self, gpus: int, descriptor: int | None = None) -> None:
        """Create the memory, or attach to the one behind an open descriptor."""
        self.gpus = gpus
        size = (_FRONT + gpus * _BLOCK) * 8
        self.descriptor = _anonymous_file(size) if descriptor is None else descriptor
        self._bytes = mmap.mmap(self.descriptor, size)
        self.front = memoryview(self._bytes).cast("d")
        if descriptor is None:
            self.front[Slot.READING] = -1

    def close_descriptor(self) -> None:
        """Close the descriptor once the other side has it; the memory stays."""
        os.close(self.descriptor)

    def tell(self, gpu: int, look: Look | None, senses: Senses, told: Senses | None) -> None:
        """Write a look, and what can be seen if that has changed since it was told last."""
        base = _FRONT + gpu * _BLOCK
        front = self.front
        if senses is not told:
            text = _encode(senses)
            start = (base + _TEXT) * 8
            self._bytes[start : start + len(text)] = text
            front[base + _LENGTH] = len(text)
            front[base + _VERSION] += 1
        if look is not None:
            count = int(front[base + _COUNT])
            at = base + _RECORDS + count % _LOOKS * _RECORD
            front[at], front[at + 1], front[at + 2] = look.begun, look.between, look.ended
            front[at + 3] = math.nan if look.joules is None else look.joules
            front[at + 4] = math.nan if look.watts is None else look.watts
            front[base + _COUNT] = count + 1

    def looks(self, gpu: int, seen: int) -> Iterator[tuple[int, Look]]:
        """Looks that are new since `seen` of them were read, with their numbers from one."""
        base = _FRONT + gpu * _BLOCK
        count = int(self.front[base + _COUNT])
        # The oldest few may be overwritten while they are read.
        for number in range(max(seen, count - _LOOKS + 64), count):
            at = base + _RECORDS + number % _LOOKS * _RECORD
            begun, between, ended, joules, watts = self.front[at : at + _RECORD].tolist()
            yield (
                number + 1,
                Look(
                    begun,
                    between,
                    ended,
                    None if math.isnan(joules) else joules,
                    None if math.isnan(watts) else watts,
                ),
            )

    def senses(self, gpu: int, version: float) -> tuple[float, Senses] | None:
        """What can be seen, if that changed since a version."""
        base = _FRONT + gpu * _BLOCK
        current = self.front[base + _VERSION]
        if current == version:
            return None
        start = (base + _TEXT) * 8
        text = bytes(self._bytes[start : start + int(self.front[base + _LENGTH])])
        try:
            return current, _decode(text)
        except ValueError:
            return None  # being written; the next reading gets it


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("zeus-looks")
    else:
        import tempfile  # noqa: PLC0415  (slow to import, and rarely needed)

        descriptor, name = tempfile.mkstemp(prefix="zeus-looks")
        os.unlink(name)  # noqa: PTH108
    os.ftruncate(descriptor, size)
    return descriptor


def _encode(senses: Senses) -> bytes:
    trouble = senses.trouble
    record = {
        "counter": senses.counter,
        "power": senses.power,
        "averaged": senses.averaged,
        "counter_note": senses.counter_note[:_NOTE],
        "trouble": trouble and [trouble.reason, trouble.detail[:_DETAIL], trouble.cure[:_CURE]],
    }
    return json.dumps(record).encode()


def _decode(text: bytes) -> Senses:
    record = json.loads(text)
    trouble = record.pop("trouble")
    if trouble is not None:
        trouble = CapabilityError(Reason(trouble[0]), trouble[1], trouble[2])
    return Senses(**record, trouble=trouble)
