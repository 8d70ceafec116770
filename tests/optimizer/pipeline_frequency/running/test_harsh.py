"""From the first step to a plan that holds, in a world as harsh as real clusters are.

A100 sensors (a counter that ticks every 100 ms, a power meter that averages), 15 ms from asking for
a clock to having it, and work that varies by 5 %: four stages on simulated GPUs, eight microbatches
of 25 and 50 ms, in virtual time. Every iteration is compared with the same one without Zeus, whose
work varies alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.present import present

from zeus.device._simulated_models import MODELS
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.job._supervision import Saved
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store
from zeus.testing._pipeline_training import PipelineTraining, TrainedIteration

pytestmark = pytest.mark.slow  # whole trainings, in virtual time

MODEL = MODELS["a100"]
WAITING = MODEL.busy_power(1.0, 0.0)  # 83 W
LAG = 0.015
LOADS = (1.0, 1.0, 1.0, 1.1)
FORWARD, BACKWARD = InstructionKind("forward", 0), InstructionKind("backward", 0)

Disturbing = Callable[[int, PipelineTraining], None]


class Row(NamedTuple):
    """One iteration with Zeus, and the same without."""

    ours: TrainedIteration
    plain: TrainedIteration
    state: str
    events: int
    """Events of the job so far."""
    references: int
    """Reference steps that what is saved was measured with; 0 while it is unknown."""


class Run:
    """Some iterations of both worlds.

    Attributes:
        rows: The iterations.
        events: Of the job.
        saved: What the server last said to be saved.
        last: Joules of each GPU in the last iteration, in truth.
        learned: What each rank has learned.
        troubles: Why ranks do not take part, if any does not.
    """

    def __init__(
        self, directory: Any, steps: int, disturb: Disturbing | None = None, **options: Any
    ) -> None:
        world: dict[str, Any] = {
            "loads": LOADS,
            "microbatches": 8,
            "seconds": (0.025, 0.05),
            "sensors": "a100",
            "clock_lag": LAG,
            "variation": 0.05,
            **options,
        }
        self.training, plain = PipelineTraining(**world), PipelineTraining(**world)
        store = Store(f"sqlite:///{directory}/jobs.db")
        api = Pipelines(store, now=self.training.node.clock.now)
        self.training.connect(api)
        self.rows: list[Row] = []
        self.saved: Saved | None = None
        for step in range(steps):
            energies, self.began = self._energies(), self.training.node.clock.now()
            for each in (self.training, plain):
                if disturb is not None:
                    disturb(step, each)
            (ours,), (other,) = self.training.iterate(), plain.iterate()
            states = {optimizer.state for optimizer in self.training.optimizers}
            state = states.pop() if len(states) == 1 else "mixed"
            saved = api.saved("test")
            references = 0 if saved is None else saved.references
            self.rows.append(Row(ours, other, state, len(api.events("test")), references))
            self.saved = saved or self.saved
            self.last = [
                after - before for before, after in zip(energies, self._energies(), strict=True)
            ]
        self.events = list(reversed(api.events("test")))
        self.learned = [
            present(optimizer._learning).profiler for optimizer in self.training.optimizers
        ]
        self.troubles = [optimizer.trouble for optimizer in self.training.optimizers]
        self.training.close()
        store.close()

    def _energies(self) -> list[float]:
        node = self.training.node
        return [node.exact_energy(gpu) for gpu in range(len(node.gpus))]

    @property
    def first_plan(self) -> int:
        """Number of the first step under a plan, from 1."""
        return 1 + [row.state for row in self.rows].index("following")

    def slowdown(self, first: int, last: int | None = None) -> float:
        """Of the mean time of these steps, relative."""
        rows = self.rows[first:last]
        ours, plain = (math.fsum(each) for each in zip(*map(_times, rows), strict=True))
        return ours / plain - 1

    def tail_slowdown(self, first: int) -> float:
        """The same of the 95th percentile."""
        times = zip(*map(_times, self.rows[first:]), strict=True)
        ours, plain = (statistics.quantiles(each, n=20)[-1] for each in times)
        return ours / plain - 1

    def saving(self, first: int, last: int | None = None) -> float:
        """Share of the energy that is saved in these steps."""
        rows = self.rows[first:last]
        ours = math.fsum(row.ours.energy for row in rows)
        plain = math.fsum(row.plain.energy for row in rows)
        return 1 - ours / plain

    def kinds(self, kind: str) -> list[int]:
        """Numbers of the steps after which events of a kind were there, from 0."""
        found = []
        for number, event in enumerate(self.events):
            if event.kind == kind:
                found.append(next(at for at, row in enumerate(self.rows) if row.events > number))
        return found


def _times(row: Row) -> tuple[float, float]:
    return row.ours.time, row.plain.time


def energy(training: PipelineTraining, rank: int, kind: InstructionKind, clock: float) -> float:
    """Joules of an instruction at a clock, in truth."""
    share = MODEL.relative_clock(0.9, MODEL.maximum_limit, clock)
    seconds = training.seconds[kind == BACKWARD] * training.loads[rank]
    return seconds * (0.8 / share + 0.2) * MODEL.busy_power(share, 0.9)


# --- a usual run ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.thorough)])
def usual(request, tmp_path_factory) -> Run:
    return Run(tmp_path_factory.mktemp("usual"), 50, seed=request.param)


def test_a_first_plan_is_there_by_the_tenth_step_and_steps_are_hardly_slower_meanwhile(usual):
    assert usual.troubles == [""] * 4
    assert usual.first_plan <= 10
    assert usual.slowdown(0, usual.first_plan - 1) <= 0.10


def test_the_plan_saves_energy_and_keeps_the_time_in_the_mean_and_at_the_95th(usual):
    """From step 27 on, reference steps at the highest clocks included."""
    assert usual.slowdown(26) <= 0.01
    assert usual.tail_slowdown(26) <= 0.015
    assert usual.saving(26) >= 0.045


def test_nobody_measures_again_where_nothing_has_changed(usual):
    assert usual.kinds("slower") == []
    assert all(row.state == "following" for row in usual.rows[usual.first_plan :])


def test_the_saving_that_is_shown_was_measured(usual):
    """Against reference steps, of which there are few in so short a run."""
    saved = present(usual.saved)
    assert saved.energy == pytest.approx(usual.saving(26, 49), abs=0.02)
    assert saved.steps >= 10
    assert saved.references >= 2


def test_the_power_of_waiting_is_right(usual):
    """That of all ranks, which plans are made with: some ranks hardly wait."""
    found = [present(each.powers.waiting()) for each in usual.learned]
    assert statistics.median(found) == pytest.approx(WAITING, rel=0.03)
    assert found == [pytest.approx(WAITING, rel=0.1)] * 4


def test_the_lag_is_right_within_some_milliseconds(usual):
    found = [present(each.lag) for each in usual.learned]
    assert statistics.median(found) == pytest.approx(LAG, abs=0.004)
    assert found == [pytest.approx(LAG, abs=0.008)] * 4


def test_the_variation_is_right(usual):
    found = [each.times.variation for each in usual.learned]
    assert found == [pytest.approx(0.05, rel=0.2)] * 4
    assert statistics.median(present(each.measured(1)).shared for each in usual.learned) <= 0.3


def errors_of(run: Run) -> list[float]:
    """Of the energies of all instructions at all clocks that are reported."""
    return [
        abs(option.energy / energy(run.training, rank, kind, present(option.frequency)) - 1)
        for rank, each in enumerate(run.learned)
        for kind, options in present(each.measured(1)).options.items()
        for option in options
    ]


def test_energies_of_instructions_are_right(usual):
    errors = errors_of(usual)
    assert len(errors) >= 80
    assert statistics.median(errors) <= 0.02
    assert statistics.quantiles(errors, n=20)[-1] <= 0.06


def test_the_learned_powers_add_up_to_the_energy_of_a_step(usual):
    """Of the last one: computing and waiting, at the clocks that it ran at."""
    for rank, each in enumerate(usual.learned):
        loads = each._loads(usual.began, each._spans[-1].end)
        parts = [present(each.powers._power(load)) * length for load, length in loads]
        assert math.fsum(parts) == pytest.approx(usual.last[rank], rel=0.01), f"rank {rank}"


# --- other instructions ---------------------------------------------------------------------------


@pytest.mark.parametrize(("milliseconds", "seed"), [(5, 3), (20, 3), (40, 3), (40, 101), (160, 3)])
@pytest.mark.thorough(keep=1)
def test_energies_are_right_however_short_instructions_are(tmp_path, milliseconds, seed):
    """Also where a meter that averages seems to be live for a while, as with seed 101."""
    seconds = (milliseconds / 1e3,) * 2
    run = Run(tmp_path, 70 if milliseconds < 10 else 26, seconds=seconds, seed=seed)
    errors = errors_of(run)
    assert run.troubles == [""] * 4
    assert milliseconds < 10 or run.first_plan <= 11
    assert statistics.median(errors) <= 0.025
    assert milliseconds < 10 or statistics.mean(errors) <= 0.025
    assert statistics.median(present(each.powers.waiting()) for each in run.learned) == (
        pytest.approx(WAITING, rel=0.05)
    )


def test_instructions_of_2_and_4_milliseconds_get_a_plan(tmp_path):
    """Shorter than the lag, so that a clock stays for several of them."""
    run = Run(tmp_path, 110, seconds=(0.002, 0.004), seed=1)
    assert run.troubles == [""] * 4
    assert run.rows[-1].state == "following"
    assert run.slowdown(75) <= 0.01
    assert run.saving(75) > 0


@pytest.mark.thorough
def test_microbatches_that_differ_in_size(tmp_path):
    """All instructions of a microbatch vary alike, which adds up along the pipeline."""
    run = Run(tmp_path, 40, shared=True, seed=1)
    assert run.first_plan <= 10
    assert run.slowdown(20) <= 0.01
    assert run.saving(20) >= 0.025
    shares = [present(each.measured(1)).shared for each in run.learned]
    assert statistics.median(shares) >= 0.5


# --- what changes in mid-run ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.thorough(keep=1)
def test_a_stage_that_becomes_slower_is_measured_and_planned_again(tmp_path, seed):
    """By 1.2, from step 26 on."""

    def disturb(step: int, training: PipelineTraining) -> None:
        if step == 25:
            training.slow_rank[0, 2] = 1.2

    run = Run(tmp_path, 46, disturb, seed=seed)
    assert [step for step in run.kinds("drift") if step < 25] == []
    assert min(run.kinds("drift")) <= 28
    assert run.slowdown(35) <= 0.015
    assert run.saving(35) >= 0.04
    # It is the stage that has changed, and no plan is at fault: only that rank measures.
    assert run.kinds("slower") == []
    assert all(row.state == "following" for row in run.rows[25:])
    # What the plan saves now is measured again soon, against a new reference.
    last = max(run.kinds("drift"))
    assert run.rows[last].references == 0
    assert run.rows[min(last + 6, len(run.rows) - 1)].references >= 1


@pytest.mark.thorough
def test_a_pipeline_that_becomes_slower_is_found_without_a_report_and_so_is_its_recovery(tmp_path):
    """By 1.2 from step 21 to step 40; the other of the two then has time to save energy."""

    def disturb(step: int, training: PipelineTraining) -> None:
        training.slow[1] = 1.2 if 20 <= step < 40 else 1.0

    run = Run(tmp_path, 60, disturb, pipelines=2, loads=(1.0, 1.05), seed=1)
    said = [event.message for event in run.events if event.kind == "straggler"]
    at = run.kinds("straggler")
    assert all(message.startswith("pipeline 1 ") for message in said)
    assert 20 <= at[0] <= 30
    healthy = [step for step, message in zip(at, said, strict=True) if "healthy" in message]
    assert len(healthy) == 1, said
    assert 40 <= healthy[0] <= 50
    # The other one is slowed to the straggler's time; the longer of both is a little longer.
    assert run.slowdown(33, 40) <= 0.03
    assert run.saving(33, 40) >= run.saving(13, 20) + 0.04
    # And back.
    assert run.slowdown(52) <= 0.02
    assert run.saving(52) > 0
