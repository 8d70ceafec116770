"""How long a step of a language-model server takes and what it draws, by clock, batch and prompt.

A server works in steps. A step reads all weights once and processes some tokens: one for each
running request (decode), those of new prompts (prefill), or both. Both phases follow one roofline:
the time is a smooth maximum of reading memory, which hardly depends on the clock, and of computing,
which goes with tokens / clock. Few tokens (decode) are bound by memory, many (prefill) by
computation. Where a lower clock slows memory traffic down, too, time rises steeply.

The energy of a step is static power and power of the clock network over its time, plus what reading
memory and computing take whatever the time: dynamic parts go with voltage², which is flat up to a
knee and rises linearly from there, as in `zeus.device`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from zeus._rules import Number
from zeus.device._simulated_models import MODELS
from zeus.errors import SimulationError
from zeus.optimizer.serving._interval import ServingSetting
from zeus.testing._roofline import memory_slowdown, smooth_maximum

_MANY_CLOCKS = 4096


@dataclass(frozen=True, kw_only=True)
class ServingWorkload:
    """A model on a GPU, or on a group of GPUs that work as one.

    Attributes:
        name: Human-readable name.
        lowest_clock: MHz.
        highest_clock: MHz, at which times and energies below are stated.
        clock_step: MHz between clocks that can be set.
        weight_time: Seconds per step of reading the weights.
        launch_time: Seconds per step that go with 1 / clock in any case.
        token_time: Seconds of computation per token.
        sequence_time: Seconds per running request and step.
        context_time: Seconds of memory traffic per token of context of the running requests.
        sharpness: Exponent of the smooth maximum; the higher, the sharper the roofline's ridge.
        memory_knee: Share of the highest clock near which memory traffic becomes slower.
        memory_steepness: Exponent with which it does: its time is 1 + (knee / clock) ** this times
            as long, down to a factor of 1.5, and goes with 1 / clock below.
        static_power: Watts that do not depend on clock and work.
        clock_power: Watts of a busy GPU on top at the highest clock.
        weight_energy: Joules per step of reading the weights.
        token_energy: Joules of computation per token at the highest clock's voltage.
        sequence_energy: Joules per running request and step at the highest clock's voltage.
        context_energy: Joules per token of context and step.
        floor_voltage: Voltage below the knee, relative to that at the highest clock.
        knee: Share of the highest clock at which voltage begins to rise.
        waiting_power: Watts while there is no request.
        kv_tokens: Tokens of prompts and answers for which there is memory.

    Raises:
        ValueError: If a value is out of range.
    """

    name: str
    lowest_clock: float
    highest_clock: float
    clock_step: float = 15.0
    weight_time: float
    launch_time: float = 0.0
    token_time: float
    sequence_time: float = 0.0
    context_time: float = 0.0
    sharpness: float = 3.0
    memory_knee: float = 0.0
    memory_steepness: float = 16.0
    static_power: float
    clock_power: float
    weight_energy: float
    token_energy: float
    sequence_energy: float = 0.0
    context_energy: float = 0.0
    floor_voltage: float
    knee: float
    waiting_power: float
    kv_tokens: int = 1_000_000
    # Everything that follows from a clock alone, which is needed at every step.
    _at_clock: dict[float, tuple[float, float, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        positive = {"lowest_clock", "highest_clock", "clock_step", "weight_time", "token_time"}
        for each in fields(self):
            if each.name != "name" and each.init:
                rule = Number(0, above=each.name in positive)
                rule.check(each.name, getattr(self, each.name), SimulationError)
        Number(1).check("sharpness", self.sharpness, SimulationError)
        Number(1).check("memory_steepness", self.memory_steepness, SimulationError)
        Number(1).check("kv_tokens", self.kv_tokens, SimulationError)
        Number(0, 0.99).check("knee", self.knee, SimulationError)
        Number(0, 1).check("floor_voltage", self.floor_voltage, SimulationError)
        Number(0, self.highest_clock).check("lowest_clock", self.lowest_clock, SimulationError)

    @property
    def highest(self) -> ServingSetting:
        """The default: the highest clock in both phases."""
        return ServingSetting(self.highest_clock, self.highest_clock)

    def setting(self, prefill: float, decode: float | None = None) -> ServingSetting:
        """Return a setting of clocks that can be set.

        Args:
            prefill: MHz while prompts are processed; the nearest clock counts.
            decode: MHz while tokens are generated; the same by default.
        """
        return ServingSetting(
            self._nearest(prefill), self._nearest(prefill if decode is None else decode)
        )

    def _nearest(self, mhz: float) -> float:
        return min(self.clocks(), key=lambda clock: abs(clock - mhz))

    def clocks(self) -> tuple[float, ...]:
        """Clocks that can be set, highest first, in MHz."""
        count = math.floor((self.highest_clock - self.lowest_clock) / self.clock_step + 1e-9) + 1
        return tuple(self.highest_clock - index * self.clock_step for index in range(count))

    def step(
        self, clock: float, *, prompt: float = 0, batch: int = 0, context: float = 0
    ) -> tuple[float, float]:
        """Return time and power of a step.

        Args:
            clock: MHz; what is out of range counts as the nearest clock within.
            prompt: Prompt tokens that are processed.
            batch: Requests for each of which a token is generated.
            context: Tokens of prompts and answers of those requests so far.

        Returns:
            Seconds, and mean watts.
        """
        known = self._at_clock.get(clock)
        if known is None:
            if len(self._at_clock) >= _MANY_CLOCKS:  # a power limit leads to any number of them
                self._at_clock.clear()
            known = self._at_clock[clock] = _at(self, clock)
        x, squared, slowed = known
        tokens = prompt + batch
        memory = (
            self.weight_time + self.sequence_time * batch + self.context_time * context
        ) * slowed
        compute = tokens * self.token_time / x
        seconds = smooth_maximum(memory, compute, self.sharpness) + self.launch_time / x
        joules = (
            self.weight_energy
            + self.context_energy * context
            + squared * (self.token_energy * tokens + self.sequence_energy * batch)
        )
        watts = self.static_power + self.clock_power * x * squared + joules / seconds
        return seconds, watts

    def decode(self, clock: float, batch: int, context: float = 0) -> tuple[float, float]:
        """Return seconds and watts of a step that generates a token for each of `batch` requests.

        Args:
            clock: MHz.
            batch: Number of requests.
            context: Tokens of their prompts and answers so far, all together.
        """
        return self.step(clock, batch=batch, context=context)

    def prefill(self, clock: float, tokens: float) -> tuple[float, float]:
        """Return seconds and watts of a step that processes prompts.

        Args:
            clock: MHz.
            tokens: Their tokens.
        """
        return self.step(clock, prompt=tokens)

    def clock_at(
        self, power_limit: float, *, prompt: float = 0, batch: int = 0, context: float = 0
    ) -> float:
        """Return the highest clock, in MHz, at which a step keeps a power limit.

        Args:
            power_limit: Watts. Where no clock keeps it, the lowest is returned.
            prompt: As in `step`.
            batch: As in `step`.
            context: As in `step`.
        """
        low, high = self.lowest_clock, self.highest_clock
        work = {"prompt": prompt, "batch": batch, "context": context}
        if self.step(high, **work)[1] <= power_limit:  # type: ignore[arg-type]
            return high
        while high - low > 0.5:
            middle = (low + high) / 2
            if self.step(middle, **work)[1] <= power_limit:  # type: ignore[arg-type]
                low = middle
            else:
                high = middle
        return low

    @classmethod
    def mistral_7b_v100(cls) -> ServingWorkload:
        """Return Mistral 7B under vLLM on a V100-SXM2-32GB, fitted to a measured sweep."""
        return _MISTRAL_7B_V100

    @classmethod
    def on(
        cls, gpu: str, *, parameters: float = 7e9, kv_bytes: float = 131072.0, gpus: int = 1
    ) -> ServingWorkload:
        """Return a model in 16 bits on a simulated GPU, from published figures of the part.

        Bandwidth and arithmetic are used to the same shares as on the V100 that was measured, and
        the rest follows in proportion. So it is a plausible server, not a measured one.

        Args:
            gpu: GPU as in `ZEUS_SIMULATE`, such as "a100".
            parameters: Parameters of the model that are used for a token.
            kv_bytes: Bytes that are kept per token of context.
            gpus: GPUs that work as one (tensor parallelism), at the same clock.

        Raises:
            ValueError: If the GPU is unknown, a number is not above 0, or the model does not fit.
        """
        if gpu not in _PUBLISHED:
            raise SimulationError(f"gpu must be one of {', '.join(_PUBLISHED)}, but got {gpu!r}")
        Number(0, above=True).check("parameters", parameters, SimulationError)
        Number(0, above=True).check("kv_bytes", kv_bytes, SimulationError)
        Number(1, 64).check("gpus", gpus, SimulationError)
        model, (bandwidth, arithmetic) = MODELS[gpu], _PUBLISHED[gpu]
        room = 0.9 * model.memory_bytes * gpus - 2 * parameters
        if room < 1000 * kv_bytes:
            raise SimulationError(
                f"{parameters:g} parameters in 16 bits must fit into {gpus} x "
                f"{model.memory_bytes / 2**30:g} GiB with room for a context, but they do not"
            )
        slower_memory = 2 * parameters / (gpus * bandwidth) / _V100_WEIGHT_TIME
        slower_compute = 2 * parameters / (gpus * arithmetic) / _V100_TOKEN_TIME
        base = _MISTRAL_7B_V100
        dynamic = model.maximum_limit - model.static_power
        base_dynamic = _V100_LIMIT - base.static_power
        power = dynamic / base_dynamic  # of one GPU, relative to the V100
        per_byte = base.context_time * slower_memory * kv_bytes / 131072.0 * (7.24e9 / parameters)
        return cls(
            name=f"{parameters / 1e9:g}B on {gpus} x {model.name}",
            lowest_clock=model.lowest_clock,
            highest_clock=model.highest_clock,
            clock_step=model.clock_step,
            weight_time=base.weight_time * slower_memory,
            launch_time=base.launch_time,
            token_time=base.token_time * slower_compute,
            sequence_time=base.sequence_time * min(1.0, slower_memory),
            context_time=per_byte,
            sharpness=base.sharpness,
            memory_knee=base.memory_knee,
            memory_steepness=base.memory_steepness,
            static_power=model.static_power * gpus,
            clock_power=base.clock_power * power * gpus,
            weight_energy=base.weight_energy * power * gpus * slower_memory,
            token_energy=base.token_energy * power * gpus * slower_compute,
            sequence_energy=base.sequence_energy * power * gpus * min(1.0, slower_memory),
            context_energy=base.context_energy * power * gpus * per_byte / base.context_time,
            floor_voltage=model.floor_voltage,
            knee=model.knee,
            waiting_power=model.static_power * gpus,
            kv_tokens=int(room / kv_bytes),
        )


def _at(workload: ServingWorkload, clock: float) -> tuple[float, float, float]:
    """Return the relative clock, the relative voltage squared and the factor on memory time."""
    x = min(max(clock, workload.lowest_clock), workload.highest_clock) / workload.highest_clock
    rise = max(0.0, (x - workload.knee) / (1 - workload.knee))
    voltage = workload.floor_voltage + (1 - workload.floor_voltage) * rise
    slowed = memory_slowdown(x, workload.memory_knee, workload.memory_steepness)
    return x, voltage**2, slowed


# Published memory bandwidth (B/s) and dense 16-bit arithmetic (FLOP/s); of one die for the MI250X.
_PUBLISHED = {
    "v100": (900e9, 112e12),
    "a40": (696e9, 149.7e12),
    "a100": (2039e9, 312e12),
    "h100": (3350e9, 989e12),
    "mi250x": (1638e9, 191.5e12),
    "mi300x": (5300e9, 1307e12),
}

_V100_LIMIT = 300.0  # W, SXM2
_V100_WEIGHT_TIME = 2 * 7.24e9 / 900e9  # s; Mistral 7B has 7.24e9 parameters
_V100_TOKEN_TIME = 2 * 7.24e9 / 125e12  # s; 125 TFLOP/s on SXM2

# Fitted by `benchmarks/fit_serving.py` to a measured sweep (V100-SXM2-32GB, vLLM, 750 to 1300 MHz
# and the boost clock). Clocks and memory are the part's.
_MISTRAL_7B_V100 = ServingWorkload(
    name="Mistral 7B on V100-SXM2-32GB",
    lowest_clock=135,
    highest_clock=1530,
    clock_step=7.5,
    weight_time=0.02387,
    launch_time=0.001167,
    token_time=2.116e-4,
    sequence_time=1.333e-4,
    context_time=2.161e-7,
    sharpness=3.0,
    memory_knee=0.4623,
    memory_steepness=19.14,
    static_power=34.44,
    clock_power=89.86,
    weight_energy=0.8409,
    token_energy=0.03605,
    sequence_energy=0.01861,
    context_energy=7.611e-6,
    floor_voltage=0.7056,
    knee=0.6525,
    waiting_power=34.44,
    kv_tokens=100_000,
)
