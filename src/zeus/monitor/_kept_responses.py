"""Learned characteristics of a GPU's power meter, stored for later runs.

One file per GPU UUID, with the driver version: another driver may average differently.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.errors import CapabilityError
from zeus.monitor._response import Response
from zeus.state._files import state_directory, write_atomically

if TYPE_CHECKING:
    from zeus.device import Gpu


def _file(gpu: Gpu) -> Path:
    name = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in gpu.key)
    return state_directory() / "sensors" / f"{name}.json"


def load(gpu: Gpu) -> Response:
    """Return the stored response of a GPU's power meter; a new one if it cannot be used."""
    if gpu.meter_period == 0:
        return Response(live=True)
    with suppress(CapabilityError, OSError, ValueError, KeyError, TypeError):
        record = json.loads(_file(gpu).read_text(encoding="utf-8"))
        if record["driver"] == gpu.version():
            return Response(record["response"])
    return Response()


def save(gpu: Gpu, kept: dict[str, Any]) -> None:
    """Store a response. Errors are ignored: it can be learned again."""
    if not gpu.driver.shared:
        return
    with suppress(CapabilityError, OSError):
        path = _file(gpu)
        path.parent.mkdir(exist_ok=True)
        record = {"gpu": gpu.name, "driver": gpu.version(), "response": kept}
        write_atomically(path, json.dumps(record))
