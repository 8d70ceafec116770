"""Output files that are written atomically, and checked for writability before the work."""

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
    """The destination of a result: a path, or "-" for stdout; raises `OSError` if not writable.

    A regular file is replaced atomically once its content is complete. Anything else (a pipe, a
    device) is written to directly.
    """

    def __init__(self, name: str) -> None:
        self._temporary: str | None = None
        self._path: Path | None = None
        if name == "-":
            return
        # A link stays a link. A loop of links is an error below; `resolve` would raise its own.
        self._path = Path(os.path.realpath(name))
        with contextlib.suppress(FileNotFoundError):
            mode = self._path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(21, "is a directory", name)
            if not os.access(self._path, os.W_OK):
                raise PermissionError(13, "is not writable", name)
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
        """Write text with a final newline."""
        if self._path is None:
            Console(sys.stdout).print(text)
        else:
            self.write_bytes(f"{text}\n".encode())

    def write_bytes(self, content: bytes) -> None:
        """Write bytes; the destination must not be the standard output."""
        assert self._path is not None
        if self._temporary is None:
            self._written(self._path, content)
        else:
            self._written(Path(self._temporary), content)
            Path(self._temporary).chmod(self._mode())
            Path(self._temporary).replace(self._path)
            self._temporary = None

    def _written(self, path: Path, content: bytes) -> None:
        try:
            path.write_bytes(content)
        except OSError as error:  # a full disk: its error names no file
            raise type(error)(error.errno, error.strerror, str(self._path)) from None

    def close(self) -> None:
        """Remove the temporary file, if the result was not written."""
        if self._temporary is not None:
            Path(self._temporary).unlink(missing_ok=True)
            self._temporary = None

    def _mode(self) -> int:
        """Return the mode of the replaced file, else that of any new file."""
        assert self._path is not None
        with contextlib.suppress(OSError):
            return stat.S_IMODE(self._path.stat().st_mode)
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


@contextlib.contextmanager
def prepared(name: str | None) -> Iterator[PreparedFile | None]:
    """Yield the file named by an option, `None` if not given; raise `OSError` if not writable."""
    if name is None:
        yield None
        return
    with contextlib.closing(PreparedFile(name)) as output:
        yield output
