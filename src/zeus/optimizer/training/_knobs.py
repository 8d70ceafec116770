"""The GPU knobs that can be swept, and the ladder of settings that a job's GPUs share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from zeus._rules import is_number
from zeus.device import Gpu
from zeus.device._guarded_gpu import GuardedGpu
from zeus.device._hold import Hold
from zeus.errors import KnobError


@dataclass(frozen=True)
class Knob(ABC):
    """A setting of a GPU that trades time for energy: the lower, the slower.

    Attributes:
        stride: Distance between settings to try.
        name: Name of the knob in profiles, and of the argument of `Gpu.hold`.
        unit: Unit of settings.
        bounds_power: Whether settings are limits of a GPU's power, in watts.
    """

    stride: float
    name: ClassVar[str]
    unit: ClassVar[str]
    bounds_power: ClassVar[bool]

    @abstractmethod
    def ladder(self, gpu: Gpu) -> tuple[float, ...]:
        """Return the settings to try on this GPU, from the highest down."""

    @abstractmethod
    def present(self, gpu: Gpu) -> float:
        """Return the setting in force."""

    def hold(self, gpu: Gpu, setting: float) -> Hold:
        """Return a hold, not yet acquired, that sets it."""
        return gpu.hold(**{self.name: self._held(gpu, setting)})

    def change(self, hold: Hold, setting: float) -> None:
        """Change the setting under the hold."""
        hold.change(**{self.name: self._held(hold.gpu, setting)})

    def _held(self, gpu: GuardedGpu, setting: float) -> Any:  # noqa: ARG002
        """Return the value to hold for a setting."""
        return setting


class PowerLimitKnob(Knob):
    """Power limits in watts, `stride` apart; the lowest is the last."""

    name = "power_limit"
    unit = "W"
    bounds_power = True

    def ladder(self, gpu: Gpu) -> tuple[float, ...]:
        """Return limits from the highest that this GPU accepts down to and including the lowest."""
        limits = gpu.power_limits()
        rungs = math.floor((limits.maximum - limits.minimum) / self.stride + 1e-9)
        ladder = [limits.maximum - rung * self.stride for rung in range(rungs + 1)]
        if ladder[-1] - limits.minimum > 1e-6:
            ladder.append(limits.minimum)
        return tuple(ladder)

    def present(self, gpu: Gpu) -> float:
        """Return the power limit in force, in watts."""
        return gpu.power_limit()


class ClockKnob(Knob):
    """Maximum graphics clocks in MHz, about `stride` apart; below them the GPU clocks freely."""

    name = "graphics_clock"
    unit = "MHz"
    bounds_power = False

    def ladder(self, gpu: Gpu) -> tuple[float, ...]:
        """Return supported clocks, each at least a stride below the previous one."""
        ladder: list[float] = []
        for clock in sorted(gpu.supported_clocks().graphics, reverse=True):
            if not ladder or ladder[-1] - clock >= self.stride:
                ladder.append(clock)
        if not ladder:
            raise KnobError(f"{gpu.name} reports no graphics clock that could be locked")
        return tuple(ladder)

    def present(self, gpu: Gpu) -> float:
        """Return the maximum of the clock lock in force, or the highest clock, in MHz."""
        lock = gpu.locked_graphics_clock()
        return max(gpu.supported_clocks().graphics) if lock is None else lock.maximum

    def _held(self, gpu: GuardedGpu, setting: float) -> tuple[int, int]:
        # Not one clock but all up to it: between kernels the GPU may save energy by clocking lower.
        return min(gpu.supported_clocks().graphics), round(setting)


@dataclass(frozen=True)
class GpuKnobInfo:
    """Data about one GPU that a process sends to the others.

    Attributes:
        model: Product name.
        ladder: Settings to try, from the highest down.
        present: The setting before the run.
        max_power: Watts of the highest power limit.
        ceiling: The highest setting that may be tried.
    """

    model: str
    ladder: tuple[float, ...]
    present: float
    max_power: float
    ceiling: float = math.inf

    @classmethod
    def of(cls, gpu: Gpu, knob: Knob, *, simulated: bool, raise_limit: bool = False) -> GpuKnobInfo:
        """Query a GPU.

        Args:
            gpu: The GPU.
            knob: The knob to query.
            simulated: Whether the GPU is simulated.
            raise_limit: Whether settings above the present one may be tried.

        Raises:
            CapabilityError: If the GPU cannot report its settings.
        """
        # Profiles of a simulated GPU must never be used for a real one.
        model = f"{gpu.name} (simulated)" if simulated else gpu.name
        present = knob.present(gpu)
        # It may have been lowered for a reason: a rack's power budget, heat, noise.
        ceiling = math.inf if raise_limit else present
        return cls(model, knob.ladder(gpu), present, gpu.power_limits().maximum, ceiling)


class Ladder:
    """The settings of a job: one for all GPUs of a model, at every rung.

    Where models are mixed, each has its own ladder; all descend rung by rung together.

    Attributes:
        models: Product names, sorted.
        knobs: The setting at each rung; a mapping by model if there are several models.
        max_power: Maximum power of all GPUs together, in watts.
        gpus: Number of GPUs.
        present: The setting before the run, like `knobs`; `None` if GPUs of one model differ.
        untried: The highest setting that the GPUs accept, like `knobs`, if it may not be tried.
    """

    def __init__(self, infos: Mapping[str, GpuKnobInfo]) -> None:
        """Build a ladder that every GPU supports.

        Args:
            infos: By the GPU's key, so that a GPU seen by several processes counts once.

        Raises:
            KnobError: If there is no GPU, or GPUs of one model have no setting in common.
        """
        if not infos:
            raise KnobError("there must be at least one GPU, but got none")
        by_model: dict[str, list[GpuKnobInfo]] = {}
        for key in sorted(infos):
            by_model.setdefault(infos[key].model, []).append(infos[key])
        self.models = tuple(sorted(by_model))
        whole = {model: _common(model, by_model[model]) for model in self.models}
        self._bounds = {model: (ladder[-1], ladder[0]) for model, ladder in whole.items()}
        self._ladders = {model: _below(whole[model], by_model[model]) for model in self.models}
        self._counts = {model: len(by_model[model]) for model in self.models}
        self.gpus = len(infos)
        self.max_power = math.fsum(info.max_power for info in infos.values())
        presents = {model: {info.present for info in by_model[model]} for model in self.models}
        self.present: Any = None
        if all(len(settings) == 1 for settings in presents.values()):
            self.present = self._knob({model: presents[model].pop() for model in self.models})
        self.untried: Any = None
        if any(self._ladders[model][0] < whole[model][0] for model in self.models):
            self.untried = self._knob({model: whole[model][0] for model in self.models})
        length = max(map(len, self._ladders.values()))
        self.knobs = tuple(
            self._knob({model: self.setting(model, rung) for model in self.models})
            for rung in range(length)
        )

    def _knob(self, settings: dict[str, float]) -> Any:
        return settings if len(settings) > 1 else next(iter(settings.values()))

    def __len__(self) -> int:
        return len(self.knobs)

    def setting(self, model: str, rung: int) -> float:
        """Return the setting of this model's GPUs at a rung."""
        ladder = self._ladders[model]
        return ladder[min(rung, len(ladder) - 1)]

    def along(self, known: Sequence[Any]) -> list[Any]:
        """Merge known settings, from the highest down, with the other settings of the ladder.

        Settings between two known ones are added only where these are further apart than the
        ladder's rungs.
        """
        if not known:
            return list(self.knobs)
        if len(self.models) > 1:
            return [*known, *(knob for knob in self.knobs if self._lower(knob, known[-1]))]
        widest = max((high - low for high, low in pairwise(self.knobs)), default=0.0)
        bounds = (math.inf, *known, -math.inf)
        gaps = [pair for pair in pairwise(bounds) if pair[0] - pair[1] > widest * (1 + 1e-6)]
        missing = [knob for knob in self.knobs if any(high > knob > low for high, low in gaps)]
        return sorted([*known, *missing], reverse=True)

    def _lower(self, knob: Any, than: Any) -> bool:
        mine, other = self._by_model(knob), self._by_model(than)
        return knob != than and all(mine[model] <= other[model] for model in self.models)

    def accepts(self, knob: Any) -> bool:
        """Return whether all GPUs can be set to it."""
        settings = self._by_model(knob)
        return settings.keys() == self._bounds.keys() and all(
            is_number(value) and self._bounds[model][0] <= value <= self._bounds[model][1]
            for model, value in settings.items()
        )

    def allows(self, knob: Any) -> bool:
        """Return whether an accepted setting is not above the highest that may be tried."""
        return all(
            value <= self._ladders[model][0] for model, value in self._by_model(knob).items()
        )

    def limits(self, knobs: Iterable[Any]) -> list[float] | None:
        """Return settings as plain numbers; `None` where models are mixed."""
        return [float(knob) for knob in knobs] if len(self.models) == 1 else None

    def _by_model(self, knob: Any) -> Mapping[str, Any]:
        return knob if isinstance(knob, Mapping) else dict.fromkeys(self.models, knob)

    def __str__(self) -> str:
        if len(self.models) == 1:
            return self.models[0]
        return " + ".join(f"{count} x {model}" for model, count in self._counts.items())


def _common(model: str, infos: Iterable[GpuKnobInfo]) -> tuple[float, ...]:
    ladders = [info.ladder for info in infos]
    shared = set(ladders[0]).intersection(*map(set, ladders[1:]))
    if not shared:
        raise KnobError(
            f"GPUs of one model must have settings in common, but those of {model} have "
            f"{sorted(set(ladders))}"
        )
    return tuple(sorted(shared, reverse=True))


def _below(ladder: tuple[float, ...], infos: Iterable[GpuKnobInfo]) -> tuple[float, ...]:
    """Return the part of a ladder that may be tried: from the lowest ceiling down."""
    ceiling = min(info.ceiling for info in infos)
    if ceiling >= ladder[0]:
        return ladder
    rungs = tuple(rung for rung in ladder if rung < ceiling)
    return (max(ceiling, ladder[-1]), *rungs)
