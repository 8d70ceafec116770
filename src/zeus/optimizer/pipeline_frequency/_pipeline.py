"""One training iteration as a graph of operations, with devices, options and dependencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency._profile import MAX_JOULES, MAX_SECONDS, MIN_SECONDS, Option

MAX_COUNT = 1_000_000  # each of devices, GPUs and pipelines
MAX_WATTS = 1e21


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an iteration.

    Attributes:
        instruction: Its kind: "forward", "backward", "communication".
        options: Ways to run it; a single one if there is nothing to choose.
        device: Index of the pipeline rank whose GPUs run it; `None` if no GPU is busy with it.
        stage: Index of its model stage, if any.
        microbatch: Index of its microbatch, if any.
        after: Numbers of the operations that must have ended, the previous one on its device
            included.
    """

    instruction: str
    options: tuple[Option, ...]
    device: int | None
    stage: int | None
    microbatch: int | None
    after: tuple[int, ...]

    def __str__(self) -> str:
        parts = [self.instruction]
        parts += [] if self.stage is None else [f"stage {self.stage}"]
        parts += [] if self.microbatch is None else [f"microbatch {self.microbatch}"]
        return " ".join(parts)

    @property
    def fastest_clock(self) -> Option:
        """The option with the highest frequency; of several with other labels, the fastest."""
        return max(self.options, key=lambda option: (option.frequency or 0.0, -option.time))


