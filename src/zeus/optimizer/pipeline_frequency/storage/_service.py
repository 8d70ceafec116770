"""Pipeline jobs in a store: the requests of ranks and operators, answered in this process.

Jobs are cached in memory, and read again when another process has changed them. Which ranks are
alive, and what follows from their latest steps, is in memory only. Plans are not stored but
computed again from the stored inputs: unless its time runs out, the solver is deterministic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from zeus.errors import (
    DamagedJobError,
    NativeCodeError,
    PipelineError,
    ServerError,
    UnknownJobError,
)
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency.api._commands import (
    DeletePipeline,
    Leave,
    ListPipelines,
    OfJob,
    PipelineCommand,
    PutMeasurements,
    PutSequence,
    RegisterRank,
    ReportProgress,
    ReportSteps,
    ReportStraggler,
    ReportTrouble,
    SetObjective,
    ShowEvents,
    ShowFrontier,
    ShowHistory,
    ShowOperations,
    ShowPipeline,
    ShowPlan,
    ShowProfile,
)
from zeus.optimizer.pipeline_frequency.job._job import JobEvent, PipelineJob
from zeus.optimizer.pipeline_frequency.job._messages import (
    NAME,
    Directive,
    Measured,
    sequence_from,
)
from zeus.optimizer.pipeline_frequency.job._planning import ROOM, Planned, plan
from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.optimizer.pipeline_frequency.job._supervision import Saved
from zeus.optimizer.pipeline_frequency.storage import _records as records
from zeus.optimizer.pipeline_frequency.storage import _summaries as summaries
from zeus.optimizer.pipeline_frequency.storage._histories import Histories
from zeus.optimizer.pipeline_frequency.storage._history import History, RankReport
from zeus.optimizer.pipeline_frequency.storage._plan_cache import PlanCache
from zeus.optimizer.pipeline_frequency.storage._presence import Presence
from zeus.optimizer.pipeline_frequency.storage._steps import ReportedSteps
from zeus.store._store import Store
from zeus.transport._command import Answer

logger = logging.getLogger(__name__)

_FRESH = 0.5  # seconds for which a cached job is used without checking the store
_MAX_JOBS = 256  # cached in memory
PLANNING_SECONDS = 30.0  # for the plans of one job


class Pipelines:
    """Pipeline jobs in a store, as `PipelinesApi`.

    Safe to use from several threads and, on one store, from several processes.

    Args:
        store: The store of the jobs; not closed here.
        now: Returns seconds since 1970.
        clock: Returns seconds of a monotonic clock, for deciding which ranks are alive. By default
            `time.monotonic`, or `now` where that is given.
        plan_soon: Called with the name of a job that can be planned; must arrange a call of `make`.
            By default jobs are planned at once.
        changed: Called with the name of a job whose ranks are to do something else.
        planning_seconds: Time limit for the plans of a job. Plans of a pipeline that needs longer
            are not fully refined.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float] = time.time,
        *,
        clock: Callable[[], float] | None = None,
        plan_soon: Callable[[str], None] | None = None,
        changed: Callable[[str], None] | None = None,
        planning_seconds: float = PLANNING_SECONDS,
    ) -> None:
        self._store = store
        self._now = now
        self._plan_soon = plan_soon
        self._changed = changed
        self._lock = threading.RLock()
        self._moved = threading.Condition(self._lock)
        self._planning_seconds = planning_seconds
        self._solving: dict[str, threading.Lock] = {}
        self._jobs: dict[str, tuple[int, PipelineJob]] = {}
        self._checked: dict[str, float] = {}
        self._plans = PlanCache()
        self._planning: dict[str, Limit] = {}
        self._clock = clock or (time.monotonic if now is time.time else now)
        self._histories = Histories(store, self._clock)
        self._steps = ReportedSteps(self._histories)
        self._presence = Presence(now, self._clock)

    def do(self, command: PipelineCommand[Answer]) -> Answer:
        """Execute a command and return its answer; see `PipelinesApi`."""
        if isinstance(command, OfJob):
            command.permit(command.job)
        answer: Answer = self._do(command)
        return answer

    def _do(self, command: PipelineCommand[Any]) -> Any:
        match command:
            case RegisterRank():
                return self._register(command)
            case PutSequence(job=job, rank=rank, session=session):
                sequence = sequence_from(command.instructions)
                return self._change(
                    job, lambda found, at: found.put_sequence(rank, session, sequence, at), rank
                )
            case PutMeasurements():
                return self._put_measurements(command)
            case ReportProgress():
                return self._report_progress(command)
            case ReportSteps():
                return self._report_steps(command)
            case ReportTrouble(job=job, rank=rank, session=session, message=message):
                return self._change(
                    job, lambda found, at: found.put_trouble(rank, session, message, at), rank
                )
            case Leave(job=job, rank=rank, session=session):
                self._change(job, lambda found, at: found.leave(rank, session, at), None)
                self._see_to_plan(job)  # the rank may have been what prevented planning
                return None
            case ShowPlan():
                return self._wait_for_plan(command)
            case ReportStraggler(job=job, straggler=straggler):
                self._change(job, lambda found, at: found.put_straggler(straggler, at), None)
                return self._job(job)
            case SetObjective(job=job, objective=objective):
                self._change(job, lambda found, at: found.put_objective(objective, at), None)
                self._see_to_plan(job)
                return self._job(job)
            case ListPipelines(scope=scope):
                return self._jobs_in(scope)
            case ShowPipeline(job=job):
                return self._job(job)
            case ShowFrontier(job=job):
                return self._frontier(job)
            case ShowProfile(job=job):
                planned = self.planned(job)
                return [] if planned is None else planned.profile()
            case ShowOperations(job=job, pipeline=pipeline):
                return self._operations(job, pipeline)
            case ShowHistory(job=job):
                return summaries.history_info(self.history(job))
            case ShowEvents(job=job, most=most):
                return [asdict(each) for each in self.events(job, most)]
            case DeletePipeline(job=job):
                return self._delete(job)
        raise TypeError(f"not a command on pipeline jobs: {command!r}")

    # --- requests of ranks ------------------------------------------------------------------------

    def _register(self, command: RegisterRank) -> Directive:
        job, registration = command.job, command.registration
        NAME.check("job", job, PipelineError)
        if "/" in job or job in (".", ".."):  # the name is a part of URLs
            raise PipelineError(f"`job` must have no / and not be . or .., but got job={job!r}")
        seat = registration.seat
        standing = self._change(
            job,
            lambda found, at: found.register(registration, at, self._presence.living(found)),
            seat.rank,
            create=seat.degrees,
        )
        with self._lock:
            self._steps.forget(job, seat.rank)
        return standing

    def _put_measurements(self, command: PutMeasurements) -> Directive:
        job, rank, session = command.job, command.rank, command.session
        measured = Measured.from_dict(command.content())
        standing = self._change(
            job, lambda found, at: found.put_measurements(rank, session, measured, at), rank
        )
        if measured.urgent:
            with self._lock:
                self._steps.drift(job, measured.passages)
        if self._see_to_plan(job):
            return self._wait_for_plan(ShowPlan(job=job, rank=rank, session=session))
        return standing

    def _report_steps(self, command: ReportSteps) -> Directive:
        job, rank = command.job, command.rank
        with self._lock:
            found = self._read(job)
            seat = found.at(rank, command.session).seat
            self._presence.hear(job, rank)
            self._steps.take(job, seat, command.report)
            reported = RankReport(rank, command.session, command.report, self._now())
            self._histories.take(job, self._jobs[job][0], reported)
            planned = self._plans.of(found) if found.planned else None
            change = None
            if planned is not None and command.report.version == found.version:
                change = self._steps.change(found, planned)
        if change is not None:
            self._change(job, change, None)
        return self._standing(job, rank, command.session)

    def _report_progress(self, command: ReportProgress) -> Directive:
        job, rank = command.job, command.rank
        with self._lock:
            self._read(job).at(rank, command.session)
            self._presence.hear(job, rank)
            self._steps.explores(job, rank, command.progress)
        return self._standing(job, rank, command.session)

    def saved(self, name: str) -> Saved | None:
        """Return what the current plan of a job saves, as measured; `None` until known."""
        with self._lock:
            return self._steps.saved(self._read(name))

    def history(self, name: str) -> History:
        """Return the steps of a job by plan, the latest first, and the energy of all of them."""
        with self._lock:
            self._read(name)
            return self._histories.summary(name, self._jobs[name][0])

    def inputs(self, name: str) -> PipelineJob:
        """Return a copy of what the plans of a job are made from."""
        with self._lock:
            return self._read(name).inputs_only()

    def _wait_for_plan(self, command: ShowPlan) -> Directive:
        job, rank = command.job, command.rank
        deadline = time.monotonic() + command.wait
        while True:
            with self._lock:
                found = self._read(job)
                found.at(rank, command.session)
                self._presence.hear(job, rank)
                current = found.version == command.version
                left = deadline - time.monotonic()
                if current and left > 0:
                    self._moved.wait(min(left, 1.0))
                    continue
            return self._standing(job, rank, command.session)

    # --- requests of operators --------------------------------------------------------------------

    def _jobs_in(self, scope: str | None) -> list[dict[str, Any]]:
        with self._store.reading() as connection:
            found = records.names(connection)
        if scope is not None:
            found = [scope] if scope in found else []
        found_jobs = []
        for name in found:
            try:
                with self._lock:
                    job = self._read(name)
                    found_jobs.append(summaries.summary(job, *self._now_doing(job)))
            except UnknownJobError:
                continue  # deleted meanwhile
            except DamagedJobError:
                empty = PipelineJob(name, (0, 0, 0), 0.0, 0.0)
                status = "its record in the store is damaged and cannot be read"
                found_jobs.append({**summaries.summary(empty, bool, {}), "status": status})
        return found_jobs

    def _job(self, name: str) -> dict[str, Any]:
        with self._lock:
            found = self._read(name)
            return summaries.job_info(found, *self._now_doing(found))

    def _now_doing(self, job: PipelineJob) -> tuple[summaries.Alive, Mapping[int, Progress], str]:
        """Return which ranks are alive, how far those that measure have come, and the solver."""
        alive, limit = self._presence.living(job), self._planning.get(job.name)
        planning = "" if limit is None else summaries.planning(job, limit.progress)
        return alive, self._steps.measuring(job, alive), planning

    def _frontier(self, name: str) -> dict[str, Any]:
        with self._lock:
            found = self._read(name)
            about = {"name": name, "version": found.version, "status": found.status()}
            saved = self._steps.saved(found)
        planned, step = self.planned(name), self.step_time(name)
        return {**about, **summaries.frontier_info(found, planned, step, saved)}

    def _operations(self, name: str, pipeline: int) -> list[dict[str, Any]]:
        with self._lock:
            found = self._read(name)
            if pipeline not in range(found.degrees[0]):
                raise PipelineError(
                    f"`0 <= pipeline < {found.degrees[0]}` must hold, but got pipeline={pipeline}"
                )
            stragglers, objective = dict(found.stragglers), found.objective
        planned = self.planned(name)
        if planned is None:
            return []
        step_time = self.step_time(name)
        followed: Plan = planned.point(stragglers, pipeline, step_time, objective).knob
        return followed.to_list()

    def events(self, name: str, most: int = 100) -> list[JobEvent]:
        """Return up to `most` events of a job, the latest first."""
        with self._store.reading() as connection:
            number, _ = _known(records.changes(connection, name), name)
            return records.events(connection, number, most)

    def _delete(self, name: str) -> None:
        with self._lock:
            with self._store.writing() as connection:
                number, _ = _known(records.changes(connection, name, lock=True), name)
                records.forget(connection, number)
            self._drop(name)
        self._notify(name)

    def close(self) -> None:
        """Save histories of jobs; the store stays open."""
        with self._lock:
            self._histories.save()

    # --- plans ------------------------------------------------------------------------------------

    def solve(self, name: str) -> None:
        """Compute the plans of a job, if that is possible and not done yet."""
        while self.make(name, self.limit()):
            pass

    def limit(self) -> Limit:
        """Return the limits for computing the plans of a job, counted from now on."""
        return Limit(self._planning_seconds, ROOM)

    def make(self, name: str, limit: Limit) -> bool:
        """Like `solve`, but once. Blocks neither other jobs nor queries about this one.

        Returns:
            Whether to repeat it, because the job's inputs changed meanwhile.

        Raises:
            SolvingCancelledError: If the limit was cancelled; nothing has changed then.
        """
        with self._lock:
            alone = self._solving.setdefault(name, threading.Lock())
        with alone:
            with self._lock:
                found = self._read(name)
                if not (found.wants_plan() or (found.planned and self._plans.of(found) is None)):
                    return False
                copied = found.inputs_only()
                self._planning[name] = limit
            try:
                self._make(name, copied, limit)
            finally:
                with self._lock:
                    self._planning.pop(name, None)
        with self._lock:
            return self._read(name).wants_plan()

    def planned(self, name: str) -> Planned | None:
        """Return the plans of a job; `None` if it has none.

        Raises:
            ServerError: If they are not in memory (evicted, or computed by another process) and
                will be computed again.
        """
        with self._lock:
            found = self._read(name)
            if not found.planned or (known := self._plans.of(found)) is not None:
                return known if found.planned else None
        if self._plan_soon is not None:
            self._plan_soon(name)
            raise ServerError(f"the plans of pipeline job {name!r} are recomputed; retry soon")
        self.solve(name)
        with self._lock:
            return self._plans.of(self._read(name))

    def work(self, name: str) -> int:
        """Return the amount of planning work, about proportional to the time it takes."""
        with self._lock:
            return self._read(name).work()

    def waiting_for_plan(self) -> list[str]:
        """List jobs that have or could have a plan, but none in memory: all after a restart."""
        with self._store.reading() as connection:
            found = records.names(connection)
        names = []
        for name in found:
            with self._lock:
                try:
                    job = self._jobs.get(name, (0, None))[1] or self._read(name)
                except DamagedJobError as error:
                    logger.error("%s", error)
                    continue
                if (job.planned and name not in self._plans) or job.wants_plan():
                    names.append(name)
        return names

    def step_time(self, name: str) -> float | None:
        """Return seconds of a whole step without stragglers: the median of the ranks' reports."""
        with self._lock:
            return self._steps.step_time(self._read(name))

    def sweep(self) -> None:
        """Record lost ranks, and drop straggler reports about pipelines without living ranks."""
        with self._lock:
            jobs = [(name, job) for name, (_, job) in self._jobs.items()]
            found = [
                (name, self._presence.newly_lost(job), bool(job.stragglers)) for name, job in jobs
            ]
        for name, lost, straggles in found:
            if not (lost or straggles):
                continue
            try:
                self._change(name, partial(self._bury, lost), None)
            except UnknownJobError:
                continue
            self._presence.record_lost(name, lost)

    def _bury(self, lost: list[int], job: PipelineJob, at: float) -> None:
        if lost:
            job.lose(lost, at)
        job.forget_gone_stragglers(at, self._presence.living(job))

    def numbers(self) -> tuple[int, int]:
        """Return the number of jobs, and of ranks seen recently."""
        with self._store.reading() as connection:
            jobs = records.count(connection)
        with self._lock:
            return jobs, self._presence.count()

    def _make(self, name: str, job: PipelineJob, limit: Limit) -> None:
        planned: Planned | None = None
        early: Planned | None = None

        def deploy_first(found: Planned) -> None:
            nonlocal early
            early = found
            said = f"a first plan, until all are known: {summaries.plan_message(job, found)}"
            self._change(name, partial(deploy, found, said), None)

        def deploy(plans: Planned | None, said: str, found: PipelineJob, at: float) -> None:
            if found.inputs != job.inputs:
                return  # the inputs changed meanwhile, and are planned next
            if plans is not None:
                self._plans.keep(name, plans)
            if plans is None and early is not None:
                found.remark("plan", f"only a first plan: {said}", at)
            elif plans is None:
                found.fail(said, at)
            elif found.stale or not found.planned or early is not None:
                found.deploy(said, at)

        try:
            # While there is a plan, it stays in force until all of the next ones are known.
            planned = plan(job, limit, None if job.planned else deploy_first)
            said = summaries.plan_message(job, planned, limit)
        except SolvingCancelledError:
            raise
        except (PipelineError, NativeCodeError) as error:
            said = str(error)
        except Exception:  # a bug in Zeus; no rank should wait for a plan forever
            logger.exception("planning pipeline job %r failed", name)
            planned, said = None, "the solver failed; see the log of the server"

        self._change(name, partial(deploy, planned, said), None)
        if job.planned:
            self._notify(name)  # clients waiting for evicted plans can have them now

    # --- internals --------------------------------------------------------------------------------

    def _change(
        self,
        name: str,
        change: Callable[[PipelineJob, float], None],
        rank: int | None,
        *,
        create: tuple[int, int, int] | None = None,
    ) -> Directive:
        """Change a job in a transaction; return what the calling rank should do."""
        at = self._now()
        with self._lock:
            try:
                with self._store.writing() as connection:
                    found = records.changes(connection, name, lock=True)
                    if found is None and create is not None:
                        job = PipelineJob(name, create, at, at)
                        number = records.create(connection, job)
                    else:
                        number, count = _known(found, name)
                        known = self._jobs.get(name)
                        same = known is not None and (known[0], known[1].changes) == (number, count)
                        job = known[1] if same and known else records.load(connection, name, number)
                    before, version = job.changes, job.version
                    change(job, at)
                    if job.changes != before or found is None:
                        records.save(connection, number, job)
            except BaseException:
                self._jobs.pop(name, None)  # it may be partly changed
                raise
            self._remember(name, number, job)
            if rank is not None:
                self._presence.hear(name, rank)
            session = job.ranks[rank].session if rank is not None else ""
            moved = job.version != version
        if moved:
            self._notify(name)
        if rank is None:
            return Directive(job.version, "")
        return self._standing(name, rank, session)

    def _read(self, name: str) -> PipelineJob:
        """Return the job, at most half a second old. Call with the lock held."""
        known = self._jobs.get(name)
        if known is not None and time.monotonic() - self._checked.get(name, 0.0) < _FRESH:
            return known[1]
        with self._store.reading() as connection:
            try:
                number, count = _known(records.changes(connection, name), name)
            except UnknownJobError:
                self._drop(name)
                raise
            if known is None or (known[0], known[1].changes) != (number, count):
                known = number, records.load(connection, name, number)
        self._remember(name, *known)
        return known[1]

    def _remember(self, name: str, number: int, job: PipelineJob) -> None:
        self._jobs.pop(name, None)
        while len(self._jobs) >= _MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]  # read again when needed
        self._jobs[name] = number, job
        self._checked[name] = time.monotonic()

    def _standing(self, name: str, rank: int, session: str) -> Directive:
        planned = self.planned(name)
        with self._lock:
            job = self._read(name)
            record = job.at(rank, session)
            version = job.version
            trouble = job.trouble()
            if trouble:
                return Directive(version, "cannot plan", trouble)
            place = record.seat.pp_rank
            if planned is not None and planned.sequences[place] == record.sequence:
                stragglers, objective = dict(job.stragglers), job.objective
                due = self._steps.reference(name)
            elif record.measured is None:
                return Directive(version, "measure", known=job.known_before(record))
            else:
                return Directive(version, "wait", job.status())
        point = planned.point(stragglers, record.seat.dp_rank, self.step_time(name), objective)
        directive = planned.directive(point, place, version, capped=objective.bounds_power)
        return replace(directive, reference=due)

    def _see_to_plan(self, name: str) -> bool:
        """Plan a job that needs it, or schedule that; return whether it was planned here."""
        with self._lock:
            if not self._read(name).wants_plan():
                return False
        if self._plan_soon is not None:
            self._plan_soon(name)
            return False
        self.solve(name)
        return True

    def _drop(self, name: str) -> None:
        for memory in (self._jobs, self._checked, self._plans, self._solving):
            memory.pop(name, None)
        self._steps.drop(name)
        self._histories.drop(name)
        self._presence.drop(name)

    def _notify(self, name: str) -> None:
        with self._moved:
            self._moved.notify_all()
        if self._changed is not None:
            self._changed(name)


def _known(found: tuple[int, int] | None, name: str) -> tuple[int, int]:
    if found is None:
        raise UnknownJobError(f"there is no pipeline job {name!r}")
    return found
