"""A file that is whole or absent, and known to be writable before the work begins."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zeus.cli._terminal import Console


class PreparedFile:
    """Where a result will go.

    A regular file is replaced at once when its text is complete. Anything else (a pipe, a device)
    is written to as it is; "-" is the standard output.

    Args:
        name: Path, or "-".

    Raises:
        OSError: If nothing can be written there.
    """

    def __init__(self, name: str) -> None:
        self._temporary: str | None = None
        self._path: Path | None = None
        if name == "-":
            return
        self._path = Path(name).resolve()  # a link stays a link
        with contextlib.suppress(FileNotFoundError):
            mode = self._path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(21, "is a directory", name)
            if not os.access(self._path, os.W_OK):
                raise PermissionError(13, "cannot be written", name)
            if not stat.S_ISREG(mode):
                return
        try:
            descriptor, self._temporary = tempfile.mkstemp(
                dir=self._path.parent, prefix=f".{self._path.name}."
            )
        except OSError as error:
            raise type(error)(error.errno, error.strerror, name) from None
        os.close(descriptor)

    def write(self, text: str) -> None:
        """Put the text there."""
        if self._path is None:
            Console(sys.stdout).print(text)
        else:
            self.write_bytes(f"{text}\n".encode())

    def write_bytes(self, content: bytes) -> None:
        """Put these bytes there, which must not be the standard output."""
        assert self._path is not None
        if self._temporary is None:
            self._path.write_bytes(content)
        else:
            Path(self._temporary).write_bytes(content)
            Path(self._temporary).chmod(self._mode())
            Path(self._temporary).replace(self._path)
            self._temporary = None

    def close(self) -> None:
        """Leave nothing half done behind."""
        if self._temporary is not None:
            Path(self._temporary).unlink(missing_ok=True)
            self._temporary = None

    def _mode(self) -> int:
        """That of the file it replaces, else what any new file gets."""
        assert self._path is not None
        with contextlib.suppress(OSError):
            return stat.S_IMODE(self._path.stat().st_mode)
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


@contextlib.contextmanager
def prepared(name: str | None) -> Iterator[PreparedFile | None]:
    """A file for the result that an option asks for; none if it was not given.

    Raises:
        OSError: If nothing can be written there.
    """
    if name is None:
        yield None
        return
    with contextlib.closing(PreparedFile(name)) as output:
        yield output
