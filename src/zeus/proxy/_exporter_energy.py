"""Energy of GPUs of another machine, from the page of metrics that `zeus export` serves there."""

from __future__ import annotations

import math
import re
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from zeus.errors import BackendError
from zeus.transport._metrics_text import read_samples

_PERIOD = 0.5  # seconds between reads
_TIMEOUT = 5.0  # seconds for one
_KEPT = 240  # intervals
_MAX_PAGE = 16 * 1024 * 1024  # bytes
_STALE = 0.1  # seconds by which a GPU's counter may be old
_ENERGY = "zeus_gpu_energy_joules_total"


class ReadInterval(NamedTuple):
    """Energy between two reads of a counter.

    Attributes:
        begin: Seconds of the clock.
        end: Seconds.
        joules: Energy.
        variance: Variance of that (J²).
    """

    begin: float
    end: float
    joules: float
    variance: float


class ExporterEnergy:
    """Reads the counters of GPUs elsewhere, in a thread.

    Args:
        url: URL of the exporter, with or without `/metrics`.
        gpus: Indices of the GPUs; all by default.
        now: The clock.

    Raises:
        BackendError: If the page cannot be read, or has no such GPU.
    """

    def __init__(self, url: str, gpus: Sequence[int] | None, now: Callable[[], float]) -> None:
        self._url = url.rstrip("/").removesuffix("/metrics") + "/metrics"
        self._now = now
        self._stop = threading.Event()
        self._lock = threading.Lock()
        instant, spread, counters = self._read()
        self.gpus = sorted(counters) if gpus is None else list(gpus)
        missing = [str(gpu) for gpu in self.gpus if gpu not in counters]
        if missing or not counters:
            named = f"GPU {', '.join(missing)}" if missing else "a GPU"
            raise BackendError(f"{self._url} has no energy counter of {named}")
        self._last = {gpu: (instant, spread, counters[gpu]) for gpu in self.gpus}
        self._intervals: dict[int, deque[ReadInterval]] = {
            gpu: deque(maxlen=_KEPT) for gpu in self.gpus
        }
        #: Called after each read.
        self.after: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="zeus-exporter", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()

    def source(self, gpu: int) -> Callable[[float], Sequence[ReadInterval]]:
        """Return a function that returns the intervals of a GPU that end after an instant."""
        kept = self._intervals[gpu]

        def since(instant: float) -> list[ReadInterval]:
            with self._lock:
                first = next((at for at, each in enumerate(kept) if each.end > instant), len(kept))
                return list(islice(kept, first, None))

        return since

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            try:
                instant, spread, counters = self._read()
            except BackendError:
                continue  # the interval becomes longer
            with self._lock:
                for gpu in self.gpus:
                    if gpu in counters:
                        self._add(gpu, instant, spread, counters[gpu])
            self.after()

    def _add(self, gpu: int, instant: float, spread: float, joules: float) -> None:
        before, before_spread, value = self._last[gpu]
        self._last[gpu] = instant, spread, joules
        if joules < value or instant <= before:
            return  # the exporter was started again
        watts = (joules - value) / (instant - before)
        variance = (spread**2 + before_spread**2) * watts**2 + 1e-6
        self._intervals[gpu].append(ReadInterval(before, instant, joules - value, variance))

    def _read(self) -> tuple[float, float, dict[int, float]]:
        """Return when the counters were read, how exactly that is known, and the joules by GPU."""
        begun = self._now()
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT) as answer:
                text = answer.read(_MAX_PAGE).decode("utf-8", "replace")
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise BackendError(f"{self._url} cannot be read: {error}") from error
        ended = self._now()
        found = {
            int(labels["gpu"]): joules
            for labels, joules in read_samples(text, _ENERGY).get(_ENERGY, ())
            if re.fullmatch(r"\d{1,5}", labels.get("gpu", ""), re.ASCII)
        }
        return (begun + ended) / 2, math.hypot(_STALE, ended - begun) / math.sqrt(12), found
