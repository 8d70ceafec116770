"""The agent as a process: its socket, a thread per client, signals, and its end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import logging
import os
import resource
import select
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from zeus.agent._agent import Agent, Session
from zeus.agent._peer import credentials, peer_of, process_descriptor
from zeus.device._agent_wire import (
    SOON,
    Inbox,
    WireError,
    encode_error,
    receive_now,
    send,
    set_time_limit,
)
from zeus.errors import CapabilityError, KnobError, Reason, ZeusError

logger = logging.getLogger(__name__)

_MOST_CLIENTS = 2048
_MOST_PER_USER = 512
_MAX_REQUEST = 1 << 14  # bytes
_SEND_TIMEOUT = 5.0  # seconds for a client to read an answer
_GREETING_TIMEOUT = 10.0  # seconds for a client to say who it is
_RETRY_PAUSE = 1.0  # seconds
_CHECK_PERIOD = 0.5  # seconds: whether the process of a client that never pauses still runs
_BACKLOG = 256


class AgentError(ZeusError, RuntimeError):
    """An agent cannot start; says why."""


class only_agent:
    """Context manager for the only agent of a node: a second one is refused.

    Args:
        path: A file that the agent keeps locked.

    Raises:
        AgentError: If another agent runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise AgentError(
                f"another node agent runs here (process {other or 'unknown'}, {self._path} is "
                "locked): a node has one"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


class Service:
    """Listens on a socket and serves each client in a thread.

    Args:
        agent: Answers the requests.
        path: The socket.
        mode: Permissions of the socket. Who may do what is decided by the kernel's word on who
            the client is, so it can be open to all.
        group: Group of the socket, if not the process's own.

    Raises:
        AgentError: If the socket cannot be created.
    """

    def __init__(self, agent: Agent, path: Path, mode: int = 0o666, group: str = "") -> None:
        self._agent = agent
        self._path = path
        self._reload: Callable[[], None] | None = None
        self._clients: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._stopped = ""
        self._listener = _listener(path, mode, group)
        _raise_descriptor_limit()

    def run(self, reload: Callable[[], None], on_start: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM or SIGINT; call `reload` on SIGHUP, `on_start` when they may come."""
        self._reload = reload
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        with self._signals():
            on_start()
            while not self._stopped:
                # Woken by nothing but clients and signals, unless there is something to retry.
                pause = _RETRY_PAUSE * 1e3 if self._agent.failing() else None
                ready = {descriptor for descriptor, _ in poll.poll(pause)}
                if self._wake_reader in ready:
                    self._signaled(os.read(self._wake_reader, 64))
                if self._listener.fileno() in ready:
                    self._accept()
                if not ready:
                    self._agent.retry()
        self._close()

    def stop(self, why: str) -> None:
        """End `run`; may be called from any thread."""
        self._stopped = why
        self._wake()

    def wake(self) -> None:
        """Let `run` see at once that there is something to retry."""
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_writer, b"\0")

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Have signals write their number into the pipe, so that they end a wait."""
        if threading.current_thread() is not threading.main_thread():
            yield  # in a program that has its own signals
            return
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
        before = signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _signaled(self, received: bytes) -> None:
        if signal.SIGTERM in received or signal.SIGINT in received:
            self._stopped = self._stopped or "the agent was stopped"
        elif signal.SIGHUP in received and self._reload is not None:
            self._reload()

    def _close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        self._agent.close(self._stopped)

    # --- clients ----------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                logger.error("no client can be accepted now: %s", error)
                time.sleep(0.1)  # until one leaves; those that are here are served meanwhile
            return
        try:
            _, uid, _ = credentials(connection)
        except OSError:
            connection.close()
            return
        with self._lock:
            # Whoever fills the agent with several users must not lock its operator out.
            others = self._clients.total() - self._clients[0]
            full = (uid and others >= _MOST_CLIENTS) or self._clients[uid] >= _MOST_PER_USER
            if not full:
                self._clients[uid] += 1
        if full:
            why = f"user {uid} has too many connections"
            _try_to_refuse(connection, CapabilityError(Reason.BLOCKED, why))
            return
        thread = threading.Thread(target=self._serve, args=(connection, uid), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            logger.error("no client can be served now: %s", error)
            connection.close()
            self._left(uid)

    def _left(self, uid: int) -> None:
        with self._lock:
            self._clients[uid] -= 1
            if not self._clients[uid]:
                del self._clients[uid]

    def _serve(self, connection: socket.socket, uid: int) -> None:
        process: int | None = None
        try:
            process = process_descriptor(credentials(connection)[0])
            peer = peer_of(connection, process)
            session = self._agent.admit(peer)
            if session is None:
                why = f"the node agent's policy does not let {peer.user} in"
                _try_to_refuse(connection, CapabilityError(Reason.NO_PERMISSION, why))
                return
            why = "the agent failed"
            try:
                why = _Conversation(self._agent, session, connection, process).run()
            finally:
                self._agent.leave(session, why)
                if self._agent.failing():
                    self.wake()
        except Exception:
            logger.exception("serving a process of user %d failed", uid)
        finally:
            connection.close()
            if process is not None:
                os.close(process)
            self._left(uid)


class _Conversation:
    """The requests of one client, until it ends."""

    def __init__(
        self, agent: Agent, session: Session, connection: socket.socket, process: int | None
    ) -> None:
        self._agent = agent
        self._session = session
        self._connection = connection
        self._process = process
        set_time_limit(connection, _SEND_TIMEOUT)

    def run(self) -> str:
        """Answer requests; returns why the conversation ended."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if self._process is not None:
            # A child that was forked may keep the connection open after its parent's end.
            poll.register(self._process, select.POLLIN)
        return self._converse(poll)

    def _converse(self, poll: select.poll) -> str:
        inbox = Inbox(_MAX_REQUEST)
        heard = time.monotonic()
        checked = heard
        quick = False  # whether the client asks one thing after the other
        while True:
            waits = time.perf_counter()
            try:
                received = receive_now(self._connection, waits + SOON) if quick else None
                if received is None or heard - checked > _CHECK_PERIOD:
                    checked = time.monotonic()
                    pause = self._pause(heard) if received is None else 0.0
                    ready = {descriptor for descriptor, _ in poll.poll(pause)}
                    if self._process in ready:
                        return "its process ended"
                if received is None:
                    received = receive_now(self._connection, 0.0)
            except OSError as error:
                return f"its connection failed: {error}"
            quick = time.perf_counter() - waits < SOON
            if received is not None:
                if not received:
                    return "its connection was closed"
                inbox.add(received)
                try:
                    while (request := inbox.next()) is not None:
                        heard = time.monotonic()
                        self._answer(request)
                except WireError as error:
                    _try_to_refuse(
                        self._connection, CapabilityError(Reason.UNSUPPORTED, str(error))
                    )
                    return f"it sent what is no request: {error}"
                except OSError as error:
                    return f"its connection failed: {error}"
            self._agent.expire(self._session)
            silent = time.monotonic() - heard
            if silent > self._patience():
                return f"it was silent for {silent:.0f} s"

    def _patience(self) -> float:
        if not self._session.greeted:
            return _GREETING_TIMEOUT
        return self._agent.policy.heartbeat if self._session.leases else float("inf")

    def _pause(self, heard: float) -> float | None:
        """Return the milliseconds until something is due; `None` for never."""
        due = heard + self._patience()
        expires = self._session.expires()
        if expires is not None:
            due = min(due, expires)
        if due == float("inf"):
            return None
        return max(0.0, due - time.monotonic()) * 1e3 + 1

    def _answer(self, request: dict[str, object]) -> None:
        try:
            result, descriptors = self._agent.answer(self._session, request)
        except (CapabilityError, KnobError) as error:
            send(self._connection, {"error": encode_error(error)})
            return
        send(self._connection, {"result": result}, descriptors)


def _try_to_refuse(connection: socket.socket, error: CapabilityError) -> None:
    with contextlib.suppress(OSError):
        set_time_limit(connection, 0.2)
        send(connection, {"error": encode_error(error)})
    connection.close()


def _listener(path: Path, mode: int, group: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.is_socket():
            path.unlink()  # left by an agent that was killed: only one runs at a time
        mask = os.umask(0o777)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        if group:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
        path.chmod(mode)  # from here on others can connect
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except KeyError:
        listener.close()
        raise AgentError(f"there is no group {group!r}") from None
    except OSError as error:
        listener.close()
        raise AgentError(f"no socket can be created at {path}: {error}") from None
    return listener


def _raise_descriptor_limit() -> None:
    _, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * _MOST_CLIENTS
    if highest != resource.RLIM_INFINITY:
        wanted = min(wanted, highest)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))
