"""Overview of one job for users, read from one state of the store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeus.errors import UnknownJobError
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import JobInfo, JobTotals, ProfileInfo, TrialInfo
from zeus.optimizer.batch_size.api._commands import ListJobs
from zeus.optimizer.batch_size.job._choice import Choice
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._job_state import Expected
from zeus.optimizer.batch_size.storage import JobRow, Row, View, reading_jobs
from zeus.optimizer.batch_size.storage._account import Account, account
from zeus.optimizer.batch_size.storage._history import Span, Total
from zeus.optimizer.batch_size.storage._load import recalled
from zeus.optimizer.batch_size.storage._rows import (
    expected_default,
    job_info,
    listed,
    profile_info,
    trial_info,
)
from zeus.optimizer.batch_size.storage._tally import Tally
from zeus.store import Store

MAX_GPUS = 12  # GPU configurations whose beliefs are computed, the latest used first
_MAX_RUNNING = 20
_MAX_COSTS = 400  # latest runs whose cost is listed individually
_MAX_LABELS = 200  # GPU models and tags to choose from
_LABELS_KEPT = 10.0  # seconds
_REMEMBERED = 64  # jobs whose beliefs are kept in memory


@dataclass(frozen=True)
class Overview:
    """Overview of one job.

    Attributes:
        info: The job and its progress.
        spec: Its specification.
        gpus: GPU configurations of its trials, the latest first.
        gpu: The configuration that the rest is about; `None` if nothing ever ran.
        next: The decision for a new recurrence there.
        outlook: Expected cost of each batch size there.
        costs: Batch size and cost of the latest converged runs there.
        width: Number of recurrences in a segment of `spans`.
        spans: Trials by segments of recurrences, on all GPUs.
        totals: All trials, by GPUs, batch size and state.
        account: Cost compared with the default.
        profiles: Measured profiles of batch sizes.
        running: Running trials.
        trials: A page of trials, the latest first.
    """

    info: JobInfo
    spec: JobSpec
    gpus: Sequence[GpuModel]
    gpu: GpuModel | None
    next: Choice | None
    beliefs: Sequence[Expected]
    costs: Sequence[tuple[int, float]]
    width: int
    spans: Sequence[Span]
    totals: Sequence[Total]
    account: Account
    profiles: Sequence[ProfileInfo]
    running: Sequence[TrialInfo]
    trials: Sequence[TrialInfo]


@dataclass(frozen=True)
class JobPage:
    """A part of a list of jobs.

    Attributes:
        jobs: The jobs, in their order.
        later: Whether there are jobs after these.
        totals: Sums over all jobs that match.
        number: Total number of jobs, whether they match or not.
        gpus: GPU models of the latest trials of all jobs; `tags` are all tags.
    """

    jobs: Sequence[JobInfo]
    later: bool
    totals: JobTotals
    number: int
    gpus: Sequence[str]
    tags: Sequence[str]


@dataclass(frozen=True)
class _Believed:
    sequence: int
    tally: Tally
    next: dict[GpuModel, Choice]
    outlooks: dict[GpuModel, list[Expected]]


class Overviews:
    """Reads overviews from a store. Thread-safe.

    Args:
        store: Where the jobs are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._believed: OrderedDict[int, _Believed] = OrderedDict()
        self._choices: tuple[float, tuple[list[str], list[str]] | None] = (0.0, None)

    def jobs(self, asked: ListJobs) -> JobPage:
        """Return a page of jobs.

        Args:
            asked: Which ones, in which order; its scope limits everything on the page.

        Raises:
            StorageError: If the store cannot be read.
        """
        with reading_jobs(self._store) as view:
            # One more than requested shows whether there are more.
            rows = view.find_jobs(replace(asked, most=asked.most + 1))
            kept = rows[: asked.most]
            about = view.about(kept)
            labels = self._labels(view) if asked.scope is None else ([], [])
            return JobPage(
                [listed(row, about[row.id]) for row in kept],
                len(rows) > len(kept),
                view.sums(asked),
                view.numbers()[0] if asked.scope is None else len(rows),
                *labels,
            )

    def _labels(self, view: View) -> tuple[list[str], list[str]]:
        """Return GPU models and tags to choose from; all jobs are read for them, so not always."""
        with self._lock:
            at, known = self._choices
        if known is None or time.monotonic() - at > _LABELS_KEPT:
            known = view.labels(_MAX_LABELS)
            with self._lock:
                self._choices = time.monotonic(), known
        return known

    def read(
        self,
        name: str,
        *,
        gpu: GpuModel | None = None,
        stretches: int = 200,
        before: int | None = None,
        most: int = 50,
    ) -> Overview:
        """Return the overview of one job.

        Args:
            name: Name of the job.
            gpu: GPU configuration to show; the latest one if the job never ran on it.
            stretches: Maximum number of segments of recurrences.
            before: Only trials with numbers below this are listed.
            most: Maximum number of listed trials.

        Raises:
            UnknownJobError: If there is no job of this name.
            StorageError: If the store cannot be read.
        """
        with reading_jobs(self._store) as view:
            # A text that no database can hold cannot be a job's name.
            row = view.job(name) if name.isprintable() else None
            if row is None:
                raise UnknownJobError(f"there is no job {name[:80]!r}")
            bound = {} if before is None else {"before": before}
            listed = view.trials(row.id, most=most, **bound)
            return self._overview(view, row, gpu, stretches, listed)

    def _overview(
        self,
        view: View,
        row: JobRow,
        gpu: GpuModel | None,
        stretches: int,
        listed: Sequence[Row],
    ) -> Overview:
        spec = row.spec
        totals = view.totals(row.id)
        last: dict[GpuModel, int] = {}
        for total in totals:
            at = GpuModel(total.gpu, total.gpus)
            last[at] = max(last.get(at, 0), total.latest)
        gpus = sorted(last, key=lambda each: -last[each])
        if gpu not in last:
            gpu = gpus[0] if gpus else None
        believed = self._beliefs(view, row, gpus)
        profiles = [profile_info(row.name, each) for each in view.profiles(row.id)]

        def expected(at: GpuModel) -> float | None:
            return expected_default(believed.outlooks.get(at, ()), spec)

        width = max(1, -(-row.recurrences // stretches))
        running = view.running(row.id, _MAX_RUNNING) if row.running else []
        return Overview(
            info=job_info(row, view.about([row])[row.id]),
            spec=spec,
            gpus=gpus,
            gpu=gpu,
            next=None if gpu is None else believed.next.get(gpu),
            beliefs=() if gpu is None else believed.outlooks.get(gpu, ()),
            costs=()
            if gpu is None
            else view.costs(row.id, gpu, Outcome.CONVERGED.value, _MAX_COSTS),
            width=width,
            spans=view.spans(row.id, 0, width),
            totals=totals,
            account=account(spec, believed.tally, expected),
            profiles=profiles,
            running=[trial_info(row.id, each) for each in running],
            trials=[trial_info(row.id, each) for each in listed],
        )

    def _beliefs(self, view: View, row: JobRow, gpus: Sequence[GpuModel]) -> _Believed:
        with self._lock:
            known = self._believed.get(row.id)
        if known is None or known.sequence != row.sequence:
            loaded = recalled(view, row)
            brain, used = loaded.brain, gpus[:MAX_GPUS]
            known = _Believed(
                row.sequence,
                loaded.tally,
                {gpu: brain.next(gpu) for gpu in used},
                {gpu: brain.beliefs(gpu) for gpu in used},
            )
        with self._lock:
            self._believed[row.id] = known
            self._believed.move_to_end(row.id)
            while len(self._believed) > _REMEMBERED:
                self._believed.popitem(last=False)
        return known
