"""A PyTorch `DataLoader` that trains with less energy, up to a target metric.

The whole integration is to use it in place of `torch.utils.data.DataLoader`::

    train_loader = ZeusDataLoader(train_set, batch_size, max_epochs, target_metric)
    eval_loader = ZeusDataLoader(eval_set, batch_size)

    for epoch in train_loader.epochs():  # may early stop
        for batch in train_loader:
            ...  # learn from batch
        for batch in eval_loader:
            ...  # evaluate on batch
        train_loader.report_metric(validation_metric)

With a recurring job, the job decides the batch size and when to stop::

    train_loader = ZeusDataLoader(train_set, job=JobSpec(...), storage="sqlite:///jobs.db")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zeus.errors import MissingExtraError, RunError
from zeus.frontier import ZeusCost
from zeus.monitor import ZeusMonitor
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._launch_context import LaunchContext
from zeus.optimizer.batch_size.running._recurring_run import RecurringRun
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.optimizer.training._fixed_limit import FixedPowerLimit
from zeus.optimizer.training._ranks import job_size
from zeus.optimizer.training._training_run import EpochRecord, Target, TrainingRun

try:
    from torch.utils.data import DataLoader
except ModuleNotFoundError as error:
    raise MissingExtraError("ZeusDataLoader", "torch") from error


class _OpenRuns(threading.local):
    """The open runs of this thread, so that evaluation loaders find the run they belong to."""

    def __init__(self) -> None:
        self.runs: list[TrainingRun] = []


_open_runs = _OpenRuns()


class ZeusDataLoader(DataLoader[Any]):
    """A `DataLoader` whose training run is measured, optimized and stopped in time.

    With `max_epochs` it loads training data: the first epoch is sliced at iteration boundaries to
    profile power limits, the rest runs at the best one, and `epochs` ends when the target metric is
    reached, when no epoch is left, or before an epoch that would exceed the cost threshold. Without
    `max_epochs` it loads evaluation data, and the time and energy of iterating over it count for
    the current run. Everything else is as in PyTorch, including all keyword arguments that are not
    listed here.

    With a `JobSpec` it is a trial of a recurring job: batch size, target, epochs, eta and cost
    threshold come from the job, and every epoch is reported to the server or store of the job. The
    same holds for the first loader with `max_epochs` in a script that `zeus run` has started, if it
    has the batch size that was decided. Values given in both places must agree.

    Args:
        dataset: As in PyTorch.
        batch_size: As in PyTorch. Left out if a recurring job decides it: then `batch_size` is what
            one process loads at once, its `local_batch_size`.
        max_epochs: Maximum number of epochs.
        target_metric: Train until `report_metric` gets a value that is at least as good.
        higher_is_better: Whether higher metrics are better.
        patience: Number of reports in a row in which the target must be reached.
        eta_knob: The paper's eta, which weighs energy (1) against time (0) in the cost.
        cost_threshold: Maximum cost of the run, in joules.
        optimum_selector: Objective for the power limit; by default the cost.
        observe: Find the best power limit but do not use it; `power_limit.report()` shows what it
            would have saved.
        job: A recurring job; or only a name, under which power-limit profiles are kept for the next
            run.
        server_url: URL of the server that keeps the recurring job.
        storage: Instead of a server, a store on this machine; see `BatchSizeOptimizer`.
        profile_path: File for the profiles, instead of the state directory of Zeus.
        monitor: Monitor to measure with; by default a new one of this process's GPUs.
        rank_timeout: Seconds to wait for other processes of the job.
        replicas: Number of data-parallel replicas of a recurring job; see `BatchSizeOptimizer`.
        max_local_batch_size: Maximum batch of one process of a recurring job; a larger share takes
            `accumulation_steps` batches, which are one step together.
        measure: Called with batches of a recurring job to train a model that is thrown away on
            each, before the first decision on a kind of GPUs; see
            `BatchSizeOptimizer.measure_batch_sizes`. It gets batches as this loader will yield
            them, so loading counts, too.
        run_id: Name of this run of a recurring job, the same whenever it is started again after an
            interruption; see `BatchSizeOptimizer`.
        epochs_done: Number of epochs in the checkpoint that the run continues from.
        **settings: All other arguments of PyTorch's loader.

    Raises:
        ValueError: If an argument is invalid.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        max_epochs: int | None = None,
        target_metric: float | None = None,
        *,
        higher_is_better: bool = True,
        patience: int = 1,
        eta_knob: float = 0.5,
        cost_threshold: float | None = None,
        optimum_selector: Any = None,
        observe: bool = False,
        job: JobSpec | str | None = None,
        server_url: str | None = None,
        storage: str | None = None,
        profile_path: str | Path | None = None,
        monitor: ZeusMonitor | None = None,
        rank_timeout: float = 600.0,
        replicas: int | None = None,
        max_local_batch_size: int | None = None,
        measure: Callable[[Any], object] | None = None,
        run_id: str | None = None,
        epochs_done: int = 0,
        **settings: Any,
    ) -> None:
        self._run: TrainingRun | None = None
        self._optimizer: GlobalPowerLimitOptimizer | FixedPowerLimit
        self._recurring: RecurringRun | None = None
        given = {
            "max_epochs": max_epochs,
            "target_metric": target_metric,
            "patience": None if patience == 1 else patience,  # 1 counts as not given
        }
        if isinstance(job, JobSpec) or (max_epochs is not None and _started_for(job)):
            unwanted = {
                "cost_threshold": cost_threshold,
                "optimum_selector": optimum_selector,
                "observe": observe or None,
                "profile_path": profile_path,
                "batch_sampler": settings.get("batch_sampler"),
            }
            for name, value in unwanted.items():
                if value is not None:
                    raise RunError(f"a recurring job decides this itself, but got {name}={value!r}")
            self._recurring = RecurringRun(
                monitor or ZeusMonitor(),
                job if isinstance(job, JobSpec) else None,
                server_url=server_url,
                storage=storage,
                rank_timeout=rank_timeout,
                replicas=replicas,
                max_local_batch_size=max_local_batch_size,
                run_id=run_id,
            )
            if measure is not None:
                _measure(self._recurring, measure, dataset, settings)
            batch_size = _agreed(self._recurring, batch_size, given)
            self._optimizer = self._recurring.optimizer
            self._run = self._recurring.training_run(epochs_done)
            self._recurring.leave_with(self)
        elif server_url is not None or storage is not None:
            raise RunError(
                "only a recurring job has a server or a store: give `job=JobSpec(...)`, but got "
                f"job={job!r}, server_url={server_url!r}, storage={storage!r}"
            )
        elif replicas is not None or max_local_batch_size is not None:
            raise RunError(
                "only a recurring job shares a batch: give `job=JobSpec(...)`, but got "
                f"replicas={replicas!r}, max_local_batch_size={max_local_batch_size!r}"
            )
        elif measure is not None:
            raise RunError(
                "only a recurring job has batch sizes to measure: give `job=JobSpec(...)`, but got "
                f"measure={measure!r}"
            )
        super().__init__(dataset, batch_size=batch_size, **settings)
        if self._recurring is not None:
            return
        if max_epochs is None:
            if target_metric is not None or cost_threshold is not None:
                raise RunError(
                    "only a loader with `max_epochs` trains, but got "
                    f"target_metric={target_metric!r}, cost_threshold={cost_threshold!r} without it"
                )
            return
        monitor = monitor or ZeusMonitor()
        self._optimizer = GlobalPowerLimitOptimizer(
            monitor,
            ZeusCost(eta_knob) if optimum_selector is None else optimum_selector,
            profile_path=profile_path,
            job=job if isinstance(job, str) else None,
            batch_size=None if batch_size is None else batch_size * job_size(),
            observe=observe,
            rank_timeout=rank_timeout,
        )
        self._run = TrainingRun(
            monitor,
            self._optimizer,
            max_epochs=max_epochs,
            target=(
                None if target_metric is None else Target(target_metric, higher_is_better, patience)
            ),
            eta_knob=eta_knob,
            cost_threshold=cost_threshold,
            rank_timeout=rank_timeout,
            epochs_done=epochs_done,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Iterate over the batches; each is a step if this is the training data.

        With a recurring job, `accumulation_steps` batches are a step.
        """
        batches = super().__iter__()
        if self._run is not None:
            return self._run.steps(batches, self.accumulation_steps)
        return _open_runs.runs[-1].evaluation(batches) if _open_runs.runs else batches

    def epochs(self) -> Iterator[int]:
        """Yield epoch numbers from `epochs_done`, until the run should stop.

        Raises:
            ValueError: If this is not a loader of training data.
        """
        run = self._training("epochs()")
        _open_runs.runs.append(run)
        try:
            yield from run.epochs()
        except GeneratorExit as left:  # by `break`, or by an exception that is not visible here
            self._leave(left)
            raise
        finally:
            self._leave(None)
            _open_runs.runs.remove(run)

    def report_metric(self, metric: float) -> None:
        """Report the validation metric, once per epoch. Of several processes, the first one counts.

        Raises:
            ValueError: If it is not a number, or outside of an epoch.
        """
        self._training("report_metric()").report_metric(metric)

    @property
    def learning_rate_scale(self) -> float:
        """Factor on the default batch size's learning rate; 1 without a recurring job."""
        return 1.0 if self._recurring is None else self._recurring.decision.learning_rate_scale

    @property
    def accumulation_steps(self) -> int:
        """Batches whose gradients are accumulated for a step; 1 without a recurring job."""
        return 1 if self._recurring is None else self._recurring.share.accumulation_steps

    @property
    def global_batch_size(self) -> int | None:
        """Samples of one step of all processes; `None` without a recurring job."""
        return None if self._recurring is None else self._recurring.share.batch_size

    @property
    def power_limit(self) -> GlobalPowerLimitOptimizer | FixedPowerLimit:
        """The power-limit optimizer, with its choice, frontier and report."""
        self._training("power_limit")
        return self._optimizer

    @property
    def history(self) -> list[EpochRecord]:
        """Time and energy of training and of evaluation, and the metric, by epoch."""
        return self._training("history").history

    @property
    def outcome(self) -> Outcome | None:
        """Why the run ended; `None` before its end."""
        return self._training("outcome").outcome

    @property
    def reached_target(self) -> bool:
        """Whether the target metric was reached."""
        return self._training("reached_target").reached_target

    @property
    def cost(self) -> float | None:
        """Cost of the epochs so far, in joules; `None` if energy could not be measured."""
        return self._training("cost").cost

    def _leave(self, error: BaseException | None) -> None:
        if self._recurring is not None:
            self._recurring.leave(error)

    def _training(self, what: str) -> TrainingRun:
        if self._run is None:
            raise RunError(f"{what} is for a loader of training data: give it `max_epochs`")
        return self._run


def _started_for(job: str | None) -> bool:
    """Return whether `zeus run` expects a trial that this loader can take."""
    found = LaunchContext.found()
    return found is not None and not found.claimed and job in (None, found.notes.spec.name)


def _measure(
    recurring: RecurringRun, measure: Callable[[Any], object], dataset: Any, settings: Any
) -> None:
    """Measure the batch sizes of a job with batches as they are loaded in training.

    Raises:
        RunError: If the number of samples is unknown.
    """
    batches: dict[int, Iterator[Any]] = {}

    def endless(local: int) -> Iterator[Any]:
        # The last batch of an epoch is smaller; only whole ones are measured.
        whole = {"drop_last": samples >= local, "persistent_workers": False}
        while True:
            yield from DataLoader(dataset, batch_size=local, **{**settings, **whole})

    def step(local: int) -> None:
        if local not in batches:
            batches.clear()  # workers of the previous one end
            batches[local] = endless(local)
        measure(next(batches[local]))

    sampler = settings.get("sampler")
    try:
        samples = len(dataset if sampler is None else sampler)
    except TypeError:
        raise RunError(
            "batch sizes are measured with the number of samples of an epoch: the data set, or its "
            f"sampler, must have a length, but got {type(dataset).__name__} without one"
        ) from None
    recurring.measure_sizes(step, samples, of_replica=True)


def _agreed(recurring: RecurringRun, batch_size: int | None, given: dict[str, float | None]) -> int:
    """Return this process's share of the batch size that was decided.

    Raises:
        RunError: If an argument of the loader contradicts the job.
    """
    share, spec = recurring.share, recurring.spec
    recurring.mark_read()
    decided, local = share.batch_size, share.local_batch_size
    if batch_size not in (1, decided, local):  # 1 is PyTorch's default, so it counts as not given
        here = "" if local == decided else f" (here {local})"
        raise RunError(
            f"job {spec.name!r} must be trained with batch size {decided}{here}, "
            f"but got {batch_size}"
        )
    for name, value in given.items():
        if value is not None and value != getattr(spec, name):
            raise RunError(
                f"job {spec.name!r} has {name}={getattr(spec, name)}, but got {name}={value}"
            )
    return local
