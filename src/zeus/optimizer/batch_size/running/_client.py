"""Batch size optimizer of a recurring job, for training scripts.

The same model is trained again every night. Each run asks which batch size to use, reports its
epochs, and stops when it cannot pay off anymore::

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
from collections.abc import Callable

from zeus.errors import RunError
from zeus.monitor import ZeusMonitor
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._values import DEFAULT_LEASE
from zeus.optimizer.batch_size.running._recurring_run import RecurringRun
from zeus.optimizer.callback import Callback
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.optimizer.training._fixed_limit import FixedPowerLimit
from zeus.optimizer.training._training_run import EpochRecord, TrainingRun

logger = logging.getLogger(__name__)


class BatchSizeOptimizer(Callback):
    """Chooses batch size and power limit of a recurring training job.

    A server or store that is down, slow or returns invalid answers never stops the training: it
    continues with the default batch size, and undelivered reports are kept and delivered later,
    once. A run that is killed expires with its lease.

    As a `Callback` it also controls the power limit: call its epoch and step hooks, or pass it to
    an integration. Without that, the power limit is not changed.

    Every process of a job has one. With `torch.distributed` initialized, or started by `zeus run`,
    all processes together are one trial: rank 0 asks and reports, and its answers count for all.

    Args:
        monitor: Measures the GPUs that train.
        server_url: URL of the server that keeps the job. By default `ZEUS_SERVER`.
        job: The job. A script started by `zeus run` finds it in its environment.
        rank: Rank of this process in the job, if `torch.distributed` is not initialized when the
            batch size is requested.
        storage: Instead of a server, a store on this machine: `sqlite:///FILE`, or
            `postgresql://USER@HOST/DATABASE`. Without either, `ZEUS_STORAGE`, or a file in Zeus's
            state directory.
        token: Token, if the server requires one; by default `ZEUS_TOKEN`.
        timeout: Seconds that one request to the server may take.
        lease: Seconds after which the trial expires without a report or renewal. It is renewed
            while the process lives, however long an epoch takes.
        rank_timeout: Seconds to wait for other processes of the job.
        replicas: Number of data-parallel replicas, which share each batch equally. By default every
            process is one; give it where several processes share one replica of the model.
        max_local_batch_size: Maximum samples that one replica trains on at once. A larger share is
            reached by accumulating gradients over `accumulation_steps` local batches.
        run_id: Name of this run, the same whenever its scheduler starts it again after an
            interruption: then its trial goes on. By default `ZEUS_RUN_ID`; a Slurm job that was
            requeued and workers that `torchrun` has restarted are recognized.

    Raises:
        ValueError: If a value breaks its rule, or there is no job.
        ServerError: If the URL is not a server's.
        StorageError: If the storage URL is invalid.
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
        replicas: int | None = None,
        max_local_batch_size: int | None = None,
        run_id: str | None = None,
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
            replicas=replicas,
            max_local_batch_size=max_local_batch_size,
            run_id=run_id,
        )
        self._run: TrainingRun | None = None
        self._training = False  # between the begin and the end of an epoch's steps
        self._closed = False
        self._told_too_much = False
        self._recurring.leave_with(self)

    # --- queries ----------------------------------------------------------------------------

    @property
    def job(self) -> JobSpec:
        """The job."""
        return self._recurring.spec

    @property
    def decision(self) -> Decision:
        """The whole decision: batch size, threshold, purpose. Requested as by `get_batch_size`."""
        decision = self._recurring.decision
        self._recurring.mark_read()
        return decision

    def get_batch_size(self) -> int:
        """Return the global batch size to train with; repeated calls return the same.

        It is the samples of one step of the optimizer, of all processes together: each trains on
        `accumulation_steps` batches of `local_batch_size`.

        With several processes, all must call this.

        Raises:
            JobConflictError: If the job exists with another specification.
            RunError: If this is not rank 0 and cannot receive its decision.
        """
        return self.decision.batch_size

    def measure_batch_sizes(
        self, step: Callable[[int], object], samples: int, seconds: float = 5.0
    ) -> dict[int, float | None]:
        """Measure what an epoch costs at batch sizes that the job does not know on these GPUs.

        Call it before `get_batch_size`, in every run: the batch sizes of the job are measured once
        on each kind and number of GPUs, and later calls return at once. So do those of a job that
        leaves nothing to choose, and without a connection to its server or store. Under `zeus run`,
        which decides before the script starts, the next decision uses what was measured.

        Batch sizes that run out of memory are left out from then on, and so are larger ones. Any
        other exception is raised; what was measured until then is kept.

        With several processes, all must call this, with `torch.distributed` initialized.

        Args:
            step: Called with a local batch size: trains on as many samples, as the training will,
                but with a model that is thrown away. It may be called any number of times.
            samples: Number of samples in an epoch, of all processes together.
            seconds: Maximum duration of the measurement of each batch size, after a few steps to
                warm up; it is not more than a twentieth of an epoch of the default, or half a
                second.

        Returns:
            Cost of an epoch in joules by batch size, as far as they were measured now; `None` for
            those that do not fit in memory.

        Raises:
            RunError: If training has begun, processes cannot agree, or a value breaks its rule.
            RanksError: If the processes do not answer each other.
            JobConflictError: If the job exists with another specification.
        """
        return self._recurring.measure_sizes(step, samples, seconds=seconds)

    @property
    def local_batch_size(self) -> int:
        """Samples that this process trains on at once. Requested as by `get_batch_size`.

        `local_batch_size * accumulation_steps * replicas` is the batch size.
        """
        share = self._recurring.share
        self._recurring.mark_read()
        return share.local_batch_size

    @property
    def accumulation_steps(self) -> int:
        """Local batches whose gradients are accumulated for one step of the optimizer."""
        return self._recurring.share.accumulation_steps

    @property
    def replicas(self) -> int:
        """Number of data-parallel replicas that share a batch."""
        return self._recurring.share.replicas

    @property
    def learning_rate_scale(self) -> float:
        """Factor on the default batch size's learning rate, by the job's rule and global batch."""
        return self._recurring.decision.learning_rate_scale

    @property
    def resumed(self) -> bool:
        """Whether an earlier start of this run began the trial: continue from its checkpoint."""
        return self._recurring.decision.resumed

    @property
    def power_limit(self) -> GlobalPowerLimitOptimizer | FixedPowerLimit:
        """Optimizer of the power limit: its choice, its frontier, its report."""
        return self._recurring.optimizer

    @property
    def training_finished(self) -> bool:
        """Whether the target is reached, no epoch is left, or the run must stop early."""
        return self.outcome is not None

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; `None` while it runs."""
        return None if self._run is None else self._run.outcome

    @property
    def reached_target(self) -> bool:
        """Whether the target metric was reached."""
        return self.outcome is Outcome.CONVERGED

    @property
    def history(self) -> list[EpochRecord]:
        """Time, energy and metric of each epoch."""
        return [] if self._run is None else self._run.history

    # --- hooks of the training loop ---------------------------------------------------------

    def on_train_begin(self, epochs_done: int = 0) -> None:
        """Begin training: time and energy count from here.

        Args:
            epochs_done: Number of epochs in the checkpoint that the run continues from; 0 if it
                starts from scratch. Epochs that an earlier start has reported count once.

        Raises:
            RunError: If it has already begun, or is over.
        """
        if self._run is not None or self._closed:
            raise RunError("a trial is trained once: make another optimizer for another run")
        self._run = self._recurring.training_run(epochs_done)
        self._run.begin()

    def on_evaluate(self, metric: float | None) -> None:
        """End an epoch after its evaluation. With several processes, all must call this.

        Args:
            metric: Validation metric; `None` if there was no evaluation in this epoch. With several
                processes, that of rank 0 counts.

        Raises:
            RunError: If training has not begun, or the metric is not a number.
        """
        run = self._run
        if run is None:
            raise RunError("training must begin before it is evaluated: call on_train_begin()")
        if self.training_finished:
            if not self._told_too_much:
                logger.warning("the run is over (%s): further epochs are ignored", self.outcome)
            self._told_too_much = True
            return
        self.on_epoch_end()
        if metric is not None:
            run.report_metric(metric)
        run.end_epoch()
        if run.outcome is not None:
            self._recurring.leave()

    def on_epoch_begin(self) -> None:
        """Begin the steps of an epoch."""
        run = self._going()
        if run is not None and not self._training:
            self._training = True
            run.begin_training()

    def on_step_begin(self) -> None:
        """Begin a step."""
        run = self._going()
        if run is not None:
            self.on_epoch_begin()  # for loops that call only the hooks of steps
            run.begin_step()

    def on_step_end(self) -> None:
        """End a step."""
        run = self._going()
        if run is not None and self._training:
            run.end_step()

    def on_epoch_end(self) -> None:
        """End the steps of an epoch; evaluation may follow, and then `on_evaluate`."""
        run = self._going()
        if run is not None and self._training:
            self._training = False
            run.end_training()

    def pause(self) -> None:
        """Exclude work between steps that is not training, until `resume`."""
        run = self._going()
        if run is not None and self._training:
            run.pause_training()

    def resume(self) -> None:
        """Continue training after `pause`."""
        run = self._going()
        if run is not None and self._training:
            run.resume_training()

    def values_to_log(self) -> dict[str, float]:
        """Return the batch size of all processes together, and the values of the power limit."""
        if self._run is None:
            return {}
        limit = self._recurring.optimizer.values_to_log()
        return {"batch_size": self._recurring.share.batch_size, **limit}

    def suspend(self) -> None:
        """Leave because the run is being interrupted: restore the power limit, and keep the trial.

        The trial goes on when the run is started again under its `run_id`, or else expires. A
        process that SIGTERM or SIGKILL ends need not call this.
        """
        self._closed = True
        self._recurring.suspend()

    def close(self) -> None:
        """Restore the power limit and deliver or save pending reports. May be called twice."""
        self._leave(sys.exception())

    def __exit__(self, *raised: object) -> None:
        error = raised[1]
        self._leave(error if isinstance(error, BaseException) else None)

    # --- inside -----------------------------------------------------------------------------

    def _going(self) -> TrainingRun | None:
        """Return the run unless it is over; begin it if the caller has not."""
        if self._run is None and not self._closed:
            self.on_train_begin()
        return None if self._run is None or self._run.outcome is not None else self._run

    def _leave(self, error: BaseException | None) -> None:
        self._closed = True
        self._recurring.leave(error)