class Pipeline:
    """A graph of operations, built from its beginning to its end.

    Operations of one device run one after the other, in the order in which they are added. Other
    dependencies of an operation are given as `after`, and must have been added before, so that the
    graph is acyclic. Once plans have been made for it, a pipeline cannot be changed any more.

    Every operation runs on all `tensor_parallel` GPUs of its device at the same time, each with the
    time and energy of its option. All `data_parallel` pipelines do the same. A GPU that runs
    nothing waits, and draws `blocking_power` until the whole iteration is over.

    Args:
        devices: Number of pipeline ranks.
        blocking_power: Watts of a GPU that waits, 0 or more.
        tensor_parallel: Number of GPUs per rank.
        data_parallel: Number of pipelines.
        name: Name of the model, for messages and pictures.

    Raises:
        PipelineError: If a value is out of range.
    """

    def __init__(
        self,
        devices: int,
        blocking_power: float,
        *,
        tensor_parallel: int = 1,
        data_parallel: int = 1,
        name: str = "a pipeline",
    ) -> None:
        counts = {
            "devices": devices,
            "tensor_parallel": tensor_parallel,
            "data_parallel": data_parallel,
        }
        for label, count in counts.items():
            counted(label, count, MAX_COUNT)
        self.devices = devices
        self.blocking_power = bounded("blocking_power", blocking_power, MAX_WATTS)
        self.tensor_parallel = tensor_parallel
        self.data_parallel = data_parallel
        self.name = name
        self._operations: list[Operation] = []
        self._last: dict[int, int] = {}
        self._checked: dict[int, tuple[Option, ...]] = {}
        self._complete = False

    @property
    def operations(self) -> Sequence[Operation]:
        """All operations of one pipeline, in topological order."""
        return self._operations

    @property
    def gpus(self) -> int:
        """Number of GPUs of one pipeline."""
        return self.devices * self.tensor_parallel

    def add(
        self,
        instruction: str,
        options: Iterable[Option],
        *,
        device: int | None = None,
        stage: int | None = None,
        microbatch: int | None = None,
        after: Iterable[int] = (),
    ) -> int:
        """Add an operation whose clock is to be chosen.

        Args:
            instruction: Its kind.
            options: Ways to run it, at least one.
            device: Rank whose GPUs run it, after all operations already added for that rank; `None`
                if it runs elsewhere, and its energy counts once.
            stage: Index of its model stage.
            microbatch: Index of its microbatch.
            after: Numbers of operations that must have ended.

        Returns:
            Number of the operation.

        Raises:
            PipelineError: If a value is invalid.
        """
        given = tuple(options)
        if self._complete:
            raise PipelineError(
                f"plans have been made for {self.name}, so nothing can be added; build a new one"
            )
        if not given:
            raise PipelineError(f"{instruction!r} needs at least one option, but got none")
        if id(given) not in self._checked:
            _check(instruction, given)
            # Thousands of operations share a tuple; keeping it makes its id safe as a key.
            self._checked[id(given)] = given
        if device is not None and device not in range(self.devices):
            raise PipelineError(
                f"`0 <= device < {self.devices}` must hold, but got device={device!r}"
            )
        waits_for = dict.fromkeys(after)
        if device in self._last:
            waits_for[self._last[device]] = None
        number = len(self._operations)
        for other in waits_for:
            if other not in range(number):
                raise PipelineError(
                    f"{instruction!r} must wait for operations that were added before it "
                    f"(numbers below {number}), but got after={other!r}"
                )
        self._operations.append(
            Operation(instruction, given, device, stage, microbatch, tuple(waits_for))
        )
        if device is not None:
            self._last[device] = number
        return number

    def add_fixed(
        self,
        instruction: str,
        time: float,
        *,
        energy: float | None = None,
        device: int | None = None,
        stage: int | None = None,
        microbatch: int | None = None,
        after: Iterable[int] = (),
    ) -> int:
        """Add an operation of fixed time: communication, data loading.

        Args:
            instruction: Its kind.
            time: Seconds.
            energy: Joules of each GPU of the device; by default the energy of waiting as long, or
                0 if it has no device.
            device: As for `add`; a device does nothing else meanwhile.
            stage: Index of its model stage.
            microbatch: Index of its microbatch.
            after: Numbers of operations that must have ended.

        Returns:
            Number of the operation.

        Raises:
            PipelineError: If a value is invalid.
        """
        if energy is None:
            energy = 0.0 if device is None else self.blocking_power * time
        return self.add(
            instruction,
            [Option(None, bounded("time", time, MAX_SECONDS), energy)],
            device=device,
            stage=stage,
            microbatch=microbatch,
            after=after,
        )

    def with_options(self, options_of: Callable[[Operation], Iterable[Option]]) -> Pipeline:
        """Return a pipeline of the same operations with other options.

        Args:
            options_of: Returns the options of an operation, from those that it has and from
                whether it has a device. Called once for all operations that share them.

        Raises:
            PipelineError: If an operation has no option then, or an invalid one.
        """
        other = Pipeline(
            self.devices,
            self.blocking_power,
            tensor_parallel=self.tensor_parallel,
            data_parallel=self.data_parallel,
            name=self.name,
        )
        found: dict[tuple[int, bool], tuple[Option, ...]] = {}
        for operation in self._operations:
            shared = id(operation.options), operation.device is None
            if shared not in found:
                found[shared] = tuple(options_of(operation))
            other.add(
                operation.instruction,
                found[shared],
                device=operation.device,
                stage=operation.stage,
                microbatch=operation.microbatch,
                after=operation.after,
            )
        return other

    def gpus_of(self, operation: Operation) -> int:
        """Return the number of GPUs of one pipeline that are busy with an operation."""
        return 0 if operation.device is None else self.tensor_parallel

    def energy_of(self, operation: Operation, option: Option) -> float:
        """Return the joules of an operation with an option, over all GPUs of one pipeline."""
        return option.energy * max(self.gpus_of(operation), 1)

    def at_highest_frequency(self) -> Execution:
        """Return the execution without a plan: every operation at its highest measured clock."""
        fastest: dict[int, Option] = {}  # operations of a kind share their options
        for operation in self._operations:
            if id(operation.options) not in fastest:
                fastest[id(operation.options)] = operation.fastest_clock
        return self.execute([fastest[id(operation.options)] for operation in self._operations])

    def execute(
        self, options: Sequence[Option], not_before: Sequence[float] | None = None
    ) -> Execution:
        """Return the execution of the iteration with the given option of every operation.

        Args:
            options: Options, in the order of the operations.
            not_before: Seconds from the beginning of the iteration before which each operation
                must not start. By default each starts when those that it waits for have ended.

        Raises:
            PipelineError: If there is not exactly one option, or one such time, for each.
        """
        if not_before is None:
            not_before = [0.0] * len(self._operations)
        for what, given in (("option", options), ("`not_before`", not_before)):
            if len(given) != len(self._operations):
                raise PipelineError(
                    f"each of the {len(self._operations)} operations needs one {what}, "
                    f"but got {len(given)}"
                )
        starts: list[float] = []
        ends: list[float] = []
        for operation, option, earliest in zip(self._operations, options, not_before, strict=True):
            start = max((ends[other] for other in operation.after), default=0.0)
            start = max(start, earliest)
            starts.append(start)
            ends.append(start + option.time)
        pairs = list(zip(self._operations, options, strict=True))
        time = max(ends, default=0.0)
        busy = math.fsum(self.gpus_of(operation) * option.time for operation, option in pairs)
        return Execution(
            self,
            tuple(options),
            tuple(starts),
            time,
            self.data_parallel * math.fsum(self.energy_of(*pair) for pair in pairs),
            self.data_parallel * self.blocking_power * (self.gpus * time - busy),
        )

    def completed(self) -> Pipeline:
        """Freeze the pipeline, and return it.

        Raises:
            PipelineError: If it has no operations, or takes no time.
        """
        if not self._operations:
            raise PipelineError(f"{self.name} has no operations, so there is nothing to plan")
        if not any(option.time for op in self._operations for option in op.options):
            raise PipelineError(f"{self.name} takes no time, so there is nothing to plan")
        self._complete = True
        return self


