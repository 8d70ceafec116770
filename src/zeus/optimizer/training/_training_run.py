"""One training run with a target: its epochs, the cost of each, and when to stop.

Framework-free: the training loop passes its epochs and batches through `epochs`, `steps` and
`evaluation`, or reports itself when each begins and ends. The cost of a run is that of the paper,
`eta * energy + (1 - eta) * max_power * time`, over all GPUs of the job; a run with a cost threshold
stops before the epoch that would exceed it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from zeus._rules import Whole
from zeus.errors import CapabilityError, RanksError, RunError
from zeus.frontier._cost import zeus_cost
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor._sums import gpu_energy, since
from zeus.optimizer._stopping import Outcome, Stop, must_stop, reached
from zeus.optimizer.training._ranks import Ranks, merged
from zeus.optimizer.training._rendezvous import Rendezvous
from zeus.optimizer.training._step_optimizer import StepOptimizer
from zeus.optimizer.training._training_meter import TrainingMeter
from zeus.state._files import job_wide

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The target metric of a run.

    Attributes:
        metric: The value to reach.
        higher_is_better: Whether values above it are better; else below.
        patience: Number of evaluations in a row in which it must be reached.
    """

    metric: float
    higher_is_better: bool = True
    patience: int = 1

    def reached_by(self, metric: float) -> bool:
        """Return whether a metric is at least as good."""
        return reached(metric, self.metric, higher_is_better=self.higher_is_better)

    def held_by(self, metrics: Sequence[float]) -> bool:
        """Return whether the latest of several evaluations reached it, as many as needed."""
        latest = metrics[-self.patience :]
        return len(latest) == self.patience and all(map(self.reached_by, latest))


@dataclass(frozen=True)
class Share:
    """Time and energy of a part of a run, over all GPUs of the job.

    Attributes:
        time: Seconds.
        energy: Joules; `None` if not all GPUs could be measured.
    """

    time: float = 0.0
    energy: float | None = 0.0


@dataclass(frozen=True)
class EpochRecord:
    """One epoch.

    Attributes:
        number: Index of the epoch, from 0.
        steps: Number of training steps.
        train: Time and energy of iterating over the training data.
        evaluation: Time and energy of iterating over other data.
        total: The whole epoch, including everything between.
        metric: The reported metric; `None` if there was none.
        cost: Weighted cost of energy and time in joules; `None` if energy is unknown.
    """

    number: int
    steps: int
    train: Share
    evaluation: Share
    total: Share
    metric: float | None
    cost: float | None


