"""Applies a policy to the log of a job: makes the next decision, and says when a trial must stop.

A brain is a fold over the events of one job. Folding the same log again gives the same decisions,
in any process. A snapshot saves folding; it is valid only for the same version of the code, which
its fingerprint identifies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from zeus.errors import JobLogError
from zeus.optimizer._stopping import Outcome, Stop, exceeds, must_stop
from zeus.optimizer.batch_size.job._alike import EpochFigures, alike
from zeus.optimizer.batch_size.job._attempts import PATIENT_NIGHTS
from zeus.optimizer.batch_size.job._choice import Choice
from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    Event,
    GpuModel,
    Profiled,
    Resumed,
    SizeMeasured,
)
from zeus.optimizer.batch_size.job._job_batch import (
    ALL,
    OPTIMIZED,
    UNTOUCHED,
    Choices,
    JobBatch,
    Role,
    Trials,
)
from zeus.optimizer.batch_size.job._log import JobLog, Trial
from zeus.optimizer.batch_size.job._share import can_share, local_size, nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._trouble import Recent
from zeus.optimizer.batch_size.policies._base import ArmStatus, FirstEpochs
from zeus.optimizer.batch_size.policies._measured_sizes import (
    KnownSize,
    MeasuredSizes,
    full_power_cost,
)
from zeus.optimizer.batch_size.policies._memory import GpuMemory, MemoryEvidence
from zeus.optimizer.batch_size.policies._policy_state import PolicyState, arrays
from zeus.optimizer.batch_size.policies._questions import Question, answered, finite
from zeus.optimizer.batch_size.policies._registry import policy_named


class Setup(NamedTuple):
    """How a run uses its GPUs, as far as is known; the attributes are those of `Decided`."""

    replicas: int | None = None
    memory: int | None = None
    max_local_batch_size: int | None = None


_UNKNOWN = Setup()
# GPUs, attempt and setup of a decision.
Asked = tuple[GpuModel, int, Setup]


@dataclass(frozen=True)
class Expected:
    """Expected cost of a batch size on one GPU configuration.

    Attributes:
        batch_size: The batch size.
        standing: How well it is known.
        cost: Expected cost in joules until the target is reached; `None` if unknown.
        low: Lower end of its 95 % interval; `high` is the upper end. `None` if unknown.
        measured: Whether the cost of an epoch is known only from steps that were measured.
    """

    batch_size: int
    standing: ArmStatus
    cost: float | None
    low: float | None
    high: float | None
    measured: bool = False


class JobState:
    """The state of one job.

    Attributes:
        spec: The job.
        gpus: GPU configurations of its trials, in the order of their first appearance.
        log: State of the trials.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.log = JobLog(spec)
        self.gpus: list[GpuModel] = []
        self._replicas: list[int] = []  # of the first trial on each
        self._setups: list[Setup] = []  # of the latest trial on each
        self._memory = MemoryEvidence()
        self._policy = policy_named(spec.policy)
        self._lanes = JobBatch.of([spec])
        # By GPU and arm: cost of an epoch in joules, and its load.
        self._epoch_costs: dict[tuple[int, int], float] = {}
        self._loads: dict[tuple[int, int], float] = {}
        # By GPU and arm: what an epoch of the latest trial took.
        self._figures: dict[tuple[int, int], EpochFigures] = {}
        # Cost of an epoch at the highest power limit, as a multiple of that.
        self._full_power: dict[tuple[int, int], float] = {}
        self._measured = MeasuredSizes()
        # One for all GPUs if the policy transfers knowledge between them, else one for each.
        self._states: list[PolicyState] = []
        # Decisions since the latest event, by what was asked.
        self._foreseen: dict[Asked, Choice] = {}

    @classmethod
    def of(cls, spec: JobSpec, events: Iterable[Event]) -> JobState:
        """Fold a whole log.

        Args:
            spec: Specification of the job.
            events: Its events, in their order.
        """
        brain = cls(spec)
        for event in events:
            brain.apply(event)
        return brain

    def apply(self, event: Event) -> Trial | None:
        """Apply an event; return its trial.

        Raises:
            JobLogError: If the event cannot come next; nothing is changed.
        """
        trial = self.log.append(event)
        self._foreseen.clear()
        if isinstance(event, Decided):
            self._meet(event.model, event.replicas or 1)
            setup = Setup(event.replicas, event.memory, event.max_local_batch_size)
            self._setups[self.gpus.index(event.model)] = setup
        if isinstance(event, Profiled):
            self._meet(event.model)
            at = self.gpus.index(event.model), self._arm(event.batch_size)
            new = at not in self._epoch_costs
            if event.load is not None:
                self._loads[at] = event.load
            full = full_power_cost(self.spec, event)
            if full is not None:
                self._full_power[at] = full
            if event.epoch_cost:  # a cost of zero carries no information
                self._epoch_costs[at] = event.epoch_cost
                if new:
                    self._note(event.model, event.batch_size, event.epoch_cost, None)
                    self._note_measured(event.model)
        elif isinstance(event, SizeMeasured):
            self._add_measured(event)
        elif trial is not None:
            if isinstance(event, Decided):
                trial.known = self._recorded_cost(trial) is not None
            if isinstance(event, Decided | Resumed):
                state = self._state(trial.decided.model).current
                self._policy.decided(state, ALL, self._choices(trial))
            if isinstance(event, EpochReported) and trial.epochs == 1:
                self._memory.note_epoch(trial.decided)
                if not trial.known:
                    cost, decided = self.epoch_cost(trial), trial.decided
                    self._note(decided.model, decided.batch_size, cost, trial.load)
            if isinstance(event, Ended):
                self._ended(trial, event)
        return trial

    def decide(
        self, gpu: GpuModel, attempt: int = 0, *, default: bool = False, setup: Setup = _UNKNOWN
    ) -> Choice:
        """Choose the configuration of the next trial.

        Args:
            gpu: GPUs that it will run on.
            attempt: 0 for a new recurrence, more for a retry within one.
            default: Always use the default batch size, as for a run that could not ask. Grid
                search, to which every power limit is another trial, decides as usual.
            setup: How it will use them. Its replicas must be able to share the batch.

        Raises:
            RunError: If no batch size of the job can be shared equally.
        """
        spec, replicas = self.spec, setup.replicas or 1
        if default and spec.policy != "grid":
            size = nearest_shared(spec.default_batch_size, spec.batch_sizes, replicas)
            self._meet(gpu, replicas)
            power = OPTIMIZED if spec.optimizes_power else UNTOUCHED
            return Choice(batch_size=size, role=Role.DEFAULT, power=power)
        if (gpu, attempt, setup) not in self._foreseen:
            decide_ahead([(self, (gpu, attempt, setup))])
        return self._foreseen[gpu, attempt, setup]

    def _question(self, gpu: GpuModel, attempt: int, setup: Setup) -> Question:
        spec, replicas = self.spec, setup.replicas or 1
        nearest_shared(spec.default_batch_size, spec.batch_sizes, replicas)
        self._meet(gpu, replicas)
        sizes = self._allowed_sizes(gpu, setup)
        index = self.gpus.index(gpu) if self._policy.crosses_gpus else 0
        state = self._state(gpu).current
        every = len(sizes) == len(spec.batch_sizes)
        lanes = state.lanes if every else self._restricted_lanes(sizes)
        state = self._policy.prepared(state, lanes, np.array([index]))
        return Question(
            spec=spec,
            policy=self._policy,
            state=state,
            gpu=index,
            attempt=attempt,
            tried=self._tried(attempt),
            sizes=sizes,
            replicas=replicas,
        )

    def next(self, gpu: GpuModel) -> Choice:
        """Return the decision for a new recurrence on GPUs that are used as the latest time.

        Args:
            gpu: GPUs that it will run on.
        """
        setup = self._setups[self.gpus.index(gpu)] if gpu in self.gpus else _UNKNOWN
        return self.decide(gpu, setup=setup)

    @property
    def trouble(self) -> str:
        """Why the job needs a person, in words; empty if it does not."""
        running = {trial.decided.recurrence for trial in self.log.open.values()}
        return self.log.recent.trouble(running)

    def may_begin(self, gpu: GpuModel, choice: Choice) -> bool:
        """Whether the first epoch of a trial fits its cost threshold, as far as is known.

        Args:
            gpu: GPUs of the trial.
            choice: The decision to carry out.
        """
        at = self.gpus.index(gpu), self._arm(choice.batch_size)
        known = self._epoch_costs.get(at)
        return known is None or not exceeds(known, choice.threshold)

    def beliefs(self, gpu: GpuModel) -> list[Expected]:
        """Return expectations for every batch size on these GPUs; unknown if it never ran there.

        Args:
            gpu: GPUs to ask about.
        """
        if gpu not in self.gpus:
            return [Expected(b, ArmStatus.UNKNOWN, None, None, None) for b in self.spec.batch_sizes]
        index = np.array([self.gpus.index(gpu) if self._policy.crosses_gpus else 0])
        found = self._policy.beliefs(self._state(gpu).current, ALL, index)
        rows = zip(found.standing[0], found.cost[0], found.low[0], found.high[0], strict=True)
        setup = self._setups[self.gpus.index(gpu)]
        return [
            Expected(
                size,
                ArmStatus.UNFIT if self._too_large(gpu, size, setup) else ArmStatus(int(standing)),
                finite(float(cost)),
                finite(float(low)),
                finite(float(high)),
                self._only_measured(gpu, size),
            )
            for size, (standing, cost, low, high) in zip(self.spec.batch_sizes, rows, strict=True)
        ]

    def sizes(self, gpu: GpuModel, setup: Setup = _UNKNOWN) -> list[KnownSize]:
        """Return what is known of an epoch of every batch size on GPUs.

        Args:
            gpu: GPUs to ask about.
            setup: How they will be used.
        """
        here = self.gpus.index(gpu) if gpu in self.gpus else -1
        unfit = {size for size in self.spec.batch_sizes if self._too_large(gpu, size, setup)}
        return self._measured.known(
            self.spec,
            here,
            self._epoch_costs,
            self._full_power,
            unfit=unfit,
            replicas=setup.replicas or 1,
            useful=self._policy.measures_sizes,
        )

    @property
    def policy_states(self) -> Sequence[PolicyState]:
        """States of the policy, to be updated together with those of other jobs."""
        return self._states

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        held = sum(array.nbytes for each in self._states for array in arrays(each.state))
        return 4096 + 2 * held + 1024 * (len(self.log.open) + len(self.log.over))

    def must_stop(self, number: int) -> Stop | None:
        """Decide before its next epoch whether a running trial is over.

        Args:
            number: Number of the trial.

        Raises:
            JobLogError: If the trial does not run.
        """
        trial = self.log.running(number)
        spec, decided = self.spec, trial.decided
        stop = must_stop(
            converged=trial.streak >= spec.patience,
            epochs=trial.epochs,
            max_epochs=spec.max_epochs,
            spent=trial.cost,
            epoch_cost=self.epoch_cost(trial),
            threshold=decided.threshold,
            known=trial.known,
            expected_epochs=decided.expected_epochs,
            restart_cost=decided.restart_cost,
        )
        return None if stop is None else replace(stop, outcome=stop.outcome.of_trial)

    def warning(self, number: int) -> str:
        """Return a warning if the program of a running trial seems to ignore its batch size.

        Args:
            number: Number of the trial.

        Raises:
            JobLogError: If the trial does not run.
        """
        trial = self.log.running(number)
        decided, sizes = trial.decided, self.spec.batch_sizes
        if trial.latest is None:
            return ""
        here = self.gpus.index(decided.model)
        others = {sizes[arm]: each for (gpu, arm), each in self._figures.items() if gpu == here}
        others.pop(decided.batch_size, None)
        return alike(decided.batch_size, trial.latest, others)

    def epoch_cost(self, trial: Trial) -> float | None:
        """Expected cost of a trial's next epoch in joules; `None` if nothing is known."""
        if trial.settled_cost is not None:
            return trial.settled_cost
        recorded = self._recorded_cost(trial)
        return trial.first_cost if recorded is None else recorded

    # --- the policy's view ----------------------------------------------------------------------

    def _meet(self, gpu: GpuModel, replicas: int = 1) -> None:
        if gpu in self.gpus:
            return
        self.gpus.append(gpu)
        self._replicas.append(replicas)
        self._setups.append(_UNKNOWN)
        if self._states and self._policy.crosses_gpus:
            self._policy.add_gpu(self._states[0].current)
        else:
            lanes = self._lanes
            if not self._policy.crosses_gpus:
                sizes = [size for size in self.spec.batch_sizes if can_share(size, replicas)]
                lanes = self._restricted_lanes(sizes)
            self._states.append(PolicyState(self._policy, self._policy.begin(lanes)))

    def _allowed_sizes(self, gpu: GpuModel, setup: Setup) -> list[int]:
        """Return the batch sizes that replicas can share equally, and that fit in memory."""
        replicas = setup.replicas or 1
        shared = [size for size in self.spec.batch_sizes if can_share(size, replicas)]
        if not self._policy.avoids_unfit:
            return shared
        fitting = [size for size in shared if not self._too_large(gpu, size, setup)]
        return fitting or shared

    def _too_large(self, gpu: GpuModel, size: int, setup: Setup) -> bool:
        """Whether a batch size does not fit in the memory of GPUs, as far as is known."""
        if not self._memory.failed:
            return False
        local = local_size(size, setup.replicas or gpu.number, setup.max_local_batch_size)
        place = GpuMemory.of(gpu.name, gpu.number, setup.replicas, setup.memory)
        return self._memory.too_large(place, local)

    def _restricted_lanes(self, sizes: Sequence[int]) -> JobBatch:
        """Return the job restricted to some batch sizes, of which one stands for the default."""
        default = nearest_shared(self.spec.default_batch_size, sizes, 1)
        valid = np.array([[size in sizes for size in self.spec.batch_sizes]])
        return replace(self._lanes, valid=valid, default=np.array([self._arm(default)]))

    def _tried(self, attempt: int) -> int:
        """Return the attempts so far; if the target is out of reach, of all recurrences since."""
        recent = self.log.recent
        hopeless = recent.nights - (attempt > 0) >= PATIENT_NIGHTS
        return max(attempt, recent.misses) if hopeless else attempt

    def _state(self, gpu: GpuModel) -> PolicyState:
        return self._states[0 if self._policy.crosses_gpus else self.gpus.index(gpu)]

    def _arm(self, batch_size: int) -> int:
        return self.spec.batch_sizes.index(batch_size)

    def _recorded_cost(self, trial: Trial) -> float | None:
        decided = trial.decided
        at = self.gpus.index(decided.model), self._arm(decided.batch_size)
        return self._epoch_costs.get(at)

    def _choices(self, trial: Trial) -> Choices:
        decided = trial.decided
        return Choices(
            arm=np.array([self._arm(decided.batch_size)]),
            role=np.array([int(trial.role)]),
            power=np.array([decided.power]),
            threshold=np.array([_or(decided.threshold, math.inf)]),
            expected_epochs=np.array([_or(decided.expected_epochs, math.nan)]),
            restart_cost=np.array([_or(decided.restart_cost, math.inf)]),
        )

    def _note(
        self, model: GpuModel, batch_size: int, epoch_cost: float | None, load: float | None
    ) -> None:
        """Pass the epoch cost of a new batch size to the policy, before a trial of it ends."""
        gpu, arm = self.gpus.index(model), self._arm(batch_size)
        notes = FirstEpochs(
            arm=np.array([arm]),
            gpu=np.array([gpu if self._policy.crosses_gpus else 0]),
            epoch_cost=np.array([epoch_cost or math.nan]),
            load=np.array([self._loads.get((gpu, arm), _or(load, math.nan))]),
        )
        self._state(model).updates.append(notes)

    def _add_measured(self, event: SizeMeasured) -> None:
        """Add steps that were measured, or a batch size that did not fit in memory."""
        self._meet(event.model, event.replicas or 1)
        gpu, arm = self.gpus.index(event.model), self._arm(event.batch_size)
        if self._setups[gpu] == _UNKNOWN:
            self._setups[gpu] = Setup(event.replicas, event.memory, event.max_local_batch_size)
        if event.epoch_cost is None:
            self._memory.note_failure(event)
            return
        self._memory.note_steps(event)
        self._measured.costs[gpu, arm] = event.epoch_cost
        if event.load is not None:
            self._loads.setdefault((gpu, arm), event.load)
        self._note_measured(event.model, None if (gpu, arm) in self._epoch_costs else arm)

    def _note_measured(self, model: GpuModel, only: int | None = None) -> None:
        """Pass on what epochs are expected to cost where only steps were measured."""
        gpu = self.gpus.index(model)
        found = self._measured.expected(gpu, self._epoch_costs, self._full_power)
        for arm, cost in found.items():
            if only in (None, arm):
                self._note(model, self.spec.batch_sizes[arm], cost, None)

    def _only_measured(self, gpu: GpuModel, size: int) -> bool:
        at = self.gpus.index(gpu), self._arm(size)
        return at in self._measured.costs and at not in self._epoch_costs

    def _ended(self, trial: Trial, event: Ended) -> None:
        decided = trial.decided
        gpu, arm = self.gpus.index(decided.model), self._arm(decided.batch_size)
        epoch_cost = self.epoch_cost(trial) if trial.epochs else None
        new = bool(epoch_cost) and (gpu, arm) not in self._epoch_costs
        if epoch_cost:
            self._epoch_costs[gpu, arm] = epoch_cost
        if trial.load is not None:
            self._loads[gpu, arm] = trial.load
        if trial.latest is not None:
            self._figures[gpu, arm] = trial.latest
        void = event.outcome in (Outcome.EXPIRED, Outcome.CANCELLED)
        unfit = event.outcome == Outcome.FAILED and trial.epochs == 0
        # Where memory was too small, the size of the share counts, which may be another later.
        unfit = unfit and not (self._memory.note_failure(decided) and self._policy.avoids_unfit)
        trials = Trials(
            arm=np.array([arm]),
            role=np.array([int(trial.role)]),
            power=np.array([decided.power]),
            gpu=np.array([gpu if self._policy.crosses_gpus else 0]),
            converged=np.array([event.outcome == Outcome.CONVERGED]),
            void=np.array([void]),
            unfit=np.array([unfit]),
            epochs=np.array([float(trial.epochs)]),
            cost=np.array([trial.cost]),
            epoch_cost=np.array([epoch_cost or math.nan]),
            load=np.array([self._loads.get((gpu, arm), math.nan)]),
            full_cost=np.array([(epoch_cost or math.nan) * self._full_power.get((gpu, arm), 1.0)]),
        )
        self._state(decided.model).updates.append(trials)
        if new:
            self._note_measured(decided.model)

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Serialize the folded state, to be restored by the same version of the code."""
        held = [array for each in self._states for array in arrays(each.current)]
        header = {
            "gpus": self.gpus,
            "replicas": self._replicas,
            "setups": self._setups,
            "memory": self._memory.to_lists(),
            "costs": [[*at, cost] for at, cost in self._epoch_costs.items()],
            "loads": [[*at, load] for at, load in self._loads.items()],
            "figures": [[*at, *each] for at, each in self._figures.items()],
            "full": [[*at, ratio] for at, ratio in self._full_power.items()],
            "measured": [[*at, cost] for at, cost in self._measured.costs.items()],
            "trials": self.log.trials,
            "recurrences": self.log.recurrences,
            "recent": dict(vars(self.log.recent)),
            "open": [trial.to_dict() for trial in self.log.open.values()],
            "over": [trial.to_dict() for trial in self.log.over.values()],
        }
        # JSON without line breaks, then the arrays, whose shapes follow from the header.
        text = json.dumps(header, separators=(",", ":")).encode()
        return b"\n".join((text, b"".join(array.tobytes() for array in held)))

    @classmethod
    def restored(cls, spec: JobSpec, snapshot: bytes) -> JobState:
        """Inverse of `snapshot`.

        Args:
            spec: Specification of the job.
            snapshot: As returned by `snapshot`.

        Raises:
            JobLogError: If it is not a snapshot of this job.
        """
        text, _, data = snapshot.partition(b"\n")
        try:
            header = json.loads(text)
            brain = cls(spec)
            for gpu, replicas in zip(header["gpus"], header["replicas"], strict=True):
                brain._meet(GpuModel(*gpu), replicas)
            brain._setups = [Setup(*setup) for setup in header["setups"]]
            brain._memory = MemoryEvidence.from_lists(header["memory"])
            brain._epoch_costs = {(gpu, arm): cost for gpu, arm, cost in header["costs"]}
            brain._loads = {(gpu, arm): load for gpu, arm, load in header["loads"]}
            brain._figures = {
                (gpu, arm): EpochFigures(*each) for gpu, arm, *each in header["figures"]
            }
            brain._full_power = {(gpu, arm): ratio for gpu, arm, ratio in header["full"]}
            costs = {(gpu, arm): cost for gpu, arm, cost in header["measured"]}
            brain._measured = MeasuredSizes(costs)
            log = brain.log
            log.trials, log.recurrences = header["trials"], header["recurrences"]
            log.recent = Recent(**header["recent"])
            for kept, records in ((log.open, header["open"]), (log.over, header["over"])):
                for trial in map(Trial.from_dict, records):
                    kept[trial.decided.trial] = trial
        except (ValueError, KeyError, TypeError) as error:
            raise JobLogError(f"not a snapshot of job {spec.name!r}: {error!r}") from error
        offset = 0
        held = [array for each in brain._states for array in arrays(each.state)]
        if sum(array.nbytes for array in held) != len(data):
            raise JobLogError(f"a snapshot of job {spec.name!r} has the wrong size")
        for array in held:
            part = np.frombuffer(data, array.dtype, array.size, offset)
            array[...] = part.reshape(array.shape)
            offset += array.nbytes
        return brain


def decide_ahead(asked: Sequence[tuple[JobState, Asked]]) -> None:
    """Make the next decisions of many jobs at once.

    Each of them holds until the next event of its job; `JobState.decide` returns it.

    Args:
        asked: The jobs, each with arguments of `JobState.decide`.

    Raises:
        RunError: If replicas cannot share any batch size of their job equally.
    """
    questions = [brain._question(*arguments) for brain, arguments in asked]
    for (brain, arguments), choice in zip(asked, answered(questions), strict=True):
        brain._foreseen[arguments] = choice


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
