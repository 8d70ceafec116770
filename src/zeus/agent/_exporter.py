"""The agent's second process: it samples and publishes metrics, without any rights.

It is `zeus export`, a plain client of the agent, under another user. One that ends is started
again, after pauses that grow. It ends with the agent, even one that is killed.
"""

from __future__ import annotations

import logging
import os
import pwd
import subprocess
import sys
import threading
import time
from pathlib import Path

from zeus.agent._service import AgentError
from zeus.device._agent_place import AGENT_VARIABLE

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds until it is started again
_STEADY = 60.0  # seconds after which a start counts as a success
_END_TIMEOUT = 5.0  # seconds


class Exporter:
    """Keeps `zeus export` running.

    Args:
        listen: Host and port of its metrics.
        socket: The agent's socket.
        user: User that it runs as; only root can choose one.

    Raises:
        AgentError: If there is no such user.
    """

    def __init__(self, listen: tuple[str, int], socket: Path, user: str) -> None:
        self._command = [sys.executable, "-P", "-m", "zeus", "export"]
        host = f"[{listen[0]}]" if ":" in listen[0] else listen[0]
        self._command += ["--listen", f"{host}:{listen[1]}", "--until-stdin-ends"]
        self._environment = {**os.environ, AGENT_VARIABLE: str(socket)}
        self._owner = _user(user) if os.getuid() == 0 else None
        if self._owner is not None:
            # The agent's own directories are not for this user.
            self._environment |= {"HOME": "/nonexistent", "ZEUS_STATE_DIR": ""}
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zeus exporter", daemon=True)

    def start(self) -> None:
        """Start it; returns at once."""
        self._thread.start()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                self._process = self._started()
                code: int | str = self._process.wait()
            except OSError as error:
                code = str(error)
            if self._ending.is_set():
                return
            pause = _FIRST_PAUSE if time.monotonic() - began > _STEADY else pause
            logger.error("`zeus export` ended (%s); it starts again in %g s", code, pause)
            self._ending.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _started(self) -> subprocess.Popen[bytes]:
        owner = self._owner
        return subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,  # which ends with the agent
            cwd="/",
            start_new_session=True,
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
        )

    def end(self) -> None:
        """End it."""
        self._ending.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise AgentError(f"there is no user {name!r} for the exporter") from None
