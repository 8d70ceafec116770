"""One recurrence of a job in the training processes: decision, power limit, reports.

Rank 0 requests the batch size and reports the epochs; the other ranks receive its decisions. Batch
size and power limit are decided together: the time-energy tradeoff of power limits at a batch size
is measured once, kept with the job, and used by every later run.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

from zeus._rules import Number, Whole
from zeus.errors import ProfileError, RunError
from zeus.frontier import ZeusCost
from zeus.monitor import ZeusMonitor
from zeus.optimizer._stopping import Outcome, Stop
from zeus.optimizer.batch_size.api._answers import Decision, Verdict
from zeus.optimizer.batch_size.job._share import BatchShare, nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._values import DEFAULT_LEASE
from zeus.optimizer.batch_size.running._agreement import from_first
from zeus.optimizer.batch_size.running._gpus import Gpus, gpu_infos
from zeus.optimizer.batch_size.running._launch_context import (
    Answer,
    LaunchContext,
    TrialUse,
    agreed,
)
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._processes import launched_processes, launched_rank
from zeus.optimizer.batch_size.running._reporter import Reporter, default_decision
from zeus.optimizer.batch_size.running._run_id import RunId
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.optimizer.batch_size.running._size_measurement import (
    SizeMeasurement,
    measure_sizes,
    out_of_memory,
)
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.optimizer.training._fixed_limit import FixedPowerLimit
from zeus.optimizer.training._profiles import Profile, ProfileFile, ProfileKey
from zeus.optimizer.training._ranks import Ranks, job_ranks
from zeus.optimizer.training._training_run import Share, Target, TrainingRun
from zeus.state._files import state_directory

logger = logging.getLogger(__name__)

# How a run ends whose trial has ended so; any other trial was taken away from its run.
_ENDS: dict[str | None, Outcome] = {
    Outcome.CONVERGED: Outcome.CONVERGED,
    Outcome.STOPPED: Outcome.STOPPED,
    Outcome.FAILED: Outcome.EXHAUSTED,
}


class RecurringRun:
    """A training run as one trial of a recurring job.

    Every process of the job has one, and all of them get the same decisions.

    Args:
        monitor: Measures time and energy.
        job: The job; not needed in a script started by `zeus run`.
        server_url: URL of the server that keeps the job; see `Location.of`.
        storage: URL of the store that keeps the job; see `Location.of`.
        token: Token for a server that requires one.
        timeout: Seconds that one request to a server may take.
        lease: Seconds after which the trial expires without a report or renewal.
        rank: Rank of this process in the job, if `torch.distributed` does not provide it.
        rank_timeout: Seconds to wait for other processes of the job.
        replicas: Number of data-parallel replicas, which share each batch equally. By default every
            process is one; give it where several processes share one replica of the model.
        max_local_batch_size: Maximum samples that one replica trains on at once; larger shares
            accumulate gradients.
        run_id: Name of this run, under which it may be started again; see `RunId.find`.

    Attributes:
        spec: The job.

    Raises:
        RunError: If there is no job, or a value breaks its rule.
        JobConflictError: If the script was started for another specification of the same job.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        job: JobSpec | None = None,
        *,
        server_url: str | None = None,
        storage: str | None = None,
        token: str | None = None,
        timeout: float = 5.0,
        lease: float = DEFAULT_LEASE,
        rank: int = 0,
        rank_timeout: float = 600.0,
        replicas: int | None = None,
        max_local_batch_size: int | None = None,
        run_id: str | None = None,
    ) -> None:
        stated = {"replicas": replicas, "max_local_batch_size": max_local_batch_size}
        for name, value in stated.items():
            if value is not None:
                Whole(1).check(name, value, RunError)
        if rank != int(rank) or rank < 0:
            raise RunError(f"`rank` must be a whole number from 0, but got {rank!r}")
        self.monitor = monitor
        self._handover = _handed_over(job)
        if self._handover is not None:
            self.spec = self._handover.notes.spec
            self._place = self._handover.place
        elif job is None:
            raise RunError("there is no job: give `job=JobSpec(...)`, or start by `zeus run`")
        else:
            self.spec = job
            self._place = Location.of(server_url, storage, token=token, timeout=timeout)
        self._lease = lease
        self._rank = rank or launched_rank()
        self._rank_timeout = rank_timeout
        self._run_id = RunId.find(run_id)
        self._replicas = replicas
        self._max_local = max_local_batch_size
        self._decision: Decision | None = None
        self._share: BatchShare | None = None
        self._use: TrialUse | None = None
        self._gpus: Gpus | None = None
        self._reporter: Reporter | None = None
        self._optimizer: GlobalPowerLimitOptimizer | FixedPowerLimit | None = None
        self._profile_is_kept = False
        self._profiled_steps = 0
        self._run: TrainingRun | None = None
        self._over = False
        self._process = os.getpid()

    # --- deciding -------------------------------------------------------------------------------

    @property
    def decision(self) -> Decision:
        """Configuration of the trial. At the first access, all processes of the job must ask.

        Raises:
            RunError: If this is not rank 0 and cannot receive its decision.
            RanksError: If the processes do not answer each other.
            JobConflictError: If the job exists with another specification.
            JobSpecError: If the job is not accepted.
        """
        if self._decision is None:
            self._decision = self._decide()
        return self._decision

    @property
    def share(self) -> BatchShare:
        """Share of each replica in a batch. At the first access, all processes must ask."""
        _ = self.decision
        assert self._share is not None
        return self._share

    def mark_read(self) -> None:
        """Note that the program has asked for its batch size."""
        if self._use is not None and not self._use.batch_size_read:
            self._use.batch_size_read = True
            self._note_use()

    def _decide(self) -> Decision:
        ranks = job_ranks(self._rank_timeout)
        try:
            if ranks.size > 1:
                self._rank = ranks.rank
            elif self._handover is None and self._rank > 0:
                raise RunError(
                    f"rank {self._rank} must receive the batch size from rank 0: "
                    "initialize torch.distributed before, or start the script by `zeus run`"
                )
            return self._decide_together(ranks)
        finally:
            ranks.leave()

    def _decide_together(self, ranks: Ranks) -> Decision:
        gpus = self._gpus = Gpus.together(ranks.share(gpu_infos(self.monitor)))
        replicas = self._count_replicas(ranks)
        given = self._handover
        # Rank 0's answer counts where it is shared; else the decision passed to all processes.
        otherwise = default_decision(self.spec, "") if given is None else given.decision
        answer = from_first(ranks, self._rank, lambda: self._ask(gpus, replicas), otherwise)
        self._take_share(answer, replicas)
        return answer

    def _count_replicas(self, ranks: Ranks) -> int:
        """Return the number of replicas of the job's processes.

        Raises:
            RunError: If the processes cannot form as many as were stated.
        """
        processes = max(ranks.size, launched_processes())
        given = self._handover
        stated = self._replicas or (None if given is None else given.replicas)
        if stated is not None and processes > 1 and processes % stated:
            raise RunError(
                "the number of processes must be a multiple of `replicas`, but got "
                f"(processes={processes}, replicas={stated})"
            )
        return processes if stated is None else stated

    def _take_share(self, decision: Decision, replicas: int) -> None:
        """Share the batch, and let `zeus run` know what becomes of its trial."""
        most = self._max_share
        if self._handover is not None and self._rank == 0:
            self._use = TrialUse(replicas)
        try:
            self._share = BatchShare.of(decision.batch_size, replicas, most)
        except RunError as error:
            if self._use is not None:
                self._use.refusal = f"{error}; start it by `zeus run --replicas {replicas}`"
            raise
        finally:
            self._note_use()
        if most is not None and 2 * self._share.local_batch_size < min(
            most, decision.batch_size // replicas
        ):
            logger.warning(
                "a share of %d samples can be accumulated only in %d local batches of %d, far "
                "below the maximum of %d: another batch size would be quicker",
                *(decision.batch_size // replicas, self._share.accumulation_steps),
                *(self._share.local_batch_size, most),
            )

    @property
    def _max_share(self) -> int | None:
        """Maximum samples of a replica at once, as the script and `zeus run` have stated it."""
        given = self._handover
        bounds = [self._max_local, None if given is None else given.notes.max_local_batch_size]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _notes(self, gpus: Gpus, replicas: int) -> RunReport:
        """Return the notes of a run without any reports."""
        spec = self.spec
        return RunReport(
            place=self._place.url,
            spec=spec,
            gpu=gpus.name,
            gpus=gpus.number,
            max_power=gpus.max_power,
            batch_size=nearest_shared(spec.default_batch_size, spec.batch_sizes, replicas),
            at=time.time(),
            memory=gpus.memory,
            replicas=replicas,
            max_local_batch_size=self._max_share,
            lease=self._lease,
        )

    def _ask(self, gpus: Gpus, replicas: int) -> Decision:
        given = self._handover
        spec = self.spec
        if given is not None:
            notes = given.notes
        else:
            notes = self._notes(gpus, replicas)
            if self._run_id is not None:
                notes.run, notes.resume = self._run_id.name, self._run_id.restarted
        decided = None if given is None else given.decision
        self._reporter = Reporter(self._place, notes, decided)
        decision = self._reporter.decision
        earlier = None if given is None else Answer.read(given.answer)
        if earlier is not None:  # its launcher has started the program again
            self._reporter.resume(earlier.trial, earlier.epochs)
            decision = replace(decision, epochs=self._reporter.notes.recorded, resumed=True)
        logger.info("job %r: batch size %d, %s", spec.name, decision.batch_size, decision.reason)
        if decision.resumed:
            logger.info("it goes on: %d epochs were reported before", decision.epochs)
        return decision

    def measure_sizes(
        self,
        step: Callable[[int], object],
        samples: int,
        *,
        seconds: float = 5.0,
        of_replica: bool = False,
    ) -> dict[int, float | None]:
        """Measure batch sizes that the job does not know on these GPUs.

        Args:
            step: Trains on as many samples as it is called with, in this process.
            samples: Number of samples in an epoch.
            seconds: Maximum duration of the measurement of each batch size.
            of_replica: Whether `samples` are those of one replica, not of all together.

        Returns:
            Cost of an epoch in joules, by batch size; `None` for those that do not fit in memory.
        """
        Number(0.0, above=True).check("seconds", seconds, RunError)
        Whole(1).check("samples", samples, RunError)
        if self._run is not None:
            raise RunError("batch sizes must be measured before training begins")
        ranks = job_ranks(self._rank_timeout)
        try:
            processes = launched_processes()
            if ranks.size > 1:
                self._rank = ranks.rank
            elif processes > 1 or self._rank > 0:
                raise RunError(
                    "all processes must measure together: initialize torch.distributed before, but "
                    f"got rank {self._rank} of {max(processes, self._rank + 1)} without it"
                )
            replicas = self._count_replicas(ranks)
            gpus = Gpus.together(ranks.share(gpu_infos(self.monitor)))
            notes = self._notes(gpus, replicas)
            if self._handover is not None:
                # The next decision is for the GPUs that `zeus run` sees.
                seen = self._handover.notes
                notes.gpu, notes.gpus, notes.memory = seen.gpu, seen.gpus, seen.memory
            measurement = SizeMeasurement(
                self.monitor,
                ranks,
                self.spec,
                step,
                seconds=seconds,
                samples=samples * replicas if of_replica else samples,
                max_power=gpus.max_power,
                weighs_energy=gpus.known,
            )
            return measure_sizes(measurement, ranks, self._rank, self._place, notes)
        finally:
            ranks.leave()

    # --- running --------------------------------------------------------------------------------

    @property
    def optimizer(self) -> GlobalPowerLimitOptimizer | FixedPowerLimit:
        """Optimizer of the power limit of this process's GPUs."""
        if self._optimizer is None:
            decision = self.decision
            if decision.optimize_power:
                self._bring_profile()
                self._optimizer = GlobalPowerLimitOptimizer(
                    self.monitor,
                    ZeusCost(self.spec.eta_knob),
                    job=self.spec.name,
                    batch_size=decision.batch_size,
                    rank_timeout=self._rank_timeout,
                )
            else:
                self._optimizer = FixedPowerLimit(self.monitor, decision.power_limit)
        return self._optimizer

    def training_run(self, epochs_done: int = 0) -> TrainingRun:
        """Return the run, which ends by the job's verdicts.

        Args:
            epochs_done: Number of epochs that were trained by earlier starts of the run, as far as
                they are in the checkpoint that it continues from.
        """
        spec = self.spec
        self._run = TrainingRun(
            self.monitor,
            self.optimizer,
            max_epochs=spec.max_epochs,
            target=Target(spec.target_metric, spec.higher_is_better, spec.patience),
            eta_knob=spec.eta_knob,
            cost_threshold=self.decision.threshold,
            judge=self._judge,
            rank_timeout=self._rank_timeout,
            epochs_done=epochs_done,
        )
        return self._run

    def _judge(self, run: TrainingRun) -> Stop | None:
        verdict: Verdict | None = None
        if self._reporter is not None:
            self._note_profile(run, self._reporter)
            verdict = self._report(run, self._reporter)
        if verdict is not None and verdict.warning:
            logger.warning("job %r: %s", self.spec.name, verdict.warning)
        heard: Verdict | None = run.share(verdict)[0]
        if heard is None or heard.go_on:
            # No verdict makes a run continue beyond its target and its epochs.
            stop = run.own_stop(by_cost=heard is None)
        else:
            stop = Stop(_ENDS.get(heard.outcome, Outcome.LEFT), heard.reason)
        self._over = stop is not None
        self._answer(run, stop)
        return stop

    def _report(self, run: TrainingRun, reporter: Reporter) -> Verdict | None:
        """Report the latest epoch, unless an earlier start of the run has reported it."""
        recorded = reporter.notes.recorded
        missing = run.history[-1].number - recorded
        new = run.history[-1:]
        if missing < 0:
            stop = run.own_stop(by_cost=False)
            if stop is None or stop.outcome is not Outcome.CONVERGED:
                return None
            # Trained again, it has reached the target earlier: that is what comes next.
            new, missing = run.history[-self.spec.patience :], 0
        verdict: Verdict | None = None
        for record in new:
            verdict = reporter.report(
                missing=missing,
                time=record.total.time,
                # Without the maximum power, energy cannot be weighed against time.
                energy=record.total.energy if self._gpus and self._gpus.known else None,
                metric=record.metric,
                power_limit=self._limit(),
                steps=record.steps or None,
            )
        return verdict

    def suspend(self) -> None:
        """Finish the run here, and leave its trial open until it is started again or expires."""
        self._finish_run()
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.close()

    def _finish_run(self) -> None:
        if self._run is not None:
            self._run.finish()
        elif self._optimizer is not None:
            self._optimizer.close()

    def leave(self, error: BaseException | None = None) -> None:
        """Finish the run, or abandon it. May be called twice.

        Args:
            error: The exception that ended the run, if any.
        """
        if self._goes_on(error):
            self.suspend()
            return
        run = self._run
        self._finish_run()
        reporter, self._reporter = self._reporter, None
        if reporter is None:
            return
        if self._use is not None and _memory_ended(run, error):
            self._use.out_of_memory = True
            self._note_use()
        # `zeus run` itself classifies the trials of scripts that it has started.
        if not self._over and self._handover is None:
            self._end(reporter, run, error)
        elif run is not None and run.outcome is Outcome.STOPPED:
            # Delivered later, the same epochs might not lead to the verdict to stop.
            reporter.end(
                Outcome.CANCELLED, note="stopped early while server or store was unreachable"
            )
        reporter.close()

    def _goes_on(self, error: BaseException | None) -> bool:
        """Whether the run is expected to be started again, so that its trial must stay open."""
        if self._over or self._handover is not None or self._run_id is None or error is None:
            return False
        return not _memory_ended(self._run, error) and self._run_id.outlives(error)

    def leave_with(self, owner: object) -> None:
        """Leave when the owner is gone or the program ends, unless already left."""
        weakref.finalize(owner, self._abandon)

    def _abandon(self) -> None:
        if os.getpid() == self._process:  # a forked child has no part in it
            # An exception that ended the program is known; otherwise the cause is unknown.
            self.leave(getattr(sys, "last_value", None) or GeneratorExit())

    def _end(
        self, reporter: Reporter, run: TrainingRun | None, error: BaseException | None
    ) -> None:
        epochs = 0 if run is None else len(run.history)
        note = f"left after {epochs} epochs"
        outcome = Outcome.CANCELLED if error is not None or not epochs else Outcome.FAILED
        if error is not None:
            if not isinstance(error, GeneratorExit):  # says nothing about why
                note += f", by {type(error).__name__}: {error}"
            # A batch size that does not fit in memory will not fit the next time.
            if _memory_ended(run, error):
                outcome = Outcome.FAILED
        spent = Share() if run is None else run.unfinished
        reporter.end(outcome, time=spent.time, energy=spent.energy, note=note)

    # --- profiles -------------------------------------------------------------------------------

    def _bring_profile(self) -> None:
        """Save the job's stored profile to the file where the optimizer searches for it."""
        if self._reporter is None:
            return  # rank 0 does this
        frontier = self._reporter.saved_frontier()
        # That of another job is kept as one of this job, too, after its first epoch.
        self._profile_is_kept = frontier is not None
        if frontier is None and self.spec.profile_key is not None:
            frontier = self._reporter.saved_frontier(shared=True)
        if frontier is None:
            return
        notes = self._reporter.notes
        key = ProfileKey(
            notes.gpu, notes.gpus, "power_limit", self.spec.name, self.decision.batch_size
        )
        try:
            file = ProfileFile(state_directory() / "profiles.json")
            if file.find(key) is None:
                file.keep(Profile(key, frontier))
        except (OSError, ProfileError) as error:
            logger.warning("the job's profile is not used: %s", error)

    def _note_profile(self, run: TrainingRun, reporter: Reporter) -> None:
        optimizer = self._optimizer
        if not isinstance(optimizer, GlobalPowerLimitOptimizer) or not optimizer.decided:
            return
        fresh = optimizer.profiling_steps > self._profiled_steps
        if self._profile_is_kept and not fresh:
            return
        self._profile_is_kept, self._profiled_steps = True, optimizer.profiling_steps
        step, limit, frontier = optimizer.expected_step, self._limit(), optimizer.frontier
        load = None
        if step is not None and limit is not None:
            load = step.energy / step.time / (limit * reporter.notes.gpus)
        reporter.note_profile(
            None if frontier is None else frontier.to_dict(),
            epoch_cost=run.predicted_cost(),
            load=load,
            power_limit=limit,
        )

    def _limit(self) -> float | None:
        """Power limit of each GPU in watts, if it is a single number and known."""
        optimizer = self._optimizer
        if isinstance(optimizer, FixedPowerLimit):
            return None if optimizer.trouble else optimizer.power_limit
        if optimizer is None or optimizer.selection is None or optimizer.observing:
            return None
        knob = optimizer.selection.point.knob
        return float(knob) if isinstance(knob, int | float) else None

    # --- for `zeus run` -------------------------------------------------------------------------

    def _note_use(self) -> None:
        if self._handover is None or self._use is None:
            return
        try:
            self._use.write(self._handover.use)
        except OSError as error:
            logger.warning("the use of the trial cannot be reported to `zeus run`: %s", error)

    def _answer(self, run: TrainingRun, stop: Stop | None) -> None:
        if self._handover is None or self._reporter is None:
            return
        notes = self._reporter.notes
        energies = [record.total.energy for record in run.history]
        known = None not in energies and self._gpus is not None and self._gpus.known
        spent = sum(record.total.time for record in run.history)
        energy = sum(each or 0.0 for each in energies) if known else None
        most = notes.max_power
        answer = Answer(
            outcome=None if stop is None or stop.outcome is Outcome.LEFT else stop.outcome.of_trial,
            reason="" if stop is None else stop.reason,
            epochs=notes.recorded,
            time=spent,
            energy=energy,
            cost=self.spec.cost(most * spent if energy is None else energy, spent, most),
            metric=run.history[-1].metric,
            trial=notes.trial or "",
        )
        try:
            answer.write(self._handover.answer)
        except OSError as error:
            logger.warning("the progress of the run cannot be reported to `zeus run`: %s", error)


def _handed_over(job: JobSpec | None) -> LaunchContext | None:
    """Return the trial that this process was started for, if of this job and not claimed yet."""
    found = LaunchContext.found()
    if found is None or (job is not None and job.name != found.notes.spec.name):
        return None
    if job is not None:
        agreed(found.notes.spec, job)
    return found if found.claim() else None


def _memory_ended(run: TrainingRun | None, error: BaseException | None) -> bool:
    """Whether a run ran out of memory before the end of its first epoch."""
    if run is not None and run.history:
        return False
    return out_of_memory(error)
