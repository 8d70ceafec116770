"""A process's connection to the node agent.

The agent owns the knobs of the machine's GPUs: a small privileged process that every user reaches
through a socket. What a connection holds ends with it, so a process has one, and keeps it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zeus.device._agent_wire import (
    PROTOCOL,
    Inbox,
    Message,
    WireError,
    decode_error,
    receive,
    receive_soon,
    send,
    set_time_limit,
)
from zeus.errors import CapabilityError, Reason

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT = 2.0  # seconds for an agent to answer at all
_ANSWER_TIMEOUT = 10.0  # seconds for an answer: several driver calls, each of which may hang
_RETRY_PAUSE = 5.0  # seconds until another attempt to reach an agent that was lost


class AgentLostError(ConnectionError):
    """The agent cannot be reached, or has ended."""


class AgentClient:
    """A connection to the agent, used by all threads of this process.

    A connection that breaks is made again at the next request, not more often than every few
    seconds; `on_reconnect` then takes what was held again.

    Args:
        path: The agent's socket.

    Raises:
        OSError: If there is no agent.
        CapabilityError: If there is one that refuses this process, or does not respond.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Called after a lost agent was reached again, while no other request is made.
        self.on_reconnect: Callable[[], None] = _nothing
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._inbox = Inbox()
        self._lost_at = 0.0
        self._heartbeat: _Heartbeat | None = None
        self.hello, self.descriptors = self._connect()
        _clients.add(self)

    def _connect(self) -> tuple[Message, list[int]]:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(connection, str(self.path))
            set_time_limit(connection, _CONNECT_TIMEOUT)
            # An agent that admits nobody of this user may have said so and closed already.
            with contextlib.suppress(BrokenPipeError):
                send(connection, {"do": "hello", "protocol": PROTOCOL})
            self._inbox = Inbox()
            hello, descriptors = receive(connection, self._inbox)
            if "error" in hello:
                raise decode_error(hello["error"])
            set_time_limit(connection, _ANSWER_TIMEOUT)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError | WireError):
                detail = f"the node agent at {self.path} does not answer ({error})"
                raise CapabilityError(Reason.HANGS, detail) from None
            raise
        self._socket = connection
        return hello["result"], descriptors

    @property
    def connected(self) -> bool:
        """Whether the agent was there at the last request."""
        return self._socket is not None

    def request(self, do: str, **fields: Any) -> Any:
        """Send a request and return its result.

        Raises:
            AgentLostError: If the agent is not there.
            CapabilityError: If the agent refuses, or its GPU cannot do it.
            KnobError: If the value of a knob is not accepted.
        """
        with self._lock:
            connection = self._ready()
            try:
                send(connection, {"do": do, **fields})
                answer = receive_soon(connection, self._inbox)
            except BaseException as error:
                # The answer may still come: this connection is out of step.
                self._lose()
                if isinstance(error, OSError | WireError):
                    raise AgentLostError(f"the node agent was lost: {error}") from None
                raise
        if "error" in answer:
            raise decode_error(answer["error"])
        return answer.get("result")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other thread make requests, so that none can reach a new agent meanwhile."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """Reach the agent, and stay with it: what `on_reconnect` took again is in force.

        Raises:
            AgentLostError: If the agent is not there.
        """
        with self._lock:
            self._ready()
            yield

    def _ready(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        if time.monotonic() - self._lost_at < _RETRY_PAUSE:
            raise AgentLostError("the node agent was lost")
        try:
            _, descriptors = self._connect()
        except (OSError, CapabilityError) as error:
            self._lost_at = time.monotonic()
            raise AgentLostError(f"the node agent was lost: {error}") from None
        for descriptor in descriptors:
            os.close(descriptor)  # those of the first connection are still good
        logger.warning("the node agent is there again")
        self.on_reconnect()
        return self._held_socket()

    def _held_socket(self) -> socket.socket:
        if self._socket is None:
            raise AgentLostError("the node agent was lost")
        return self._socket

    def _lose(self) -> None:
        if self._socket is not None:
            self._socket.close()
            logger.warning("the node agent was lost: GPU settings are no longer held")
        self._socket = None
        self._lost_at = time.monotonic()

    def keep_alive(self) -> None:
        """Show the agent from now on that this process still runs, as holds require."""
        with self._lock:
            if self._heartbeat is None:
                self._heartbeat = _Heartbeat(self, self.hello["heartbeat"] / 4)

    def close(self) -> None:
        """End the connection, and with it what it holds."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            self._lost_at = float("inf")

    def leave_after_fork(self) -> None:
        """In a forked child, leave the connection to the parent, whose holds it has."""
        self._lock = threading.RLock()
        self._heartbeat = None
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._lost_at = float("-inf")
        self.on_reconnect = _nothing


def _connect(connection: socket.socket, path: str) -> None:
    """Connect, waiting for a while if many others do so at the same time."""
    connection.setblocking(False)
    deadline = time.monotonic() + _CONNECT_TIMEOUT
    while True:
        try:
            connection.connect(path)
            return
        except BlockingIOError:  # too many wait to be accepted
            if time.monotonic() > deadline:
                raise TimeoutError("it accepts no connection") from None
            time.sleep(0.01)


def _nothing() -> None:
    pass


class _Heartbeat:
    """Sends a request now and then, from a thread that ends with its client."""

    def __init__(self, client: AgentClient, period: float) -> None:
        self._client = weakref.ref(client)
        self._period = period
        threading.Thread(target=self._run, name="zeus agent heartbeat", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self._period)
            client = self._client()
            if client is None or client._heartbeat is not self:
                return
            try:
                client.request("beat")
            except (AgentLostError, CapabilityError):
                continue  # the next request tries to reach it again


_clients: weakref.WeakSet[AgentClient] = weakref.WeakSet()


def _leave_after_fork() -> None:
    for client in list(_clients):
        client.leave_after_fork()


os.register_at_fork(after_in_child=_leave_after_fork)
