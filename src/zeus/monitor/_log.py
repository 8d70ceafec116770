"""Writing and reading the log of windows: one CSV row per window.

``start_time,window_name,elapsed_time,gpu0_energy,...``: seconds and joules; an energy that could
not be measured is left empty.
"""

from __future__ import annotations

import csv
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zeus.errors import LogFileError

_FIXED = ("start_time", "window_name", "elapsed_time")


@dataclass(frozen=True)
class LoggedWindow:
    """One row. Times in seconds, energies in joules by GPU index; `None` where unknown."""

    start_time: float
    name: str
    elapsed_time: float
    gpu_energy: dict[int, float | None]


def header(gpu_indices: Sequence[int]) -> list[str]:
    """Return the column names of a log of these GPUs."""
    return [*_FIXED, *(f"gpu{index}_energy" for index in gpu_indices)]


class WindowLog:
    """Appends windows to a file, each flushed before `write` returns."""

    def __init__(self, path: str | Path, gpu_indices: Sequence[int]) -> None:
        """Open a log; raise `LogFileError` if the file is another log: it is not overwritten."""
        self._indices = tuple(gpu_indices)
        self._lock = threading.Lock()
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = header(self._indices)
        if path.exists() and path.stat().st_size:
            with path.open(newline="", encoding="utf-8") as file:
                present = next(csv.reader(file), [])
            if present != columns:
                raise LogFileError(
                    f"{path} has the columns {present}, but this monitor writes {columns}; "
                    "choose another log_file"
                )
            columns = []
        self._file = path.open("a", newline="", encoding="utf-8")
        # A monitor that is garbage collected without `close` closes its log too.
        weakref.finalize(self, self._file.close)
        self._writer = csv.writer(self._file, lineterminator="\n")
        if columns:
            self._writer.writerow(columns)
            self._file.flush()

    def write(self, window: LoggedWindow) -> None:
        """Add a row."""
        energies = (window.gpu_energy.get(index) for index in self._indices)
        row = [window.start_time, window.name, window.elapsed_time]
        with self._lock:
            if not self._file.closed:
                self._writer.writerow([*row, *("" if e is None else e for e in energies)])
                self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def read_log(path: str | Path) -> list[LoggedWindow]:
    """Read a log of windows; raise `LogFileError`, which names the line, if it is not one."""
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(_rows(path, csv.reader(file)))
    except FileNotFoundError:
        raise LogFileError(f"there is no log {path}") from None
    except UnicodeDecodeError as error:
        raise LogFileError(f"{path} is not text: {error}") from None


def _rows(path: Path, lines: Iterator[list[str]]) -> Iterator[LoggedWindow]:
    columns = next(lines, [])
    matches = [re.fullmatch(r"gpu(\d+)_energy", column) for column in columns[len(_FIXED) :]]
    if tuple(columns[: len(_FIXED)]) != _FIXED or not all(matches):
        raise LogFileError(
            f"{path}, line 1: a log begins with {','.join(_FIXED)},gpu0_energy,... "
            f"but got {','.join(columns)!r}"
        )
    indices = [int(match[1]) for match in matches if match]
    for number, row in enumerate(lines, 2):
        if len(row) != len(columns):
            raise LogFileError(f"{path}, line {number}: expected {len(columns)} fields, "
                               f"but got {len(row)}")  # fmt: skip
        try:
            energies = {
                index: float(value) if value else None
                for index, value in zip(indices, row[len(_FIXED) :], strict=True)
            }
            yield LoggedWindow(float(row[0]), row[1], float(row[2]), energies)
        except ValueError as error:
            raise LogFileError(f"{path}, line {number}: {error}") from None
