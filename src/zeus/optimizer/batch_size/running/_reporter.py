"""Communication of one run with the server or store of its job, which never blocks the training.

The first request decides the batch size; later ones report epochs and return whether to go on.
Without an answer, or with a late or invalid one, training goes on with what is known locally: the
default batch size, the target, the threshold. Undelivered reports are kept and delivered later.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic as clock
from typing import Any, TypeVar

from zeus.errors import JobConflictError, JobSpecError, MissingExtraError, ServerError
from zeus.frontier import Frontier
from zeus.optimizer.batch_size.api._answers import Decision, SizeInfo, TrialInfo, Verdict
from zeus.optimizer.batch_size.api._api import JobsApi
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    ListSizes,
    ListTrials,
    RenewTrial,
    ShowProfiles,
    ShowSharedProfiles,
)
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._run_report import RunReport, checked_verdict
from zeus.optimizer.batch_size.running._spool import REFUSALS, Spool

logger = logging.getLogger(__name__)

T = TypeVar("T")

# After a failed request, the client waits this many times its duration: a server that hangs costs
# at most a tenth of the time, and one that refuses connections is retried at once.
_PATIENCE = 10.0
_SLOW = 2.0  # seconds; after a slower answer, epochs are held back for as many times its duration
_EARLIER = 1000  # latest trials that are checked
_OLD_NEWS = 10.0  # seconds at the beginning for undelivered reports of earlier runs


class Reporter:
    """Requests and reports of one run.

    Args:
        place: Where the job is kept.
        notes: Recorded reports of the run.
        decision: Configuration of the trial, if already decided.
        spool: Directory for undelivered notes.

    Attributes:
        notes: Recorded reports of the run.
        decision: Configuration of the trial.
        trouble: Why the last request failed; empty if it succeeded.

    Raises:
        JobConflictError: If the job exists with another specification.
        JobSpecError: If the job is not accepted.
        MissingExtraError: If the store needs packages that are not installed.
    """

    def __init__(
        self,
        place: Location,
        notes: RunReport,
        decision: Decision | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.notes = notes
        self.trouble = ""
        self._place = place
        self._spool = spool or Spool()
        self._spooled = False
        self._api: JobsApi | None = None
        self._not_before = 0.0
        self._resting_until = 0.0
        self._lock = threading.Lock()
        self._renewal: _Renewal | None = None
        self._reached = False
        self.decision = self._decided() if decision is None else decision
        self._renew()
        # After the decision: reports of other jobs must not delay or break it.
        if self._reached:
            self._asked(self._deliver)

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.notes.spec

    # --- deciding -------------------------------------------------------------------------------

    def _decided(self) -> Decision:
        def ask(api: JobsApi) -> Decision:
            # Results of earlier runs of this job are input to the decision.
            self._deliver(api, self.spec.name)
            return self.notes.ask(api)

        try:
            decision = self._asked(ask)
            self._reached = decision is not None
        except (JobConflictError, JobSpecError):
            self._hang_up()
            raise  # an error in the job's specification, found before any work is done
        except REFUSALS as error:
            # For instance, `retry_of` was not accepted.
            self._say("no batch size was decided: %s", error)
            self.trouble, decision = str(error), None
            self._reached = True
        if decision is None:
            return default_decision(self.spec, self.trouble, self.notes.batch_size)
        self.notes.trial = decision.trial
        self.notes.batch_size = decision.batch_size
        self.notes.lease = decision.lease
        self.notes.done = decision.epochs
        return decision

    def _deliver(self, api: JobsApi, job: str | None = None) -> int:
        """Deliver pending reports of earlier runs, of one job or of all."""
        return self._spool.deliver(
            api, self._place.url, but=self.notes.request, job=job, within=_OLD_NEWS
        )

    # --- while it runs --------------------------------------------------------------------------

    def saved_frontier(self, *, shared: bool = False) -> Frontier | None:
        """Return the stored frontier of this batch size on these GPUs, if any.

        Args:
            shared: Whether to search the jobs that share their profiles with this one, instead of
                its own.
        """
        name = self.spec.name
        command = ShowSharedProfiles(job=name) if shared else ShowProfiles(job=name)

        def find(api: JobsApi) -> Frontier | None:
            notes = self.notes
            for profile in api.do(command):
                key = (profile.gpu, profile.gpus, profile.batch_size)
                if key == (notes.gpu, notes.gpus, notes.batch_size) and profile.frontier:
                    return Frontier.from_dict(profile.frontier)
            return None

        if self.notes.trial is None:
            return None
        try:
            return self._asked(find)
        except REFUSALS as error:
            self._say("no saved profile is used: %s", error)
            return None

    def earlier_trials(self) -> list[TrialInfo]:
        """Return the job's other trials, latest first; empty if server or store is unreachable."""
        try:
            command = ListTrials(job=self.spec.name, most=_EARLIER)
            found = self._asked(lambda api: api.do(command))
        except REFUSALS:
            found = None
        return [trial for trial in found or () if trial.trial != self.notes.trial]

    def resume(self, trial: str = "", epochs: int = 0) -> None:
        """Take over undelivered reports of the same run from another process.

        Args:
            trial: Identifier of the trial that the run has become there, if any.
            epochs: Number of epochs that were reported there, delivered or not.
        """
        with self._lock:
            kept = self._spool.find(self.notes.request)
            if kept is not None:
                self.notes, self._spooled = kept, True
            if trial and self.notes.trial is None:
                self.notes.trial = trial
            self.notes.done += max(epochs - self.notes.recorded, 0)
            if self.notes.pending:
                self._tell()

    def note_profile(
        self,
        frontier: Mapping[str, Any] | None,
        *,
        epoch_cost: float | None,
        load: float | None,
        power_limit: float | None,
    ) -> None:
        """Record the profile of this batch size; it is sent with the next epoch."""
        self.notes.profile = {
            "gpu": self.notes.gpu,
            "gpus": self.notes.gpus,
            "batch_size": self.notes.batch_size,
            "frontier": frontier,
            "epoch_cost": epoch_cost,
            "load": load,
            "power_limit": power_limit,
        }

    def known_sizes(self) -> list[SizeInfo] | None:
        """Return what is known of each batch size on these GPUs; `None` if there is no answer.

        The job is created if it does not exist.

        Raises:
            JobConflictError: If the job exists with another specification.
            JobSpecError: If the job is not accepted.
        """
        notes = self.notes

        def ask(api: JobsApi) -> list[SizeInfo]:
            api.do(CreateJob(spec=notes.spec, tags=notes.tags))
            return api.do(
                ListSizes(
                    job=notes.spec.name,
                    gpu=notes.gpu,
                    gpus=notes.gpus,
                    memory=notes.memory,
                    replicas=notes.replicas,
                    max_local_batch_size=notes.max_local_batch_size,
                )
            )

        try:
            return self._asked(ask)
        except (JobConflictError, JobSpecError):
            raise
        except REFUSALS as error:  # for instance by a server that is older
            self._say("no batch size is measured: %s", error)
            return None

    def report_size(
        self, batch_size: int, epoch_cost: float | None, load: float | None = None
    ) -> None:
        """Report a batch size of which steps were measured; see `PutSize`."""
        notes = self.notes
        with self._lock:
            notes.sizes.append(
                {
                    "gpu": notes.gpu,
                    "gpus": notes.gpus,
                    "batch_size": batch_size,
                    "memory": notes.memory,
                    "replicas": notes.replicas,
                    "max_local_batch_size": notes.max_local_batch_size,
                    "epoch_cost": epoch_cost,
                    "load": load,
                }
            )
            self._tell()

    def report(self, *, missing: int = 0, **epoch: Any) -> Verdict | None:
        """Report an epoch.

        Args:
            missing: Number of epochs before it that were trained but never reported, because the
                run was interrupted; each is taken to have cost as much as this one.
            epoch: Arguments of `RunReport.note_epoch`.

        Returns:
            Whether to go on; `None` if there is no answer.
        """
        with self._lock:
            for _ in range(missing):
                self.notes.note_epoch(**{**epoch, "metric": None})
            self.notes.note_epoch(**epoch)
            if clock() >= self._resting_until:
                self._tell()
            else:
                self._keep()
            notes = self.notes
            # A run that must stop need not deliver later epochs.
            heard = notes.told == len(notes.epochs) or notes.over
            return notes.verdict if heard and not notes.apart else None

    def end(
        self, outcome: str, *, time: float = 0.0, energy: float | None = 0.0, note: str = ""
    ) -> Verdict | None:
        """End the trial, if it has not ended by its reports; see `EndTrial`.

        Returns:
            How it has ended; `None` if there is no answer.
        """
        with self._lock:
            if self.notes.over or self.notes.apart:
                return self.notes.verdict
            self.notes.end = {"outcome": outcome, "time": time, "energy": energy, "note": note}
            self._tell()
            return None if self.notes.pending else self.notes.verdict

    def standing(self) -> Verdict | None:
        """Return how the trial has ended, and whether to retry it; `None` if there is no answer."""
        with self._lock:
            notes = self.notes
            if notes.over:
                return notes.verdict
            if notes.trial is None or notes.apart or notes.pending:
                return None
            command = RenewTrial(trial=notes.trial)  # of one that has ended, it changes nothing
            try:
                return self._asked(lambda api: checked_verdict(api.do(command)))
            except REFUSALS:
                return None

    def close(self) -> None:
        """Finish the run. Undelivered reports stay in a file. May be called twice."""
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
        with self._lock:
            if self.notes.pending:
                self._tell()
            self._hang_up()

    # --- inside ---------------------------------------------------------------------------------

    def _tell(self) -> None:
        def tell(api: JobsApi) -> bool:
            within = self._place.timeout
            self.notes.tell(api, lambda said: self._say("%s", said), within=within)
            return True

        joined, began = self.notes.trial is not None, clock()
        try:
            self._asked(tell)
        except REFUSALS as error:
            self._say("its reports are not accepted any more: %s", error)
            self.notes.apart, self.notes.profile, self.notes.sizes = True, None, []
        took = clock() - began
        if took > _SLOW:
            self._resting_until = clock() + _PATIENCE * took
        if not joined:
            self._renew()
        self._keep()

    def _keep(self) -> None:
        """Save undelivered reports to a file, or remove the file if there are none."""
        try:
            if self.notes.pending:
                self._spool.save(self.notes)
                self._spooled = True
            elif self._spooled:
                self._spool.remove(self.notes)
                self._spooled = False
        except OSError as error:
            self._say("its reports cannot be kept for later: %s", error)

    def _asked(self, question: Callable[[JobsApi], T]) -> T | None:
        """Send a request; return its answer, or `None` if there is none.

        Raises:
            ZeusError: One of `REFUSALS`, if the request is rejected.
            MissingExtraError: If the store needs packages that are not installed.
        """
        began = clock()
        if began < self._not_before:
            return None
        try:
            if self._api is None:
                self._api = self._place.open()
            answer = question(self._api)
        except (*REFUSALS, MissingExtraError):
            raise
        except Exception as error:  # whatever a server answers must not stop the training
            known = isinstance(error, ServerError | RuntimeError | OSError)
            said = str(error) if known else f"the answer is invalid ({error!r})"
            now = clock()
            self._not_before = now + _PATIENCE * (now - began)
            if not self.trouble:
                self._say("training goes on without it: %s", said)
            logger.debug("why", exc_info=True)
            self.trouble = said
            return None
        if self.trouble:
            logger.info("job %r: %s is reached again", self.spec.name, self._shown)
        self.trouble = ""
        return answer

    @property
    def _shown(self) -> str:
        return self._place.url if self._place.is_server else "the store"

    def _say(self, message: str, *details: object) -> None:
        logger.warning(f"job %r: {message}", self.spec.name, *details)

    def _renew(self) -> None:
        if self._renewal is None and self.notes.trial is not None and not self.notes.over:
            self._renewal = _Renewal(self._place, self.notes.trial, self.notes.lease)

    def _hang_up(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            with contextlib.suppress(Exception):
                api.close()


class _Renewal:
    """A daemon thread that renews the lease of a trial periodically."""

    def __init__(self, place: Location, trial: str, lease: float) -> None:
        self._place = place
        self._trial = trial
        self._every = lease / 3
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="zeus-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=0.5)

    def _loop(self) -> None:
        api: JobsApi | None = None
        while not self._ended.wait(self._every):
            try:
                api = api or self._place.open()
                if not api.do(RenewTrial(trial=self._trial)).go_on:
                    break
            except Exception as error:
                logger.debug("the lease of trial %s is not renewed: %s", self._trial, error)
        if api is not None:
            api.close()


def default_decision(spec: JobSpec, why: str, batch_size: int | None = None) -> Decision:
    """Return the decision without server or store: the default batch size, no threshold.

    Args:
        spec: The job.
        why: Why there is no other decision.
        batch_size: The batch size that stands in for the default, if any.
    """
    size = batch_size or spec.default_batch_size
    return Decision(
        trial="",
        job=spec.name,
        recurrence=0,
        attempt=0,
        batch_size=size,
        optimize_power=spec.optimizes_power,
        power_limit=None,
        learning_rate_scale=spec.learning_rate_scale(size),
        threshold=None,
        expected_epochs=None,
        role="default",
        reason=f"the default batch size, because no decision is available ({why})",
        lease=0.0,
    )
