"""Knowledge about services, kept for the next start: one file for each."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path

from zeus.errors import FrontierError
from zeus.optimizer.serving._knowledge import Knowledge
from zeus.state import state_directory, write_atomically

logger = logging.getLogger(__name__)


class Memory:
    """The file of a service, by GPU model, number of GPUs, model and knob.

    Args:
        gpu: Name of the GPU model.
        gpus: Number of GPUs.
        service: Name of the model that is served.
        knob: Name of the knob.
        directory: Where files are; the state directory by default.
    """

    def __init__(
        self, gpu: str, gpus: int, service: str, knob: str, directory: Path | None = None
    ) -> None:
        self._refused = False
        self._key = [gpu, gpus, service, knob]
        digest = hashlib.sha256(json.dumps(self._key).encode()).hexdigest()[:16]
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{service}-{gpu}-{knob}")[:60].strip("-")
        self.path = (directory or state_directory() / "serving") / f"{words}-{digest}.json"

    def load(self, knowledge: Knowledge) -> bool:
        """Continue with what the file has; returns whether there was something of use."""
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            if not isinstance(record, dict) or record.get("service") != self._key:
                raise FrontierError(f"the file must be about {self._key}")
            knowledge.load(record["state"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s is not used, and kept under another name: %s", self.path, error)
            self._refused = True
            return False
        return True

    def save(self, knowledge: Knowledge) -> None:
        """Replace the file; an error is a warning."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._refused and self.path.exists():
                self.path.replace(self.path.with_suffix(".refused"))
                self._refused = False
            record = {"service": self._key, "state": knowledge.state()}
            write_atomically(self.path, json.dumps(record))
        except OSError as error:
            logger.warning("knowledge about the service is not kept in %s: %s", self.path, error)
