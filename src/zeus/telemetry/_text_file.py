"""A page of metrics as a file, for the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

import contextlib
from pathlib import Path

from zeus.errors import TelemetryError
from zeus.state._files import write_atomically
from zeus.telemetry._collection import MetricCollector
from zeus.telemetry._text_format import TextFormat

_SUFFIX = ".prom"


class TextFile:
    """Writes the metrics of a node to a file, which readers always see whole.

    Args:
        path: The file; the node exporter reads those that end in ".prom".
        telemetry: Reads the node.
    """

    def __init__(self, path: Path, telemetry: MetricCollector) -> None:
        self._path = path
        self._telemetry = telemetry
        self._format = TextFormat()

    def write(self) -> None:
        """Read the node and replace the file.

        Raises:
            OSError: If the file cannot be written.
        """
        text = self._format.text(self._telemetry.collect())
        # Readable for the user of the node exporter.
        write_atomically(self._path, text, 0o644)

    def remove(self) -> None:
        """Remove the file: its values would be taken for current ones."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def checked_path(path: Path) -> Path:
    """Return the path of a text file, if one can be written there.

    Raises:
        TelemetryError: If its name does not end in ".prom", or its directory does not exist.
    """
    if path.suffix != _SUFFIX:
        raise TelemetryError(
            f"the name of a text file must end in {_SUFFIX!r}, or the node exporter ignores it, "
            f"but got {path}"
        )
    if not path.parent.is_dir():
        raise TelemetryError(
            f"the directory of a text file must exist (the node exporter names it in "
            f"--collector.textfile.directory), but {path.parent} does not"
        )
    return path
