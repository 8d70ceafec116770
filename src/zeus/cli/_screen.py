"""Full-screen terminal output; the terminal is always restored."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from zeus.cli._keys import KeyDecoder
from zeus.cli._terminal import Console, clip, width

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # alternate screen, no cursor, cleared
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME, _ERASE_LINE, _ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_FATAL = ("SIGTERM", "SIGHUP", "SIGQUIT")


class Terminated(BaseException):
    """A signal requested the end of this process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Screen:
    """Draws on the alternate screen of a terminal; `keyboard` is the file descriptor of keys."""

    def __init__(self, console: Console, keyboard: int | None) -> None:
        self._console = console
        self._keyboard = keyboard
        self._keys = KeyDecoder()
        self._settings: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._wake: tuple[int, int] | None = None

    def __enter__(self) -> Screen:
        try:
            self._catch_signals()
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A second signal must not interrupt the restoration of the terminal.
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            self._give_back()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            if self._wake is not None:
                signal.set_wakeup_fd(-1)
                for descriptor in self._wake:
                    os.close(descriptor)
                self._wake = None

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the shown lines with these, as far as they fit."""
        columns, height = self._console.size()
        shown = [clip(self._console.plain(line), columns) for line in lines[:height]]
        # Overwriting line by line, in one write, does not flicker; clearing first would.
        # After a full line the cursor is still on its last character, which must not be erased.
        rests = ["" if width(line) >= columns else _ERASE_LINE for line in shown]
        body = "\r\n".join(line + rest for line, rest in zip(shown, rests, strict=True))
        self._write(f"{_HOME}{body}{_ERASE_BELOW if len(shown) < height else ''}")

    def wait(self, seconds: float) -> list[str]:
        """Wait for a key, a resize or the timeout; return keys, "q" if the terminal was closed."""
        assert self._wake is not None
        wake = self._wake[0]
        watched = [wake] if self._keyboard is None else [wake, self._keyboard]
        ready, _, _ = select.select(watched, [], [], max(seconds, 0.0))
        if wake in ready:
            os.read(wake, 512)
        if self._keyboard is None or self._keyboard not in ready:
            return []
        try:
            keys = os.read(self._keyboard, 512)
        except OSError:
            keys = b""
        return self._keys.feed(keys) if keys else ["q"]

    def _write(self, text: str) -> None:
        # Bypasses the buffer of Python, which is not reentrant in signal handlers.
        stream = self._console.stream
        left = text.encode(stream.encoding or "utf-8", "replace")
        while left:
            left = left[os.write(stream.fileno(), left) :]

    # --- setup and restoration --------------------------------------------------------------

    def _take(self) -> None:
        if self._keyboard is not None:
            self._settings = termios.tcgetattr(self._keyboard)
            changed = termios.tcgetattr(self._keyboard)
            changed[3] &= ~(termios.ICANON | termios.ECHO)  # no line buffering, no echo
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, changed)
        self._write(_ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed
            self._write(_LEAVE)
        if self._keyboard is not None and self._settings is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._settings)
            self._settings = None

    def _catch_signals(self) -> None:
        reader, writer = os.pipe()
        self._wake = (reader, writer)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for name in _FATAL:
            self._catch(name, self._end)
        self._catch("SIGWINCH", lambda _number, _frame: None)  # it only has to wake `wait`
        self._catch("SIGTSTP", self._stop)

    def _catch(self, name: str, handler: Callable[[int, FrameType | None], None]) -> None:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            self._handlers[number] = signal.signal(number, handler)

    def _end(self, number: int, _: FrameType | None) -> None:
        raise Terminated(number)

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Handle Ctrl-Z: restore the terminal until this process continues."""
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stop)
        self._take()
