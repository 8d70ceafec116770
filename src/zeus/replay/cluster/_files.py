"""Reads the published tables of Alibaba's GPU cluster as a stream, in their downloaded form.

A table is a CSV file, with or without a header line, plain, gzipped, or inside the archive in which
it is published. Nothing is unpacked to disk, and no table is held in memory.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TextIO

from zeus.errors import TraceError

JOBS = "pai_job_table"
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TAGS = "pai_group_tag_table"
TAG_COLUMNS = ("inst_id", "user", "gpu_type_spec", "group", "workload")

_ENDINGS = (".csv", ".csv.gz", ".tar.gz", ".tgz", ".gz")
# Characters per read: few enough to stay in the cache, enough to amortize Python's overhead.
_AT_ONCE = 1 << 16
_COMMAS = methodcaller("count", ",")


def find_table(folder: Path, name: str) -> Path:
    """Return the file of a table, in any of its formats.

    Raises:
        TraceError: If no such file exists.
    """
    for ending in _ENDINGS:
        path = folder / f"{name}{ending}"
        if path.is_file():
            return path
    forms = ", ".join(f"{name}{ending}" for ending in _ENDINGS[:3])
    raise TraceError(f"{folder} must hold one of {forms}, but has none")


def read_table(
    path: Path, columns: Sequence[str], wanted: Sequence[str]
) -> Iterator[tuple[int, list[Sequence[str]]]]:
    """Read a table in chunks of hundreds of lines.

    Args:
        path: From `find_table`.
        columns: Names in the published order, for files without a header line.
        wanted: Names of the columns to return, in this order.

    Yields:
        Line number of the first line of a chunk, and the wanted columns of the chunk.

    Raises:
        TraceError: If the file cannot be read, or a line does not fit this table.
    """
    try:
        with _opened(path) as stream:
            head = stream.readline()
            if not head:
                raise TraceError(f"{path} must have lines, but is empty")
            first = next(csv.reader([head]))
            named = wanted[0] in first
            names = first if named else columns
            places = _places(path, names, wanted)
            lines, line = [] if named else [head], 2 if named else 1
            while lines := lines + stream.readlines(_AT_ONCE):
                whole = _columns(path, line, lines, len(names))
                yield line, [whole[place] for place in places]
                line += len(lines)
                lines = []
    except (
        OSError,
        EOFError,
        zlib.error,
        tarfile.TarError,
        UnicodeDecodeError,
        csv.Error,
    ) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path} cannot be read: {reason}") from None


def _columns(path: Path, line: int, lines: list[str], width: int) -> list[Sequence[str]]:
    """Return the columns of a chunk of lines; `line` is the number of the first."""
    text = "".join(lines)
    commas = list(map(_COMMAS, lines))
    if commas.count(width - 1) == len(lines) and '"' not in text and "\r" not in text:
        # As published, nothing is quoted. There are millions of lines, so all are split at once.
        cells = text.removesuffix("\n").replace("\n", ",").split(",")
        return [cells[place::width] for place in range(width)]
    rows = []
    for at, fields in enumerate(csv.reader(lines)):
        if len(fields) == width:
            rows.append(fields)
        elif fields:  # empty lines are skipped
            raise TraceError(
                f"{path}:{line + at}: a line must have {width} values, but this has {len(fields)}"
            )
    return list(zip(*rows, strict=True)) or [()] * width


def _places(path: Path, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise TraceError(f"{path}:1: there is no column {', '.join(missing)}")
    return [names.index(name) for name in wanted]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open the text of the table: plain, gzipped or in an archive."""
    name = path.name
    if name.endswith((".tar.gz", ".tgz")):
        table = f"{name.removesuffix('.tar.gz').removesuffix('.tgz')}.csv"
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member) if Path(member.name).name == table else None
                if file is not None:
                    with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as stream:
                        yield stream
                    return
        raise TraceError(f"{path} must contain {table}, but does not")
    if name.endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as stream:
            yield stream
    else:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield stream
