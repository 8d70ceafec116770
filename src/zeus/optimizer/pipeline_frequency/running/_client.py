"""The client of a pipeline-parallel training run, one in every rank.

It learns the instructions of a step, measures them at ever lower clocks while training goes on,
reports to the server, and follows the plan that comes back. It never stops the training or makes it
wait for the server: any failure ends in one warning and the previous clocks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zeus._rules import Number
from zeus.device._node import current_node
from zeus.errors import CapabilityError, KnobError, PipelineError, ZeusError
from zeus.monitor._sync import synchronizer
from zeus.monitor._windows import ZeusMonitor
from zeus.optimizer.callback import Callback
from zeus.optimizer.pipeline_frequency.api._api import PipelinesApi
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import (
    CHUNK,
    MAX_KINDS,
    NAME,
    WATTS,
    Directive,
    Instruction,
    RankPlace,
    Registration,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.running._clock_sweep import ClockSweep
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter, thinned
from zeus.optimizer.pipeline_frequency.running._link import Link
from zeus.optimizer.pipeline_frequency.running._meter import Meter
from zeus.optimizer.pipeline_frequency.running._phases import (
    Following,
    Measuring,
    Phase,
    Watching,
)

if TYPE_CHECKING:
    from zeus.device._node import Node

logger = logging.getLogger(__name__)

# The launcher's id of the job, the same in all its processes.
_LAUNCHER_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_STEPS_TOGETHER = 3  # at one clock, for tensor-parallel GPUs
_STEPS_APART = 10  # between steps at which tensor-parallel GPUs may begin to measure
_FEWEST_STEPS = 3  # under a plan, before their time is reported


class PipelineFrequencyOptimizer(Callback):
    """Lowers clocks where the pipeline would only wait, on one rank.

    Call `on_step_begin` and `on_step_end` around every training step, and `on_instruction_begin`
    and `on_instruction_end` around each forward and backward of a microbatch: around the
    computation only, not around waiting for a neighbor. Zeus observes what a step consists of.

    All calls must come from one thread. Energy and time are measured and clocks set on this rank's
    GPU only. Measurements are sent to the server (`zeus serve`), which plans for all ranks; while
    it cannot be reached, training goes on with the last plan, or the previous clocks.

    Args:
        rank: Global rank of this process.
        dp_rank: Index of the data-parallel pipeline it belongs to.
        pp_rank: Its place in the pipeline.
        tp_rank: Its index among the tensor-parallel GPUs of that place.
        device_id: Index of its GPU, as frameworks count.
        dp_degree: Number of pipelines.
        pp_degree: Number of places in a pipeline.
        tp_degree: Number of GPUs per place.
        world_size: Number of ranks.
        server_url: URL of the server, such as "http://gpu1:8420".
        job_metadata: Description of the training run, for people.
        job: Name of the job, the same in all ranks and in no other training at the same time. By
            default the launcher's id of it, or else the first words of `job_metadata`.
        token: Token, if the server requires one; by default `ZEUS_TOKEN`.
        blocking_power: Watts that the GPU draws while it waits for a neighbor; by default it is
            measured between instructions.
        warm_up_steps: Steps before anything is measured, at least 2.
        clock_stride: MHz between two clocks that are measured.
        steps_per_clock: Steps measured at each clock. By default as many as it takes to know
            energies to 1 %, or 3 with tensor parallelism.
        sync_execution_with: Framework to wait for around measured instructions and where clocks
            change, as for `ZeusMonitor`.
        timeout: Seconds for a request to the server; training does not wait for it.
        node: The node that has the GPU; by default this machine.
        api: Answers requests in place of the server.

    Attributes:
        job: Name of the job.
        trouble: Why this rank no longer takes part; empty while all is well.

    Raises:
        PipelineError: If a number is out of range.
        ServerError: If `server_url` is not a server URL.
        TokenError: If the token is malformed.
        UnknownDeviceError: If there is no such GPU.
    """

    def __init__(  # noqa: PLR0917  (as published)
        self,
        rank: int,
        dp_rank: int,
        pp_rank: int,
        tp_rank: int,
        device_id: int,
        dp_degree: int,
        pp_degree: int,
        tp_degree: int,
        world_size: int,
        server_url: str,
        job_metadata: str | None = None,
        *,
        job: str | None = None,
        token: str | None = None,
        blocking_power: float | None = None,
        warm_up_steps: int = 3,
        clock_stride: float = 30.0,
        steps_per_clock: int | None = None,
        sync_execution_with: str | None = "auto",
        timeout: float = 5.0,
        node: Node | None = None,
        api: PipelinesApi | None = None,
    ) -> None:
        self.seat = RankPlace(
            rank, dp_rank, pp_rank, tp_rank, dp_degree, pp_degree, tp_degree, world_size
        )
        self.job = _job_name(job, job_metadata)
        self.trouble = ""
        if blocking_power is not None:
            WATTS.check("blocking_power", blocking_power, PipelineError)
        Number(0, 1e4).check("clock_stride", clock_stride, PipelineError)
        Number(2, 1e6).check("warm_up_steps", warm_up_steps, PipelineError)
        if steps_per_clock is not None:
            Number(1, 1e4).check("steps_per_clock", steps_per_clock, PipelineError)
        elif tp_degree > 1:
            steps_per_clock = _STEPS_TOGETHER
        if api is None:
            api = RemotePipelines(server_url, token, timeout)
        self._node = node if node is not None else current_node()
        (self._gpu,) = self._node.gpus.select([device_id])
        self._synchronize = synchronizer(sync_execution_with, [self._gpu])
        self._sync_with = sync_execution_with
        self._steps_per_clock = steps_per_clock
        self._monitor: ZeusMonitor | None = None
        self._setter: ClockSetter | None = None
        self._ladder: tuple[int, ...] = ()
        self._watching = Watching(warm_up_steps)
        self._phase: Phase = self._watching
        self._sequence: tuple[Instruction, ...] = ()
        self._measured = False
        self._followed: Directive | None = None
        self._open: Instruction | None = None
        self._in_step = self._closed = False
        self._told_covered = False
        self._step_began = 0.0
        self._steps = 0
        self._step_times: list[float] = []
        said = ""
        try:
            self._setter = ClockSetter(self._gpu, self._node.clock)
            self._ladder = thinned(self._setter.ladder, clock_stride)
        except (CapabilityError, KnobError) as error:
            said = str(error)
        self._link = Link(
            api,
            self.job,
            Registration(
                uuid.uuid4().hex,
                self.seat,
                self._gpu.name,
                self._ladder,
                blocking_power,
                _printable(job_metadata or ""),
            ),
            virtual=self._node.clock.virtual,
        )
        if said:
            self._give_up(said)

    # --- the published interface ------------------------------------------------------------------

    def on_step_begin(self) -> None:
        """Call when a training step begins."""
        if self._closed:
            return
        with self._never_failing():
            self._open = None
            self._in_step = True
            self._steps += 1
            self._step_began = self._node.clock.now()
            self._link.step()
            self._choose_phase()
            self._phase.begin_step()

    def on_step_end(self) -> None:
        """Call when the training step has ended."""
        if self._closed or not self._in_step:
            return
        with self._never_failing():
            self._in_step = False
            if self._open is not None:
                name, self._open = self._open.name, None
                raise PipelineError(f"instruction {name!r} must end before its step does")
            self._phase.end_step()
            self._take_time()

    def on_instruction_begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> None:
        """Call when a computation begins.

        Args:
            name: "forward" or "backward". Others are "backward_input" and "backward_weight" for
                the two halves of a backward, "recomputation", and "communication", "receive",
                "send" or "data_loading" for work whose time does not depend on the clock; any
                other name is a computation that depends only on this rank's earlier instructions.
            chunk: Index of this rank's model chunk, where it has several (interleaved schedules).
            microbatch: Index of the microbatch; not needed where microbatches go through all
                stages in the same order.
            stage: Index of the stage that the chunk is, from 0. Not needed where chunk `c` of
                place `p` is stage `c * pp_degree + p`, as in interleaved schedules.
        """
        if self._closed or not self._in_step:
            return
        with self._never_failing():
            if self._open is not None:
                open_ = self._open.name
                raise PipelineError(f"instruction {open_!r} must end before {name!r} begins")
            self._open = instruction = Instruction(name, chunk, microbatch, stage)
            self._phase.begin(instruction)

    def on_instruction_end(self, name: str) -> None:
        """Call when the computation has ended, or is queued on the accelerator.

        Args:
            name: The name given when it began.
        """
        if self._closed or not self._in_step:
            return
        with self._never_failing():
            instruction, self._open = self._open, None
            if instruction is None or instruction.name != name:
                began = "none" if instruction is None else repr(instruction.name)
                raise PipelineError(f"an instruction must begin before it ends: {name!r} ends, "
                                    f"but {began} began")  # fmt: skip
            self._phase.end(instruction)

    @contextlib.contextmanager
    def instruction(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> Iterator[None]:
        """Mark a computation as a ``with`` block; see `on_instruction_begin`.

        Args:
            name: As in `on_instruction_begin`.
            chunk: As in `on_instruction_begin`.
            microbatch: As in `on_instruction_begin`.
            stage: As in `on_instruction_begin`.
        """
        self.on_instruction_begin(name, chunk=chunk, microbatch=microbatch, stage=stage)
        try:
            yield
        finally:
            self.on_instruction_end(name)

    def report_straggler(
        self,
        *,
        slowdown: float | None = None,
        iteration_time: float | None = None,
        healthy: bool = False,
        dp_rank: int | None = None,
    ) -> None:
        """Report to the server that a pipeline became slower, so that others can slow down too.

        Args:
            slowdown: Factor by which its iteration takes longer.
            iteration_time: Or seconds of its iteration.
            healthy: Or that it is as fast as the others again.
            dp_rank: Index of the pipeline; by default this rank's.

        Raises:
            PipelineError: If not exactly one of the three is given, or one is out of range.
        """
        which = self.seat.dp_rank if dp_rank is None else dp_rank
        if which not in range(self.seat.dp_degree):
            raise PipelineError(
                f"`0 <= dp_rank < {self.seat.dp_degree}` must hold, but got dp_rank={which!r}"
            )
        straggler = Straggler(which, slowdown, iteration_time, healthy)
        self._link.report_straggler(straggler)

    def close(self) -> None:
        """Restore the previous clocks, and report to the server that this rank has ended."""
        self._end()
        self._link.close()

    # --- inspection -------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Current phase: "watching", "measuring", "waiting", "following" or "off"."""
        if self._closed:
            return "off"
        names = {Watching: "watching", Measuring: "measuring", Following: "following"}
        return names.get(type(self._phase), "waiting")

    @property
    def standing(self) -> Directive | None:
        """The server's latest answer; `None` until it has answered."""
        return self._link.standing

    @property
    def clocks(self) -> tuple[float, ...] | None:
        """Planned MHz of each instruction of a step; `None` if no plan is followed."""
        phase = self._phase
        return phase.clocks if isinstance(phase, Following) else None

    # --- between steps ----------------------------------------------------------------------------

    def _choose_phase(self) -> None:
        link = self._link
        if link.replaced:
            self._give_up(link.replaced, tell=False)
            return
        trouble = self._setter.trouble if self._setter is not None else ""
        if trouble or link.refused:
            self._give_up(trouble or link.refused)
            return
        self._report_covered()
        if isinstance(self._phase, Watching) and self._watching.sequence:
            self._know_sequence(self._watching.sequence)
        if isinstance(self._phase, Measuring):
            self._look_at(self._phase.meter)
        # Until the server has the sequence, its answers are not about this rank yet.
        standing = link.standing if link.sequence_is_told else None
        if not self._closed and standing is not None:
            self._apply_directive(standing)

    def _report_covered(self) -> None:
        """Warn once that another process's hold keeps this rank's clock from being set."""
        if self._told_covered or self._setter is None or not self._setter.covered:
            return
        self._told_covered = True
        logger.warning(
            "rank %d cannot set the graphics clock of %s while another process does (%s): until "
            "that ends, it does not measure, and runs at that clock",
            self.seat.rank,
            self._gpu,
            self._setter.who_covers(),
        )

    def _know_sequence(self, sequence: tuple[Instruction, ...]) -> None:
        kinds = {each.kind for each in sequence}
        for kind in kinds:
            NAME.check("name", kind.name, PipelineError)
            CHUNK.check("chunk", kind.chunk, PipelineError)
        if len(kinds) > MAX_KINDS:
            raise PipelineError(
                f"a step must have at most {MAX_KINDS} kinds of instructions, but has {len(kinds)}"
            )
        self._sequence = sequence
        self._link.report_sequence(sequence)
        self._enter(Phase())

    def _look_at(self, meter: Meter) -> None:
        if meter.trouble:
            self._give_up(meter.trouble)
        elif meter.done:
            self._measured = True
            self._link.report_measurements(meter.measured())
            self._rest()

    def _apply_directive(self, standing: Directive) -> None:
        """Act on the server's answer."""
        if standing.state == "plan" and standing.clocks is not None:
            if standing is not self._followed and standing != self._followed:
                self._follow(standing)
            self._followed = standing
            return
        self._followed = None
        if isinstance(self._phase, Following):
            self._rest()
        if not self._measured and not isinstance(self._phase, Measuring) and self._may_begin:
            self._measure()

    @property
    def _may_begin(self) -> bool:
        """Whether to begin measuring now: tensor-parallel GPUs must begin at the same step."""
        return self.seat.tp_degree == 1 or self._steps % _STEPS_APART == 0

    def _measure(self) -> None:
        assert self._setter is not None
        if self._monitor is None:
            self._monitor = ZeusMonitor(
                [self._gpu.index],
                cpu_indices=[],
                sync_execution_with=self._sync_with,
                node=self._node,
            )
        self._setter.begin()
        kinds = list(dict.fromkeys(each.kind for each in self._sequence))
        walk = ClockSweep(self._ladder, kinds, self._steps_per_clock)
        meter = Meter(self._monitor, self._setter, walk, len(self._sequence), self._steps)
        self._enter(Measuring(meter, self._setter))

    def _follow(self, standing: Directive) -> None:
        assert self._setter is not None
        assert standing.clocks is not None
        wrong = [clock for clock in standing.clocks if clock and clock not in self._setter.ladder]
        if wrong:
            raise PipelineError(f"a plan must use clocks of this GPU, but has {wrong[0]} MHz")
        phase = Following(self._setter, self._sequence, standing.clocks, self._synchronize)
        self._setter.begin()
        if self._followed is None or self._followed.version != standing.version:
            self._step_times.clear()
            self._link.step_time = None
        self._enter(phase)

    def _rest(self) -> None:
        self._enter(Phase())
        if self._setter is not None:
            self._setter.end()

    def _enter(self, phase: Phase) -> None:
        left, self._phase = self._phase, phase
        left.leave()

    def _take_time(self) -> None:
        if not isinstance(self._phase, Following) or len(self._step_times) > 100:
            return
        if self._setter is None or self._setter.covered:
            return  # not a step at the plan's clocks
        self._step_times.append(self._node.clock.now() - self._step_began)
        if len(self._step_times) >= _FEWEST_STEPS:
            # The first step may have begun at other clocks.
            self._link.step_time = sorted(self._step_times[1:])[len(self._step_times[1:]) // 2]
        if len(self._step_times) == _FEWEST_STEPS:
            self._compare_with_plan(self._link.step_time)

    def _compare_with_plan(self, seen: float | None) -> None:
        planned = None if self._followed is None else self._followed.time
        if seen and planned:
            logger.info(
                "rank %d: a step takes %.4g s, and the plan's iteration %.4g s (%+.1f %%)",
                self.seat.rank, seen, planned, 100 * (seen / planned - 1),
            )  # fmt: skip

    # --- failures ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _never_failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not isinstance(error, ZeusError | OSError):
                logger.debug("an unexpected error", exc_info=True)
            self._give_up(str(error) or type(error).__name__)

    def _give_up(self, said: str, *, tell: bool = True) -> None:
        if self.trouble:
            return
        self.trouble = said
        logger.warning("rank %d keeps its previous clocks: %s", self.seat.rank, said)
        if tell:
            self._link.report_trouble(said)
        self._end()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ZeusError, OSError):
            self._enter(Phase())
        if self._setter is not None:
            self._setter.close()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None


def _job_name(job: str | None, metadata: str | None) -> str:
    if job is not None:
        return NAME.check("job", job, PipelineError)
    for variable in _LAUNCHER_VARIABLES:
        name = os.environ.get(variable, "").strip()
        if name and name != "none":
            return NAME.check(variable, name, PipelineError)
    words = " ".join(_printable(metadata or "").split())
    return words[:100].strip() or "pipeline"


def _printable(text: str) -> str:
    return "".join(c for c in str(text) if c.isprintable())[:2_000]
