"""Runs another program transparently: its streams, signals and exit code are passed through."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

NOT_EXECUTABLE, NOT_FOUND = 126, 127

_Handler = Callable[[int, FrameType | None], None]

_STDERR = 2
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_TERMINAL = ("SIGINT", "SIGQUIT")


class StartError(Exception):
    """The program could not be started; `code` is the exit code that a shell would return."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class ExitStatus:
    """Exit code of a program, and the signal that killed it, if any."""

    exit_code: int
    signal: str | None

    @classmethod
    def of(cls, returncode: int) -> ExitStatus:
        """Convert a return code of `subprocess`, where -N is signal N."""
        if returncode >= 0:
            return cls(returncode, None)
        number = -returncode
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return cls(128 + number, name)


def inherited_files() -> tuple[int, ...]:
    """Return file descriptors inherited from the caller, beyond the three standard streams.

    Call it before a driver is loaded, which may open files that no child should inherit.
    """
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208
    except OSError:
        return ()
    found: list[int] = []
    for number in numbers:
        with contextlib.suppress(OSError):  # the descriptor of the listing is closed again
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return tuple(found)


class Child:
    """A child process that shares the streams, files and signals of this process.

    Args:
        program: Its words.
        files: File descriptors that it inherits.
        environment: Its environment; by default that of this process.
        output_to_stderr: Whether its output goes to this process's stderr, as stdout is taken.
    """

    def __init__(
        self,
        program: Sequence[str],
        files: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        *,
        output_to_stderr: bool = False,
    ) -> None:
        self.signals: list[int] = []  # received while it ran, by this process or by both
        self._program = program
        self._files = tuple(files)
        self._environment = environment
        self._stdout = _STDERR if output_to_stderr else None
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []

    def run(self) -> ExitStatus:
        """Start the program and wait for it to exit; raise `StartError` if it cannot be started."""
        with self._signals():
            try:
                process = subprocess.Popen(
                    self._program,
                    pass_fds=self._files,
                    env=self._environment,
                    stdout=self._stdout,
                )
            except OSError as error:
                raise _start_error(self._program[0], error) from None
            self._process = process
            for number in self._waiting:
                self._forward(number, None)
            return ExitStatus.of(process.wait())

    def _forward(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)
        if self._process is None:
            self._waiting.append(number)
        else:
            self._process.send_signal(number)

    def _record(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Forward signals while the program runs."""
        # Those from the keyboard reach it directly; `SIG_IGN` here would be inherited by it.
        from_terminal = self._record if _in_foreground() else self._forward
        handlers: dict[str, _Handler] = {
            **dict.fromkeys(_FORWARDED, self._forward),
            **dict.fromkeys(_FROM_TERMINAL, from_terminal),
        }
        earlier = {}
        for name, handler in handlers.items():
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                earlier[number] = signal.signal(number, handler)
        try:
            yield
        finally:
            for number, previous in earlier.items():
                signal.signal(number, previous)


def _in_foreground() -> bool:
    """Return whether keyboard signals reach this process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _start_error(program: str, error: OSError) -> StartError:
    if isinstance(error, FileNotFoundError):
        if shutil.which(program) is not None:
            return StartError(f"{program}: its interpreter was not found", NOT_EXECUTABLE)
        return StartError(f"{program}: command not found", NOT_FOUND)
    return StartError(f"{program}: cannot be run: {error.strerror}", NOT_EXECUTABLE)