class TrainingRun:
    """Epochs of training, up to a target metric, a number of epochs or a cost.

    Every process of a job has one, and all of them decide the same.

    Args:
        monitor: Measures time and energy.
        optimizer: Receives epoch and step events, and is closed at the end.
        max_epochs: Maximum number of epochs.
        target: Ends the run when it is reached.
        eta_knob: The paper's eta: 0 weighs only time, 1 only energy.
        cost_threshold: Maximum cost of the run, in joules.
        judge: Called after every epoch, in every process, in place of `own_stop`; returns how the
            run ended, or `None` to continue.
        rank_timeout: Seconds to wait for other processes of the job.
        epochs_done: Number of epochs that were trained before, by an earlier start of the run.

    Attributes:
        history: The epochs so far.
        outcome: How it ended; `None` while it is running.

    Raises:
        RunError: If an argument is invalid.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        optimizer: StepOptimizer,
        *,
        max_epochs: int,
        target: Target | None = None,
        eta_knob: float = 0.5,
        cost_threshold: float | None = None,
        judge: Callable[[TrainingRun], Stop | None] | None = None,
        rank_timeout: float = 600.0,
        epochs_done: int = 0,
    ) -> None:
        Whole(0).check("epochs_done", epochs_done, RunError)
        if max_epochs != int(max_epochs) or max_epochs < 1:
            raise RunError(f"`max_epochs` must be a whole number from 1, but got {max_epochs!r}")
        if not 0 <= eta_knob <= 1:
            raise RunError(f"`0 <= eta_knob <= 1` must hold, but got {eta_knob!r}")
        if cost_threshold is not None and not cost_threshold > 0:
            raise RunError(f"`cost_threshold > 0` must hold, but got {cost_threshold!r}")
        if target is not None and not math.isfinite(target.metric):
            raise RunError(f"`target_metric` must be finite, but got {target.metric!r}")
        if target is not None:
            Whole(1).check("patience", target.patience, RunError)
        self.monitor = monitor
        self.optimizer = optimizer
        self.max_epochs = max_epochs
        self.target = target
        self.eta_knob = eta_knob
        self.cost_threshold = cost_threshold
        self.epochs_done = epochs_done
        self.history: list[EpochRecord] = []
        self.outcome: Outcome | None = None
        self._judge = judge or TrainingRun.own_stop
        self._rendezvous = Rendezvous("training run", rank_timeout)
        self._ranks = Ranks()
        self._max_power: float | None = None
        self._meters = {part: TrainingMeter(monitor) for part in ("train", "evaluation", "total")}
        self._before: dict[str, Measurement] = {}
        self._begun = self._finished = False
        self._in_epoch = False
        self._steps = 0
        self._metric: float | None = None
        self._profiling_before = 0

    # --- the loop as iterators ------------------------------------------------------------------

    def epochs(self) -> Iterator[int]:
        """Yield epoch numbers until the run is over, from 0 or from the number of epochs done.

        Leaving early ends the run as well.
        """
        self._check_unused()
        try:
            self.begin()
            while self.outcome is None:
                yield self.epochs_done + len(self.history)
                self.end_epoch()
        finally:
            self.finish()

    def steps(self, batches: Iterable[T], per_step: int = 1) -> Iterator[T]:
        """Yield batches to train on.

        Args:
            batches: The batches.
            per_step: Number of batches whose gradients are accumulated for a step; those that are
                left at the end are a step, too.
        """
        self.begin_training()
        taken = 0
        try:
            for batch in batches:
                if taken == 0:
                    self.begin_step()
                yield batch
                taken = (taken + 1) % per_step
                if taken == 0:
                    self.end_step()
            if taken:
                self.end_step()
        finally:
            self.end_training()

    def evaluation(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield batches that are not trained on, also in the middle of training."""
        meter = self._meters["evaluation"]
        amid_training = self.pause_training()
        meter.begin()
        try:
            yield from batches
        finally:
            meter.end()
            if amid_training:
                self.resume_training()

    # --- the loop as events ---------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the run and its first epoch.

        Raises:
            RunError: If it was begun before.
        """
        self._check_unused()
        self._begun = True
        self._meet()
        self._begin_epoch()

    def begin_training(self) -> None:
        """Begin the training part of an epoch: steps follow."""
        self.optimizer.on_epoch_begin()
        self._meters["train"].begin()

    def begin_step(self) -> None:
        """Begin a step."""
        self.optimizer.on_step_begin()

    def end_step(self) -> None:
        """End a step."""
        self.optimizer.on_step_end()
        self._steps += 1

    def pause_training(self) -> bool:
        """Pause for other work between steps; returns whether training was in progress."""
        train = self._meters["train"]
        if not train.open:
            return False
        train.end()
        self.optimizer.pause()
        return True

    def resume_training(self) -> None:
        """Continue training after `pause_training`."""
        self.optimizer.resume()
        self._meters["train"].begin()

    def end_training(self) -> None:
        """End the training part of an epoch: no step follows in it."""
        self._meters["train"].end()
        self.optimizer.on_epoch_end()

    def report_metric(self, metric: float) -> None:
        """Report the model's metric, once per epoch; of several values the last counts.

        Raises:
            RunError: If no epoch is in progress, or it is not a number.
        """
        if not self._in_epoch:
            raise RunError(
                f"a metric belongs to an epoch: report it inside `epochs()`, but got {metric!r}"
            )
        try:
            self._metric = float(metric)
        except (TypeError, ValueError):
            raise RunError(f"a metric must be a number, but got {metric!r}") from None

    def end_epoch(self) -> None:
        """End an epoch with its evaluation, and begin the next unless the run is over."""
        self._end_epoch(self.epochs_done + len(self.history))
        stop = self._judge(self)
        if stop is None:
            self._begin_epoch()
        else:
            self.outcome = stop.outcome
            if stop.outcome is Outcome.STOPPED:
                logger.info("stopping early: %s", stop.reason)

    def finish(self) -> None:
        """Finish the run; if it is not over, its outcome is `LEFT`. May be called twice."""
        if self._finished:
            return
        self._finished = True
        self.outcome = self.outcome or Outcome.LEFT
        self._in_epoch = False
        for meter in self._meters.values():
            meter.end()
        self.optimizer.close()
        logger.info(
            "%s after %d epochs; %s", self.outcome.words, len(self.history), self._cost_text()
        )

    def own_stop(self, *, by_cost: bool = True) -> Stop | None:
        """Decide by the run's own target, epochs and threshold; `None` to continue.

        Args:
            by_cost: Whether the threshold counts.
        """
        metrics = [record.metric for record in self.history if record.metric is not None]
        return must_stop(
            converged=self.target is not None and self.target.held_by(metrics),
            epochs=self.epochs_done + len(self.history),
            max_epochs=self.max_epochs,
            spent=self.cost,
            epoch_cost=self.predicted_cost(),
            threshold=self.cost_threshold if by_cost else None,
        )

    def share(self, value: Any) -> list[Any]:
        """Return the objects of all processes of the job, by rank; all must call it.

        A single process, or one that has lost the others, gets only its own.
        """
        return self._guarded(lambda: self._ranks.share(value), [value])

    # --- cost -------------------------------------------------------------------------------

    @property
    def cost(self) -> float | None:
        """Weighted cost of the epochs so far, in joules; `None` if unknown."""
        costs = [record.cost for record in self.history]
        return None if None in costs else math.fsum(cost for cost in costs if cost is not None)

    @property
    def reached_target(self) -> bool:
        """Whether the target was reached."""
        return self.outcome is Outcome.CONVERGED

    def predicted_cost(self) -> float | None:
        """Return the expected cost of the next epoch, in joules; `None` if unknown."""
        if not self.history:
            return None
        last = self.history[-1]
        step = self.optimizer.expected_step
        if step is None or self.optimizer.profiling_steps == self._profiling_before:
            return last.cost
        if last.total.energy is None or last.train.energy is None:
            return None
        # The last epoch was spent on profiling: replace its training by the chosen setting's.
        return self._cost_of(
            last.total.time - last.train.time + last.steps * step.time,
            last.total.energy - last.train.energy + last.steps * step.energy,
        )

    @property
    def unfinished(self) -> Share:
        """Time and energy of this process since the last completed epoch."""
        if not self._begun:
            return Share()
        return together([since(self._meters["total"].total(), self._before["total"])])

    def _cost_of(self, time: float, energy: float | None) -> float | None:
        if energy is None or self._max_power is None:
            return None
        return zeus_cost(energy, time, self._max_power, self.eta_knob)

    def _cost_text(self) -> str:
        cost = self.cost
        return "its cost is unknown" if cost is None else f"its cost is {cost:.4g} J"

    # --- internal ---------------------------------------------------------------------------

    def _check_unused(self) -> None:
        if self._begun:
            raise RunError("the epochs of a run can be iterated only once")

    def _meet(self) -> None:
        """Find the other processes, and the maximum power of all GPUs."""
        self._ranks = self._guarded(self._rendezvous.join, self._ranks)
        mine: dict[str, float] = {}
        trouble = "" if self.monitor.gpus else "there is no GPU to measure"
        for gpu in self.monitor.gpus:
            try:
                mine[job_wide(gpu.key)] = gpu.power_limits().maximum
            except CapabilityError as error:
                trouble = str(error)
        answers = self.share((trouble, mine))
        trouble = next((reason for reason, _ in answers if reason), "")
        if trouble:
            logger.warning("the cost of the run is unknown, so it cannot stop the run: %s", trouble)
        else:
            powers = merged(powers for _, powers in answers)
            self._max_power = math.fsum(powers.values())

    def _begin_epoch(self) -> None:
        self._in_epoch = True
        self._steps, self._metric = 0, None
        self._profiling_before = self.optimizer.profiling_steps
        self._before = {part: meter.total() for part, meter in self._meters.items()}
        self._meters["total"].begin()

    def _end_epoch(self, number: int) -> None:
        self._in_epoch = False
        self._meters["total"].end()
        mine = {
            part: since(meter.total(), self._before[part]) for part, meter in self._meters.items()
        }
        answers = self.share((self._metric, mine))
        job = {part: together([shares[part] for _, shares in answers]) for part in mine}
        metric = answers[0][0]  # the first process's counts, so that all decide the same
        if metric is None and self.target is not None:
            logger.warning("no metric was reported in epoch %d, so the target is unchecked", number)
        self.history.append(
            EpochRecord(
                number,
                self._steps,
                job["train"],
                job["evaluation"],
                job["total"],
                metric,
                self._cost_of(job["total"].time, job["total"].energy),
            )
        )

    def _guarded(self, exchange: Callable[[], T], otherwise: T) -> T:
        try:
            return exchange()
        except RanksError as error:
            self._ranks = Ranks()
            logger.warning("from here on only this process is counted: %s", error)
            return otherwise


def together(measurements: Sequence[Measurement]) -> Share:
    """Return time and energy of the same part of a run in all processes of the job.

    Args:
        measurements: Of each process.
    """
    whole = Measurement.combined(measurements)
    # A process without a known GPU makes the sum unknown, as one of the job's GPUs is missing.
    known = all(gpu_energy(each) is not None for each in measurements)
    return Share(whole.time, gpu_energy(whole) if known else None)
