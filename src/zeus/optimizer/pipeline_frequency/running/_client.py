"""The client of a pipeline-parallel training run, one in every rank.

It learns the instructions of a step, measures them at several clocks while training goes on,
reports to the server, and follows the plan that comes back. It never stops the training or makes it
wait for the server: any failure ends in one warning and the previous clocks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from zeus._rules import Number
from zeus.device._node import current_node
from zeus.errors import CapabilityError, KnobError, PipelineError, ZeusError
from zeus.monitor._sync import stream_synchronizer
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
    Measured,
    RankPlace,
    Registration,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter, thinned
from zeus.optimizer.pipeline_frequency.running._learning import Learning
from zeus.optimizer.pipeline_frequency.running._link import Link
from zeus.optimizer.pipeline_frequency.running._phases import (
    Exploring,
    Following,
    Phase,
    Watching,
)
from zeus.optimizer.pipeline_frequency.running._profiler import Profiler
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecorder

if TYPE_CHECKING:
    from zeus.device._node import Node

logger = logging.getLogger(__name__)

# The launcher's id of the job, the same in all its processes.
_LAUNCHER_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_STEPS_APART = 10  # between steps at which tensor-parallel GPUs may begin to measure
_RETRY_AFTER, _RETRY_FACTOR = 200, 4  # steps after which a rank in trouble is tried again
_REPORT_EVERY = 1.0  # seconds between two reports of steps, at least
_REPORT_SHARE = 0.01  # seconds for each rank of the job: a server takes hundreds a second


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
        clock_stride: MHz between two clocks that plans may use.
        sync_execution_with: Framework to wait for around measured instructions and where clocks
            change, as for `ZeusMonitor`.
        timeout: Seconds for a request to the server; training does not wait for it.
        node: The node that has the GPU; by default this machine.
        api: Answers requests in place of the server.

    Attributes:
        job: Name of the job.
        trouble: Why this rank takes no part; empty while all is well. It is tried again later.

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
        if api is None:
            api = RemotePipelines(server_url, token, timeout)
        self._node = node if node is not None else current_node()
        (self._gpu,) = self._node.gpus.select([device_id])
        self._synchronize = stream_synchronizer(sync_execution_with, [self._gpu])
        self._monitor: ZeusMonitor | None = None
        self._learning: Learning | None = None
        self._recorder: StepRecorder | None = None
        self._setter: ClockSetter | None = None
        self._ladder: tuple[int, ...] = ()
        self._warm_up_steps, self._clock_stride = warm_up_steps, clock_stride
        self._watching = Watching(warm_up_steps)
        self._phase: Phase = self._watching
        self._sequence: tuple[Instruction, ...] = ()
        self._followed: Directive | None = None
        self._open: Instruction | None = None
        self._in_step = self._closed = False
        self._told_covered = False
        self._steps = 0
        self._report_due = 0.0
        self._retry_at: int | None = None
        self._retry_after = _RETRY_AFTER
        self._api, self._blocking_power = api, blocking_power
        self._note = _printable(job_metadata or "")
        said = ""
        try:
            self._find_clocks()
        except (CapabilityError, KnobError) as error:
            said = str(error)
        self._link = self._new_link()
        if said:
            self._give_up(said)

    def _find_clocks(self) -> None:
        self._setter = ClockSetter(self._gpu, self._node.clock)
        self._ladder = thinned(self._setter.ladder, self._clock_stride)

    def _new_link(self) -> Link:
        registration = Registration(
            uuid.uuid4().hex,
            self.seat,
            self._gpu.name,
            self._ladder,
            self._blocking_power,
            self._note,
        )
        return Link(self._api, self.job, registration, virtual=self._node.clock.virtual)

    # --- the published interface ------------------------------------------------------------------

    def on_step_begin(self) -> None:
        """Call when a training step begins."""
        self._steps += 1
        if self._retry_at is not None and self._steps >= self._retry_at:
            self._try_again()
        if self._closed:
            return
        with self._never_failing():
            self._open = None
            self._in_step = True
            self._link.step()
            self._choose_phase()
            self._phase.begin_step(self._steps)

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
            if self._learning is not None:
                self._report(self._learning)

    def on_instruction_begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> None:
        """Call when a computation begins.

        Returns when the plan lets it begin: under a bound on the swing of power, plans delay some.

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
            due = self._phase.due()
            if due is not None:
                self._node.clock.sleep(max(due - self._node.clock.now(), 0.0))
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
        self._retry_at = None
        self._end()
        self._link.close()

    # --- inspection -------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Current phase: "watching", "measuring", "waiting", "following" or "off"."""
        if self._closed:
            return "off"
        names = {Watching: "watching", Exploring: "measuring", Following: "following"}
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

    def due(self) -> float | None:
        """Return the instant before which the plan does not let the next instruction begin.

        By the clock of the node. `on_instruction_begin` waits for it; an engine that has something
        else to do meanwhile may ask.

        Returns:
            `None` if the next instruction is not delayed.
        """
        return None if self._closed or not self._in_step else self._phase.due()

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
        if self._learning is not None:
            self._report(self._learning)
        if self._closed:
            return
        # Until the server has the sequence, its answers are not about this rank yet.
        standing = link.standing if link.sequence_is_told else None
        if standing is not None:
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

    def _report(self, learning: Learning) -> None:
        """Report what was learned to the server."""
        if learning.trouble:
            self._give_up(learning.trouble)
            return
        measured, learning.pending = learning.pending, None
        if measured is not None:
            self._link.report_measurements(measured)
            if isinstance(self._phase, Exploring):
                self._rest()
        progress = learning.progress if isinstance(self._phase, Exploring) else None
        if progress is not None and self._may_report():
            self._link.report_progress(progress)
        if isinstance(self._phase, Following) and self._may_report():
            self._link.report_steps(learning.report())

    def _may_report(self) -> bool:
        """Whether the last report of steps is long enough ago; if so, this is the next one."""
        now = self._node.clock.now()
        if now < self._report_due:
            return False
        if not self._node.clock.virtual:
            self._report_due = now + max(_REPORT_EVERY, self.seat.world_size * _REPORT_SHARE)
        return True

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
        wanted = standing.state == "measure" and not self._link.measurements_are_pending
        if wanted and not isinstance(self._phase, Exploring) and self._may_begin:
            self._explore(standing.known)

    @property
    def _may_begin(self) -> bool:
        """Whether to begin measuring now: tensor-parallel GPUs must begin at the same step."""
        return self.seat.tp_degree == 1 or self._steps % _STEPS_APART == 0

    def _learner(self) -> Learning:
        if self._learning is None:
            self._monitor = ZeusMonitor(
                [self._gpu.index],
                cpu_indices=[],
                sync_execution_with=None,
                node=self._node,
            )
            kinds = list(dict.fromkeys(each.kind for each in self._sequence))
            profiler = Profiler(self._ladder, kinds, waits_first=self.seat.pp_rank > 0)
            self._recorder = StepRecorder(self._monitor)
            self._learning = Learning(self._monitor, self._gpu.index, profiler, len(self._sequence))
        return self._learning

    def _explore(self, known: Measured | None) -> None:
        assert self._setter is not None
        learning = self._learner()
        learning.explore(together=self.seat.tp_degree > 1, known=known)
        self._setter.begin()
        self._enter(Exploring(*self._stepping(learning)))

    def _stepping(
        self, learning: Learning
    ) -> tuple[ClockSetter, Sequence[Instruction], Learning, StepRecorder, Callable[[], None]]:
        assert self._setter is not None
        assert self._recorder is not None
        return self._setter, self._sequence, learning, self._recorder, self._synchronize

    def _follow(self, standing: Directive) -> None:
        assert self._setter is not None
        assert standing.clocks is not None
        wrong = [clock for clock in standing.clocks if clock and clock not in self._setter.ladder]
        if wrong:
            raise PipelineError(f"a plan must use clocks of this GPU, but has {wrong[0]} MHz")
        learning = self._learner()
        phase = Following(
            standing.clocks,
            standing.time or 1.0,
            *self._stepping(learning),
            standing.version,
            references=not standing.capped,
            reference=standing.reference,
            not_before=standing.not_before or (),
            now=self._node.clock.now,
        )
        self._setter.begin()
        self._enter(phase)

    def _rest(self) -> None:
        self._enter(Phase())
        if self._setter is not None:
            self._setter.end()

    def _enter(self, phase: Phase) -> None:
        left, self._phase = self._phase, phase
        left.leave()

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
            self._retry_at = self._steps + self._retry_after
            self._retry_after *= _RETRY_FACTOR
        self._end()

    def _try_again(self) -> None:
        """Take part again, if clocks can be set now; else try later, and report nothing."""
        self._retry_at = None
        try:
            self._find_clocks()
            assert self._setter is not None
            self._setter.begin()
            self._setter.end()
        except (ZeusError, OSError):
            self._retry_at = self._steps + self._retry_after
            self._retry_after *= _RETRY_FACTOR
            return
        logger.info("rank %d takes part again", self.seat.rank)
        self._link.close(wait=False)
        self.trouble, self._closed, self._in_step = "", False, False
        self._learning = self._recorder = self._followed = None
        self._sequence = ()
        self._phase = self._watching = Watching(self._warm_up_steps)
        self._link = self._new_link()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ZeusError, OSError):
            self._enter(Phase())
        if self._setter is not None:
            self._setter.close()
        if self._learning is not None:
            self._learning.close()
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