@dataclass(frozen=True, slots=True)
class Execution:
    """The simulated execution of an iteration.

    Attributes:
        pipeline: The pipeline executed.
        options: Option of each operation.
        starts: Start of each operation, in seconds from the beginning of the iteration.
        time: Seconds until all have ended.
        computation_energy: Joules of the operations, over all pipelines.
        waiting_energy: Joules of waiting GPUs, over all pipelines.
    """

    pipeline: Pipeline
    options: tuple[Option, ...]
    starts: tuple[float, ...]
    time: float
    computation_energy: float
    waiting_energy: float

    @property
    def energy(self) -> float:
        """Total joules, over all pipelines."""
        return self.computation_energy + self.waiting_energy

    def lasting(self, time: float) -> Execution:
        """Return the execution if the iteration ends later, because another pipeline is slower.

        Args:
            time: Seconds of the iteration; no effect if this pipeline is the slowest.
        """
        pipeline = self.pipeline
        longer = max(time - self.time, 0.0) * pipeline.gpus * pipeline.data_parallel
        return replace(
            self,
            time=max(time, self.time),
            waiting_energy=self.waiting_energy + pipeline.blocking_power * longer,
        )


def counted(name: str, value: object, most: int | None = None) -> int:
    """Return the value; raise `PipelineError` if it is not an integer from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PipelineError(f"`{name}` must be a whole number, 1 or more, but got {name}={value!r}")
    if most is not None and value > most:
        raise PipelineError(f"`{name} <= {most}` must hold, but got {name}={value}")
    return value


def _check(instruction: str, options: Iterable[Option]) -> None:
    for option in options:
        rule = ""
        if not 0 <= option.time <= MAX_SECONDS:
            rule = f"time <= {MAX_SECONDS:g}" if option.time > 0 else "time >= 0"
        elif 0 < option.time < MIN_SECONDS:  # near 0 s, its power would be unbounded
            rule = f"time >= {MIN_SECONDS:g}"
        elif not 0 <= option.energy <= MAX_JOULES:
            rule = f"energy <= {MAX_JOULES:g}" if option.energy > 0 else "energy >= 0"
        if rule:
            raise PipelineError(f"`{rule}` must hold for {instruction!r}, but got {option}")


def bounded(name: str, value: object, most: float) -> float:
    """Return the value; raise `PipelineError` if it is not a number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PipelineError(f"`{name}` must be a number, but got {name}={value!r}")
    if not 0 <= value <= most:
        rule = f"{name} <= {most:g}" if value > 0 else f"{name} >= 0"
        raise PipelineError(f"`{rule}` must hold, but got {name}={value!r}")
    return float(value)
