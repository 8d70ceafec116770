"""Recurring jobs in TOML files, as `zeus run --job` reads them.

The keys are those of `JobSpec`, plus `server` or `storage` for where the job is kept::

    name = "digits"
    batch_sizes = [16, 32, 64, 128]
    default_batch_size = 64
    target_metric = 0.97
    storage = "sqlite:///jobs.db"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.errors import JobSpecError
from zeus.optimizer.batch_size.job._spec import JobSpec


@dataclass(frozen=True)
class JobFile:
    """Contents of a job file.

    Attributes:
        spec: The job.
        server: URL of the server that keeps it, if one is named.
        storage: URL of the store that keeps it, if one is named.
    """

    spec: JobSpec
    server: str | None = None
    storage: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> JobFile:
        """Read a file.

        Raises:
            JobSpecError: If it cannot be read or breaks a rule; names the file and the key.
        """
        try:
            with Path(path).open("rb") as file:
                values = tomllib.load(file)
        except OSError as error:
            raise JobSpecError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, too
            raise JobSpecError(f"{path} is not TOML: {error}") from error
        try:
            places = {name: _url(name, values.pop(name, None)) for name in ("server", "storage")}
            if all(places.values()):
                raise JobSpecError("a job is kept by `server` or in `storage`, but got both")
            return cls(JobSpec.from_dict(values), **places)
        except JobSpecError as error:
            raise JobSpecError(f"{path}: {error}") from error


def _url(name: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise JobSpecError(f"`{name}` must be a URL, but got {value!r}")
    return value
