"""Recurring jobs in TOML files, as `zeus run --job` reads them.

The keys are those of `JobSpec`, plus `server` or `storage` for where the job is kept, `replicas`
and `max_local_batch_size` for how its runs share a batch, and `tags`, which a job has from its
creation until they are changed::

    name = "digits"
    batch_sizes = [16, 32, 64, 128]
    default_batch_size = 64
    target_metric = 0.97
    storage = "sqlite:///jobs.db"
    tags = ["vision", "nightly"]
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus._rules import Whole
from zeus.errors import JobSpecError
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._values import TAGS

_SHARES = ("replicas", "max_local_batch_size")


@dataclass(frozen=True)
class JobFile:
    """Contents of a job file.

    Attributes:
        spec: The job.
        server: URL of the server that keeps it, if one is named.
        storage: URL of the store that keeps it, if one is named.
        replicas: Number of data-parallel replicas of its runs, if stated.
        max_local_batch_size: Maximum samples that one replica trains on at once, if stated.
        tags: Its tags.
    """

    spec: JobSpec
    server: str | None = None
    storage: str | None = None
    replicas: int | None = None
    max_local_batch_size: int | None = None
    tags: tuple[str, ...] = ()

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
            replicas, most = (_count(name, values.pop(name, None)) for name in _SHARES)
            tags = TAGS.check("tags", values.pop("tags", ()), JobSpecError)
            spec = JobSpec.from_dict(values)
            return cls(spec, places["server"], places["storage"], replicas, most, tags)
        except JobSpecError as error:
            raise JobSpecError(f"{path}: {error}") from error


def _count(name: str, value: Any) -> int | None:
    return None if value is None else Whole(1).check(name, value, JobSpecError)


def _url(name: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise JobSpecError(f"`{name}` must be a URL, but got {value!r}")
    return value
