"""Memory shared with the helper process: requests to it, and its samples.

Every number is a double. The parent writes the requests, the helper everything else. A ring of
refreshes per GPU is written record first, count last, so a reader that follows the count never sees
half a record; one that is too late to read all of them notices by the count.
"""

from __future__ import annotations

import json
import mmap
import os
from enum import IntEnum
from typing import TYPE_CHECKING

from zeus.errors import CapabilityError, Reason
from zeus.monitor._samples import Poll, Refresh, SensorStatus

if TYPE_CHECKING:
    from zeus.monitor._poller import SampleSink


class Slot(IntEnum):
    """Numbers at the front of the memory."""

    ACTIVE_UNTIL = 0  # by the parent: keep polling until this instant
    YOUNGEST = 1  # by the parent: when the youngest window began
    STATE = 2  # by the helper: see `State`
    READING = 3  # by the helper: which GPU is being read, -1 for none
    READING_SINCE = 4  # by the helper: since when
    NEXT_POLL = 5  # by the helper: when a new window is sampled without a request


class State(IntEnum):
    """State of the helper."""

    STARTING = 0
    READY = 1
    FAILED = 2


_FRONT = 16
_RECORD = 6  # a flag for the counter, and the five numbers of a refresh
_RECORDS = 2048
# As JSON a character takes up to twelve bytes, and a truncated text could not be decoded.
_NOTE, _DETAIL, _CURE = 200, 300, 200
_STATUS_BYTES = 12 * (_NOTE + _DETAIL + _CURE) + 600
# Per GPU: count of records, the latest poll, version and length of the status, its text, records.
_COUNT, _POLL, _VERSION, _LENGTH, _TEXT = 0, 1, 4, 5, 6
_RING = _TEXT + _STATUS_BYTES // 8
_BLOCK = _RING + _RECORDS * _RECORD


class SampleRing:
    """The shared memory, from either side."""

    def __init__(self, gpus: int, descriptor: int | None = None) -> None:
        """Create the memory, or attach to the one behind an open descriptor."""
        size = (_FRONT + gpus * _BLOCK) * 8
        self.descriptor = _anonymous_file(size) if descriptor is None else descriptor
        self._bytes = mmap.mmap(self.descriptor, size)
        self.front = memoryview(self._bytes).cast("d")
        if descriptor is None:
            self.front[Slot.READING] = -1

    def close_descriptor(self) -> None:
        """Close the descriptor once the other side has it; the memory stays."""
        os.close(self.descriptor)

    def writer(self, gpu: int) -> RingWriter:
        """Return the sink for a poller of one GPU, in the helper."""
        return RingWriter(self.front, self._bytes, _FRONT + gpu * _BLOCK)

    def reader(self, gpu: int, sink: SampleSink) -> RingReader:
        """Return the reader of the helper's samples of one GPU, in the parent."""
        return RingReader(self.front, self._bytes, _FRONT + gpu * _BLOCK, sink)


class RingWriter:
    """The helper's side of one GPU: a sink of its poller."""

    def __init__(self, front: memoryview[float], memory: mmap.mmap, base: int) -> None:
        self._front, self._memory, self._base = front, memory, base

    def take_counter(self, refresh: Refresh) -> None:
        """Write a refresh of the counter."""
        self._write(1.0, refresh)

    def take_power(self, refresh: Refresh) -> None:
        """Write a refresh of the power meter."""
        self._write(0.0, refresh)

    def take_poll(self, poll: Poll) -> None:
        """Write the latest poll."""
        at = self._base + _POLL
        self._front[at + 1], self._front[at + 2] = poll.joules, poll.watts
        self._front[at] = poll.instant

    def take_status(self, status: SensorStatus) -> None:
        """Write which sensors can be read."""
        text = _encode(status)
        start = (self._base + _TEXT) * 8
        self._memory[start : start + len(text)] = text
        self._front[self._base + _LENGTH] = len(text)
        self._front[self._base + _VERSION] += 1

    def _write(self, counter: float, refresh: Refresh) -> None:
        front, base = self._front, self._base
        count = int(front[base + _COUNT])
        at = base + _RING + count % _RECORDS * _RECORD
        front[at] = counter
        for place, number in enumerate(refresh, at + 1):
            front[place] = number
        front[base + _COUNT] = count + 1


class RingReader:
    """The parent's side of one GPU."""

    def __init__(
        self, front: memoryview[float], memory: mmap.mmap, base: int, sink: SampleSink
    ) -> None:
        self._front, self._memory, self._base, self._sink = front, memory, base, sink
        self._version = 0.0
        self.read = 0  # records passed on so far

    def forward(self) -> None:
        """Pass new records on to the sink."""
        front, base, sink = self._front, self._base, self._sink
        version = front[base + _VERSION]
        if version != self._version:
            self._forward_status(version)
        instant, joules, watts = front[base + _POLL : base + _POLL + 3].tolist()
        count = int(front[base + _COUNT])
        # The oldest few may be overwritten while they are read.
        for number in range(max(self.read, count - _RECORDS + 64), count):
            at = base + _RING + number % _RECORDS * _RECORD
            counter, *refresh = front[at : at + _RECORD].tolist()
            (sink.take_counter if counter else sink.take_power)(Refresh(*refresh))
        self.read = count
        if instant:
            sink.take_poll(Poll(instant, joules, watts))

    def _forward_status(self, version: float) -> None:
        start = (self._base + _TEXT) * 8
        text = bytes(self._memory[start : start + int(self._front[self._base + _LENGTH])])
        try:
            status = _decode(text)
        except ValueError:
            return  # being written; the next call gets it
        self._version = version
        self._sink.take_status(status)


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("zeus-samples")
    else:
        import tempfile  # noqa: PLC0415  (slow to import, and rarely needed)

        descriptor, name = tempfile.mkstemp(prefix="zeus-samples")
        os.unlink(name)  # noqa: PTH108
    os.ftruncate(descriptor, size)
    return descriptor


def _encode(status: SensorStatus) -> bytes:
    trouble = status.trouble
    record = {
        **status._asdict(),
        "counter_note": status.counter_note[:_NOTE],
        "trouble": trouble and [trouble.reason, trouble.detail[:_DETAIL], trouble.cure[:_CURE]],
    }
    return json.dumps(record).encode()


def _decode(text: bytes) -> SensorStatus:
    record = json.loads(text)
    trouble = record.pop("trouble")
    if trouble is not None:
        trouble = CapabilityError(Reason(trouble[0]), trouble[1], trouble[2])
    return SensorStatus(**record, trouble=trouble)
