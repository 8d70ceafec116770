"""The traces of the Pollux artifact (OSDI '21), and training by them.

The archive has a folder for each application, recorded on T4 GPUs:

- `placements.csv`: `placement` has a digit for each node, its number of GPUs; `local_bsz` is the
  batch of one GPU; `step_time` is in seconds, `sync_time` of it for the exchange of gradients.
- `validation-B.csv`: a training with batches of B samples, with a row for each epoch. `iteration`
  counts steps; `progress` counts steps of the smallest B that would have had the same effect, so
  that it can be compared between batch sizes. `metric` is the validation metric; `grad_sqr` and
  `grad_var` are the statistics of `goodput.Gradient`.

`progress` is the sum of steps times `B / b0 * efficiency(B)`, as a test shows: within 7 % for all
but the larger batches of YOLOv3.
"""

from __future__ import annotations

import csv
import io
import math
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paper.goodput import Gradient, best_batch_size
from paper.product import Floats, TraceError

ARCHIVE = "pollux.tar.xz"
#: Largest batch of one GPU in the artifact, where it is not the largest that was recorded.
_LARGEST_SHARE = {"yolov3": 8}
_INTERVAL = 60.0  # seconds between two decisions
_CANDIDATES = 50  # batch sizes that are compared, equally spaced on a logarithmic axis


@dataclass(frozen=True)
class Training:
    """A recorded training with one batch size, with a value for each epoch.

    Attributes:
        progress: Steps of the smallest batch size that have the same effect, in total.
        iteration: Steps in total.
        metric: Validation metric.
        square: Squared norm of the gradient.
        variance: Its variance.
    """

    progress: Floats
    iteration: Floats
    metric: Floats
    square: Floats
    variance: Floats


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step on some GPUs of one node, by the batch of each GPU.

    Attributes:
        share: Samples for each GPU, in ascending order.
        step: Seconds of a step.
        sync: Seconds of it that are spent on exchanging gradients.
    """

    share: Floats
    step: Floats
    sync: Floats


@dataclass(frozen=True)
class Application:
    """One application of the artifact.

    Attributes:
        name: Name of its folder.
        trainings: Recorded trainings by batch size, in ascending order.
        steps: Times of steps, by number of GPUs of one node.
    """

    name: str
    trainings: dict[int, Training]
    steps: dict[int, StepTimes]

    @property
    def initial(self) -> int:
        """The initial batch size, b0, in whose steps progress is counted."""
        return min(self.trainings)

    def sizes(self, gpus: int) -> list[int]:
        """Return the batch sizes that goodput is compared of, on GPUs of one node."""
        least = max(self.initial, gpus * int(self.steps[gpus].share[0]))
        spaced = np.geomspace(least, max(self.trainings), _CANDIDATES)
        shares = dict.fromkeys(math.floor(size / gpus + 1e-9) for size in spaced)
        return [gpus * share for share in shares]

    def step_time(self, size: int, gpus: int) -> float:
        """Return the seconds of a step with a batch of `size` samples on GPUs of one node.

        A share that does not fit a GPU is processed in equal parts, whose gradients are accumulated
        and exchanged once.
        """
        times = self.steps[gpus]
        largest = _LARGEST_SHARE.get(self.name, times.share[-1])
        parts = math.ceil(size / gpus / float(largest) - 1e-9)
        part = size / gpus / parts
        step = float(np.interp(part, times.share, times.step))
        sync = float(np.interp(part, times.share, times.sync))
        return step + (parts - 1) * (step - sync)

    def gradient(self, size: float, epoch: int) -> Gradient:
        """Return the statistics in an epoch (from 0), interpolated between recorded sizes."""
        recorded = list(self.trainings)
        runs = self.trainings.values()
        square = float(np.interp(size, recorded, [each.square[epoch] for each in runs]))
        variance = float(np.interp(size, recorded, [each.variance[epoch] for each in runs]))
        return Gradient(self.initial, square, variance)


@dataclass(frozen=True)
class Course:
    """A training by the traces.

    Attributes:
        seconds: Its duration.
        sizes: Batch size at the end of each epoch.
    """

    seconds: float
    sizes: list[int]


def train(application: Application, gpus: int, size: int | None = None) -> Course:
    """Train until the progress of the recorded trainings is reached.

    Args:
        application: The application.
        gpus: Number of GPUs, all in one node.
        size: Batch size; `None` chooses that of the highest goodput every minute, given what was
            measured last, as the artifact's simulator does.
    """
    candidates = application.sizes(gpus) if size is None else [size]
    seconds = np.array([application.step_time(each, gpus) for each in candidates])
    throughput = np.array(candidates) / seconds
    ends = np.min([each.progress for each in _equally_long(application)], axis=0)
    current, total, sizes = candidates[0], 0.0, []
    for epoch, ahead in enumerate(np.diff(ends, prepend=0)):
        left, spent = float(ahead), 0.0
        while left > 0:
            gradient = application.gradient(current, epoch)
            gain = current / application.initial * float(gradient.efficiency([current])[0])
            speed = gain / float(seconds[candidates.index(current)])  # progress per second
            passing = min(left / speed, _INTERVAL)
            left, spent = left - speed * passing, spent + passing
            last, current = current, best_batch_size(candidates, throughput, gradient)
            if left < 1e-9 * ahead:
                break
        total += spent
        sizes.append(last)
    return Course(total, sizes)


def _equally_long(application: Application) -> list[Training]:
    epochs = {len(each.progress) for each in application.trainings.values()}
    if len(epochs) != 1:
        raise TraceError(
            f"the trainings of {application.name} must have the same number of epochs, but got "
            f"{sorted(epochs)}"
        )
    return list(application.trainings.values())


# --- reading --------------------------------------------------------------------------------------


def load_application(archive: Path, name: str) -> Application:
    """Read an application from the archive of the artifact's traces.

    Args:
        archive: The tar file.
        name: Name of the application's folder.

    Raises:
        TraceError: If the archive cannot be read, or has no such application.
    """
    trainings: dict[int, Training] = {}
    steps: dict[int, StepTimes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = Path(member.name)
                if path.parent.name != name or not member.isfile():
                    continue
                columns = _columns(tar, member)
                if path.name == "placements.csv":
                    steps = _steps(columns)
                elif path.stem.startswith("validation-"):
                    trainings[int(path.stem.removeprefix("validation-"))] = Training(
                        columns["progress"], columns["iteration"], columns["metric"],
                        # Estimates can be negative; a squared norm cannot.
                        np.maximum(columns["grad_sqr"], 0), np.maximum(columns["grad_var"], 0),
                    )  # fmt: skip
    except (OSError, tarfile.TarError, ValueError, KeyError) as error:
        raise TraceError(f"{archive} cannot be read: {error!r}") from None
    if not trainings or not steps:
        raise TraceError(f"{archive} has no application {name}")
    return Application(name, dict(sorted(trainings.items())), steps)


def _columns(tar: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Floats]:
    file = tar.extractfile(member)
    assert file is not None  # it is a file
    rows: Sequence[dict[str, str]] = list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _steps(columns: dict[str, Floats]) -> dict[int, StepTimes]:
    """Return the placements on a single node, which have a single digit."""
    found = {}
    for gpus in range(1, 10):
        rows = np.flatnonzero(columns["placement"] == gpus)
        rows = rows[np.argsort(columns["local_bsz"][rows])]
        if len(rows):
            found[gpus] = StepTimes(
                columns["local_bsz"][rows], columns["step_time"][rows], columns["sync_time"][rows]
            )
    return found
