"""The batch size of a recurring job, in the training script.

The same model is trained again every night. Each run asks which batch size to use, reports its
epochs, and stops when there is no point in going on::

    optimizer = BatchSizeOptimizer(monitor, server_url="http://127.0.0.1:8420", job=JobSpec(...))
    batch_size = optimizer.get_batch_size()
    optimizer.on_train_begin()
    while not optimizer.training_finished:
        train_one_epoch(batch_size)
        optimizer.on_evaluate(validation_metric())
    optimizer.close()
"""

from __future__ import annotations

import logging
import sys

from zeus.errors import RunError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size.answers import Decision
from zeus.optimizer.batch_size.recurring_run import RecurringRun
from zeus.optimizer.batch_size.spec import JobSpec
from zeus.optimizer.batch_size.values import DEFAULT_LEASE
from zeus.optimizer.callback import Callback
from zeus.optimizer.fixed_limit import FixedPowerLimit
from zeus.optimizer.jit.optimizer import JitOptimizer
from zeus.optimizer.training_run import EpochRecord, Outcome, TrainingRun

logger = logging.getLogger(__name__)


class BatchSizeOptimizer(Callback):
    """Chooses batch size and power limit of a job that is trained again and again.

    Where the job is kept being down, slow or out of its mind never stops the training: it goes on
    with the default batch size, and what could not be reported is kept and delivered later, once.
    A run that is killed is forgotten after its lease.

    As a `Callback` it takes care of the power limit, too: tell it about epochs and steps, or give
    it to an integration. Without that, the power limit stays as it is.

    Every process of a job has one. With `torch.distributed` initialised, or started by `zeus run`,
    they are one trial however many they are: the first process asks, reports and is heard.

    Args:
        monitor: Measures the GPUs that train.
        server_url: Of the server that keeps the job. By default `ZEUS_SERVER`.
        job: The job. A script that `zeus run` has started finds it in its environment.
        rank: Number of this process in the job, if `torch.distributed` is not initialised when the
            batch size is asked for.
        storage: Instead of a server, a store on this machine: `sqlite:///FILE`, or
            `postgresql://USER@HOST/DATABASE`. Without either, `ZEUS_STORAGE`, or a file where Zeus
            keeps its state.
        token: If the server asks for one; by default `ZEUS_TOKEN`.
        timeout: Seconds that one question to the server may take.
        lease: Seconds after which the trial is given up if nothing is heard of it. It is renewed
            while the process lives, however long an epoch takes.
        rank_timeout: Seconds to wait for other processes of the job.

    Raises:
        ValueError: If a value breaks its rule, or there is no job.
        ServerError: If the URL is not one of a server.
        StorageError: If the storage is not one.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        server_url: str | None = None,
        job: JobSpec | None = None,
        rank: int = 0,
        *,
        storage: str | None = None,
        token: str | None = None,
        timeout: float = 5.0,
        lease: float = DEFAULT_LEASE,
        rank_timeout: float = 600.0,
    ) -> None:
        self.monitor = monitor
        self._recurring = RecurringRun(
            monitor,
            job,
            server_url=server_url,
            storage=storage,
            token=token,
            timeout=timeout,
            lease=lease,
            rank=rank,
            rank_timeout=rank_timeout,
        )
        self._run: TrainingRun | None = None
        self._training = False  # steps follow each other, as far as was told
        self._closed = False
        self._told_too_much = False
        self._recurring.leave_with(self)

    # --- what can be asked ------------------------------------------------------------------

    @property
    def job(self) -> JobSpec:
        """The job."""
        return self._recurring.spec

    @property
    def decision(self) -> Decision:
        """The whole decision: batch size, threshold, what it is for. Asks as `get_batch_size`."""
        return self._recurring.decision

    def get_batch_size(self) -> int:
        """The batch size to train with, the same however often it is asked for.

        With several processes, all must ask.

        Raises:
            JobConflictError: If the job is known with another specification.
            RunError: If this is not the first process and cannot hear from it.
        """
        return self.decision.batch_size

    @property
    def learning_rate_scale(self) -> float:
        """Factor on the learning rate of the default batch size, by the job's rule."""
        return self.decision.learning_rate_scale

    @property
    def power_limit(self) -> JitOptimizer | FixedPowerLimit:
        """Takes care of the power limit: its choice, its frontier, its report."""
        return self._recurring.optimizer

    @property
    def training_finished(self) -> bool:
        """Whether the target is reached, no epoch is left, or the run must stop early."""
        return self.outcome is not None

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; `None` while it goes on."""
        return None if self._run is None else self._run.outcome

    @property
    def reached_target(self) -> bool:
        """Whether the target metric was reached."""
        return self.outcome is Outcome.CONVERGED

    @property
    def history(self) -> list[EpochRecord]:
        """What each epoch took."""
        return [] if self._run is None else self._run.history

    # --- what a training loop tells ---------------------------------------------------------

    def on_train_begin(self) -> None:
        """Training begins: time and energy count from here.

        Raises:
            RunError: If it has begun before, or is over.
        """
        if self._run is not None or self._closed:
            raise RunError("a trial is trained once: make another optimizer for another run")
        self._run = self._recurring.training_run()
        self._run.begin()

    def on_evaluate(self, metric: float | None) -> None:
        """An epoch has ended and the model was evaluated. With several processes, all must tell.

        Args:
            metric: Validation metric; `None` if there was no evaluation in this epoch. With several
                processes, the first one's counts.

        Raises:
            RunError: If training has not begun, or it is not a number.
        """
        run = self._run
        if run is None:
            raise RunError("training must begin before it is evaluated: call on_train_begin()")
        if self.training_finished:
            if not self._told_too_much:
                logger.warning("the run is over (%s): what follows counts no more", self.outcome)
            self._told_too_much = True
            return
        self.on_epoch_end()
        if metric is not None:
            run.report_metric(metric)
        run.end_epoch()
        if run.outcome is not None:
            self._recurring.leave()

    def on_epoch_begin(self) -> None:
        """Steps of an epoch follow."""
        run = self._going()
        if run is not None and not self._training:
            self._training = True
            run.begin_training()

    def on_step_begin(self) -> None:
        """A step begins."""
        run = self._going()
        if run is not None:
            self.on_epoch_begin()  # for loops that tell of steps only
            run.begin_step()

    def on_step_end(self) -> None:
        """A step has ended."""
        run = self._going()
        if run is not None and self._training:
            run.end_step()

    def on_epoch_end(self) -> None:
        """The epoch's steps are done; evaluation may follow, and then `on_evaluate`."""
        run = self._going()
        if run is not None and self._training:
            self._training = False
            run.end_training()

    def pause(self) -> None:
        """Something other than training follows, amid the steps."""
        run = self._going()
        if run is not None and self._training:
            run.pause_training()

    def resume(self) -> None:
        """Training goes on after `pause`."""
        run = self._going()
        if run is not None and self._training:
            run.resume_training()

    def close(self) -> None:
        """Put the power limit back, and settle what is left to report. May be called twice."""
        self._leave(sys.exception())

    def __exit__(self, *raised: object) -> None:
        error = raised[1]
        self._leave(error if isinstance(error, BaseException) else None)

    # --- inside -----------------------------------------------------------------------------

    def _going(self) -> TrainingRun | None:
        """The run, if it goes on; begun if nobody has said so."""
        if self._run is None and not self._closed:
            self.on_train_begin()
        return None if self._run is None or self._run.outcome is not None else self._run

    def _leave(self, error: BaseException | None) -> None:
        self._closed = True
        self._recurring.leave(error)
