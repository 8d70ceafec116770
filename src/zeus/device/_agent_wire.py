"""Messages between the node agent and its clients.

A message is a JSON object preceded by its length (4 bytes, big-endian). A client sends requests,
each with the name of what it asks for, `do`; each is followed by one answer, with either `result`
or `error`. File descriptors travel beside the answer they belong to.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, NoReturn

from zeus.device._base import (
    ClockRange,
    CurrentClocks,
    GpuProcess,
    MemoryUse,
    PowerLimits,
    ProcessUsage,
    SupportedClocks,
)
from zeus.errors import CapabilityError, KnobError, Reason

PROTOCOL = 1
"""Version of the messages. An agent answers clients of its own version only."""

SOON = 250e-6
"""Seconds for which a process tries to receive what it expects, before it sleeps."""

MAX_BYTES = 1 << 20
_LENGTH = struct.Struct("!I")
_MAX_DESCRIPTORS = 64

Message = dict[str, Any]


class WireError(ValueError):
    """Bytes that are no message, or a message that is none of those expected."""


def encoded(message: Message) -> bytes:
    """Return the bytes of a message."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(body)) + body


def decoded(body: bytes) -> Message:
    """Return the message in the bytes behind a length.

    Raises:
        WireError: If they are no JSON object, or one with a number that is none.
    """
    try:
        message = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message must be a JSON object ({error})") from None
    if not isinstance(message, dict):
        raise WireError(f"a message must be a JSON object, but is a {type(message).__name__}")
    return message


def _no_constant(text: str) -> NoReturn:
    raise WireError(f"a number must be finite, but got {text}")


class Inbox:
    """The bytes received so far, cut into messages."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def add(self, received: bytes) -> None:
        """Append received bytes."""
        self._buffer += received

    def next(self) -> Message | None:
        """Return the next whole message; `None` if there is none yet.

        Raises:
            WireError: If the bytes are no message, or a message is too long.
        """
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._max_bytes:
            raise WireError(
                f"a message must have at most {self._max_bytes} bytes, but has {length}"
            )
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return decoded(body)


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message, with copies of file descriptors."""
    raw = encoded(message)
    with _time_limit():
        if descriptors:
            raw = raw[socket.send_fds(connection, [raw], list(descriptors)) :]
        connection.sendall(raw)


def receive(connection: socket.socket, inbox: Inbox) -> tuple[Message, list[int]]:
    """Wait for a message, and the file descriptors beside it.

    Raises:
        WireError: If the bytes are no message.
        ConnectionError: If the other side has closed the connection.
        OSError: If receiving fails, or takes longer than the socket's time limit.
    """
    descriptors: list[int] = []
    while (message := inbox.next()) is None:
        with _time_limit():
            received, more, _, _ = socket.recv_fds(connection, 1 << 16, _MAX_DESCRIPTORS)
        descriptors += more
        _take(received, inbox)
    return message, descriptors


def receive_soon(connection: socket.socket, inbox: Inbox) -> Message:
    """Wait for a message that is expected within microseconds, without descriptors.

    A process that sleeps until it is woken waits several times as long, on an idle machine for
    almost a millisecond: so this one tries for a moment first.

    Raises:
        As `receive`.
    """
    until = time.perf_counter() + SOON
    while (message := inbox.next()) is None:
        received = receive_now(connection, until)
        if received is None:
            with _time_limit():
                received = connection.recv(1 << 16)
        _take(received, inbox)
    return message


def receive_now(connection: socket.socket, until: float) -> bytes | None:
    """Return bytes that arrive before an instant of `time.perf_counter()`, without sleeping."""
    while True:
        try:
            return connection.recv(1 << 14, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if time.perf_counter() > until:
                return None
            os.sched_yield()  # to the other side, if they share a core


def _take(received: bytes, inbox: Inbox) -> None:
    if not received:
        raise ConnectionResetError("the connection was closed")
    inbox.add(received)


def set_time_limit(connection: socket.socket, seconds: float) -> None:
    """Limit how long a blocking socket waits; the kernel does, without a call more per message."""
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, option, limit)
    connection.setblocking(True)


@contextmanager
def _time_limit() -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise TimeoutError("timed out") from None


# --- errors -------------------------------------------------------------------------------------


def encode_error(error: CapabilityError | KnobError) -> Message:
    """Return an error as part of an answer."""
    if isinstance(error, KnobError):
        return {"kind": "knob", "detail": str(error)}
    return {
        "kind": "capability",
        "reason": error.reason.value,
        "detail": error.detail,
        "cure": error.cure,
    }


def decode_error(found: object) -> CapabilityError | KnobError:
    """Return the error in an answer."""
    if not isinstance(found, dict):
        return CapabilityError(Reason.LOST, f"the node agent answered {found!r:.100}")
    detail = str(found.get("detail", ""))
    if found.get("kind") == "knob":
        return KnobError(detail)
    try:
        reason = Reason(str(found.get("reason")))
    except ValueError:
        reason = Reason.LOST
    return CapabilityError(reason, detail, str(found.get("cure", "")))


# --- values of readings -------------------------------------------------------------------------


def encode_value(value: Any) -> Any:
    """Return the value of a reading in the form of JSON."""
    if isinstance(value, CapabilityError):
        return {"error": encode_error(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, tuple | list):
        return [encode_value(each) for each in value]
    return value


def _number(found: Any) -> float:
    if type(found) not in (int, float):
        raise WireError(f"a reading must be a number, but is {found!r:.100}")
    return float(found)


def _number_or_error(found: Any) -> float | CapabilityError:
    if isinstance(found, dict):
        error = decode_error(found.get("error"))
        return error if isinstance(error, CapabilityError) else implausible_answer(found)
    return _number(found)


def implausible_answer(found: object) -> CapabilityError:
    """Return the error for an answer that makes no sense."""
    return CapabilityError(Reason.IMPLAUSIBLE, f"the node agent answered {found!r:.100}")


def _lock(found: Any) -> ClockRange | None:
    return None if found is None else ClockRange(**found)


def _pair(found: Any) -> tuple[float, float]:
    first, second = found
    return _number(first), _number(second)


def _sample(found: Any) -> tuple[float | CapabilityError, float | CapabilityError]:
    energy, power = found
    return _number_or_error(energy), _number_or_error(power)


def _clocks(found: Any) -> SupportedClocks:
    return SupportedClocks(tuple(found["graphics"]), tuple(found["memory"]))


def _usage(found: Any) -> ProcessUsage:
    shares = {int(pid): _number(share) for pid, share in found["shares"].items()}
    return ProcessUsage(_number(found["begin"]), _number(found["end"]), shares)


def _processes(found: Any) -> tuple[GpuProcess, ...]:
    return tuple(GpuProcess(**each) for each in found)


def _truth(found: Any) -> bool:
    return bool(found)


READINGS: dict[str, Callable[[Any], Any]] = {
    "version": str,
    "energy": _number,
    "timed_energy": _pair,
    "sample": _sample,
    "power_samples": lambda found: [_pair(each) for each in found],
    "instant_power": _number,
    "average_power": _number,
    "memory_power": _number,
    "temperature": _number,
    "utilization": _number,
    "memory": lambda found: MemoryUse(**found),
    "processes": _processes,
    "process_usage": _usage,
    "power_limit": _number,
    "power_limits": lambda found: PowerLimits(**found),
    "current_clocks": lambda found: CurrentClocks(**found),
    "supported_clocks": _clocks,
    "locked_graphics_clock": _lock,
    "locked_memory_clock": _lock,
    "persistence": _truth,
}
"""The readings of a GPU that an agent passes on, and how each is read from JSON."""
