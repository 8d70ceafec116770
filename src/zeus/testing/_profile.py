"""GPUs with the time and power recorded at each power limit, instead of a physical model."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zeus.device import Gpu
from zeus.device._simulated_models import MODELS, GpuModel
from zeus.errors import SimulationError
from zeus.frontier import Frontier, Point
from zeus.testing._node import SimulatedNode
from zeus.testing._workload import load_kept, simulated_driver

if TYPE_CHECKING:
    from zeus.clock import Clock

_FULL = 1.0


@dataclass(frozen=True)
class RecordedProfile:
    """A step of a job as recorded at each power limit, on one or more GPUs.

    `ProfileNode(profile)` provides the GPUs, and `run` runs steps on them. Time and the power of
    each GPU are those recorded at the current limit, linearly interpolated between limits.

    Attributes:
        name: Human-readable name.
        gpu: Model of the GPUs, as `SimulatedNode` calls it.
        limits: Power limits in watts, ascending.
        times: Seconds per step at each limit.
        powers: Watts of each GPU at each limit.

    Raises:
        ValueError: If the values do not form a profile.
    """

    name: str
    gpu: str
    limits: tuple[float, ...]
    times: tuple[float, ...]
    powers: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.limits or list(self.limits) != sorted(set(self.limits)):
            raise SimulationError(f"`limits` must ascend, but got {self.limits}")
        if not len(self.limits) == len(self.times) == len(self.powers):
            raise SimulationError(
                f"each of {len(self.limits)} limits must have a time and powers, but got "
                f"{len(self.times)} times and {len(self.powers)} powers"
            )
        if min(self.times) <= 0 or min(map(min, self.powers)) <= 0:
            raise SimulationError(f"times and powers of {self.name} must be above 0")

    @classmethod
    def read(cls, path: str | Path, *, step_time: float = 0.05) -> RecordedProfile:
        """Read a log of measurement windows, one for each power limit, whose names end in watts.

        Args:
            path: CSV file with `window_name`, `elapsed_time` and `gpu<index>_energy`; its name
                begins with the GPU's model and a plus sign.
            step_time: Seconds per step at the highest limit; the log does not record how many
                steps a window had.

        Raises:
            ValueError: If the file is not such a log.
        """
        path = Path(path)
        rows: dict[float, tuple[float, tuple[float, ...]]] = {}
        with path.open(newline="", encoding="utf-8") as file:
            for line, row in enumerate(csv.DictReader(file), 2):
                limit = re.search(r"_(\d+(?:\.\d+)?)$", row.get("window_name") or "")
                try:
                    time = float(row["elapsed_time"])
                    energies = [float(row[name]) for name in row if name.endswith("_energy")]
                except (KeyError, TypeError, ValueError):
                    limit = None
                if limit is None:
                    raise SimulationError(f"line {line} of {path} is not a window at a power limit")
                rows[float(limit[1])] = (time, tuple(joules / time for joules in energies))
        if not rows:
            raise SimulationError(f"{path} has no windows")
        longest = rows[max(rows)][0]
        gpu = path.stem.partition("+")[0].lower()
        if gpu not in MODELS:
            raise SimulationError(f"{path.name} must begin with one of {', '.join(MODELS)}")
        limits = tuple(sorted(rows))
        return cls(
            path.stem,
            gpu,
            limits,
            tuple(rows[limit][0] / longest * step_time for limit in limits),
            tuple(rows[limit][1] for limit in limits),
        )

    @property
    def gpus(self) -> int:
        """Number of GPUs it was recorded on."""
        return len(self.powers[0])

    def scaled(self, factor: float) -> RecordedProfile:
        """Return the same job in steps that take `factor` times as long."""
        return replace(self, times=tuple(time * factor for time in self.times))

    def time_at(self, limit: float) -> float:
        """Return the seconds per step at a power limit in watts."""
        return self._between(limit, self.times)

    def power_at(self, limit: float, gpu: int = 0) -> float:
        """Return the power of a GPU, in watts, at a power limit in watts.

        Args:
            limit: Power limit in watts.
            gpu: Index of the GPU.
        """
        return self._between(limit, [powers[gpu] for powers in self.powers])

    def frontier(self) -> Frontier:
        """Return a step on all GPUs at each recorded limit, from the highest down."""
        return Frontier(
            [
                Point(limit, time, time * sum(powers))
                for limit, time, powers in reversed(
                    list(zip(self.limits, self.times, self.powers, strict=True))
                )
            ],
            f"one step of {self.name}",
            knob_name="power_limit",
            knob_unit="W",
            max_power=self.limits[-1] * self.gpus,
        )

    def step_time(self, gpu: Gpu) -> float:
        """Return the seconds per step at the current power limit.

        Args:
            gpu: A GPU of a `ProfileNode`.
        """
        return self.time_at(gpu.driver.power_limit())

    def run(self, gpus: Gpu | Iterable[Gpu], steps: int = 1) -> float:
        """Run steps on GPUs of a `ProfileNode`: the slowest sets the pace.

        Args:
            gpus: GPUs that run the steps.
            steps: Number of steps.

        Returns:
            Seconds that elapsed.
        """
        gpus = (gpus,) if isinstance(gpus, Gpu) else tuple(gpus)
        time = steps * max(self.step_time(gpu) for gpu in gpus)
        with load_kept(gpus):
            for gpu in gpus:
                simulated_driver(gpu).set_load(_FULL)
            simulated_driver(gpus[0]).clock.sleep(time)
        return time

    def _between(self, limit: float, values: Sequence[float]) -> float:
        for index, high in enumerate(self.limits):
            if limit <= high:
                if index == 0:
                    return values[0]
                low = self.limits[index - 1]
                share = (limit - low) / (high - low)
                return values[index - 1] + share * (values[index] - values[index - 1])
        return values[-1]


class ProfileNode(SimulatedNode):
    """A simulated node whose GPUs draw the power of a profile while its steps run.

    They accept power limits from the lowest to the highest recorded one.

    Args:
        profile: Profile that the GPUs reproduce.
        clock: Clock to use; a virtual clock of its own by default.
    """

    def __init__(self, profile: RecordedProfile, *, clock: Clock | None = None) -> None:
        super().__init__(f"{profile.gpu}x{profile.gpus}", clock=clock)
        self.profile = profile
        for index, gpu in enumerate(self.gpus):
            driver = simulated_driver(gpu)
            driver.model = _recorded_model(driver.model, profile, index)
            driver.set_power_limit(profile.limits[-1])


def _recorded_model(model: GpuModel, profile: RecordedProfile, gpu: int) -> GpuModel:
    class RecordedModel(GpuModel):
        """Its relative clock encodes the current power limit."""

        def relative_clock(
            self,
            activity: float,  # noqa: ARG002
            power_limit: float,
            highest_clock: float,  # noqa: ARG002
        ) -> float:
            return power_limit / self.maximum_limit

        def busy_power(self, x: float, activity: float) -> float:
            if activity <= 0:
                return self.static_power
            return profile.power_at(x * self.maximum_limit, gpu)

    values = asdict(model)
    values.update(minimum_limit=profile.limits[0], maximum_limit=profile.limits[-1])
    return RecordedModel(**values)
