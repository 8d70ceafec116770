"""The phases of a rank's client: which clock is requested when, and what is recorded."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.errors import PipelineError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.pipeline_frequency.job._messages import Instruction, InstructionKind
from zeus.optimizer.pipeline_frequency.running import _phases as phases
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter
from zeus.optimizer.pipeline_frequency.running._learning import Learning
from zeus.optimizer.pipeline_frequency.running._phases import Exploring, Following, Watching
from zeus.optimizer.pipeline_frequency.running._profiler import Profiler
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecorder
from zeus.testing import SimulatedNode

FORWARD, BACKWARD = Instruction("forward"), Instruction("backward")
KINDS = (FORWARD.kind, BACKWARD.kind)
SECONDS = {"forward": 0.1, "backward": 0.2}
STEP = [FORWARD, BACKWARD] * 2
HIGHEST, LOWER = 1410.0, 1200.0


class Client:
    """What a phase needs, on one simulated GPU; instructions take the same time at all clocks."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.synchronized: list[float] = []
        monitor = ZeusMonitor([0], cpu_indices=[], sync_execution_with=None, node=node)
        self.setter = ClockSetter(node.gpus[0], node.clock)
        self.setter.begin()
        profiler = Profiler(tuple(map(float, self.setter.ladder[::2])), KINDS)
        self.learning = Learning(monitor, 0, profiler, len(STEP))
        self.recorder = StepRecorder(monitor)
        self.learning.durations = {
            (kind, clock): SECONDS[kind.name] for kind in KINDS for clock in (HIGHEST, LOWER)
        }
        self.learning.lag = 0.015

    def parts(self):
        return (
            self.setter,
            STEP,
            self.learning,
            self.recorder,
            lambda: self.synchronized.append(self.node.clock.now()),
        )

    def run(self, phase: phases.Phase, number: int = 1, steps=STEP, gap: float = 0.0) -> None:
        phase.begin_step(number)
        for instruction in steps:
            phase.begin(instruction)
            self.node.sleep(SECONDS[instruction.name])
            phase.end(instruction)
            self.node.sleep(gap)
        phase.end_step()


@pytest.fixture
def client():
    with SimulatedNode("a100", load=0.0) as node:
        client = Client(node)
        yield client
        client.setter.close()


def following(client: Client, planned, number: int = 1, **shape) -> Following:
    return Following(planned, 0.6, *client.parts(), **shape)


# --- watching -------------------------------------------------------------------------------------


def watched(*steps, warm_up: int = 2) -> Watching:
    phase = Watching(warm_up)
    for number, step in enumerate(steps):
        phase.begin_step(number)
        for instruction in step:
            phase.begin(instruction)
            phase.end(instruction)
        phase.end_step()
    return phase


def test_two_equal_steps_in_a_row_are_the_sequence():
    assert watched(STEP).sequence == ()
    assert watched(STEP, STEP).sequence == tuple(STEP)
    assert watched(STEP, [FORWARD], STEP).sequence == ()
    assert watched([FORWARD], STEP, STEP).sequence == tuple(STEP)


def test_warming_up_lasts_as_long_as_was_asked_for():
    assert watched(*[STEP] * 4, warm_up=5).sequence == ()
    assert watched(*[STEP] * 5, warm_up=5).sequence == tuple(STEP)


def test_steps_without_instructions_are_no_sequence():
    assert watched([], [], []).sequence == ()


def test_a_step_with_too_many_instructions_is_refused(monkeypatch):
    monkeypatch.setattr(phases, "MAX_INSTRUCTIONS", 3)
    with pytest.raises(PipelineError, match="at most 3 instructions"):
        watched(STEP)


# --- following a plan -----------------------------------------------------------------------------


def test_a_change_is_requested_ahead_by_the_lag(client):
    """The third instruction begins 0.3 s after the step, and its clock takes 15 ms."""
    began = client.node.clock.now()
    client.setter.requests.clear()
    phase = following(client, [HIGHEST, HIGHEST, LOWER, LOWER])
    phase.begin_step(1)
    requested = []
    for instruction in STEP:
        phase.begin(instruction)
        client.node.sleep(SECONDS[instruction.name])
        requested += list(client.setter.requests)
        client.setter.requests.clear()
        phase.end(instruction)
    assert requested == [(pytest.approx(began + 0.3 - 0.015), LOWER)]


def test_a_gap_between_instructions_is_learned_and_counted(client):
    """Without it, the change would come while the instruction before still runs."""
    phase = following(client, [HIGHEST, LOWER, LOWER, LOWER])
    requested = []
    for number in range(1, 9):
        began = client.node.clock.now()
        client.setter.requests.clear()
        phase.begin_step(number)
        for instruction in STEP:
            phase.begin(instruction)
            client.node.sleep(SECONDS[instruction.name])
            phase.end(instruction)
            client.node.sleep(0.01)
        requested.append([at - began for at, clock in client.setter.requests if clock == LOWER])
        phase.end_step()
    assert requested[0] == [pytest.approx(0.1 - 0.015)]
    assert requested[-1] == [pytest.approx(0.11 - 0.015, abs=1e-4)]


def test_without_known_times_a_clock_is_set_when_the_instruction_before_has_ended(client):
    client.learning.durations = {}
    client.setter.requests.clear()
    began = client.node.clock.now()
    phase = following(client, [HIGHEST, LOWER, LOWER, HIGHEST])
    phase.begin_step(1)
    for instruction in STEP:
        phase.begin(instruction)
        client.node.sleep(SECONDS[instruction.name])
        phase.end(instruction)
    found = [(at - began, clock) for at, clock in client.setter.requests]
    assert found == [(pytest.approx(0.1), LOWER), (pytest.approx(0.4), HIGHEST)]


def test_an_instruction_that_ends_early_has_its_clock_set_then(client):
    """Where it was requested for later, at the end of the computation it is due."""
    client.learning.durations = dict.fromkeys(client.learning.durations, 0.5)
    client.setter.requests.clear()
    began = client.node.clock.now()
    phase = following(client, [HIGHEST, LOWER, LOWER, LOWER])
    phase.begin_step(1)
    phase.begin(FORWARD)
    client.node.sleep(0.1)
    phase.end(FORWARD)
    assert [(at - began, clock) for at, clock in client.setter.requests] == [
        (pytest.approx(0.1), LOWER)
    ]


def test_the_first_clock_of_the_next_step_is_requested_when_the_step_ends(client):
    phase = following(client, [LOWER, LOWER, HIGHEST, HIGHEST])
    client.run(phase)
    assert client.setter.wanted == LOWER


def test_a_step_that_differs_runs_at_the_highest_clock_and_teaches_nothing(client):
    phase = following(client, [LOWER] * 4)
    client.run(phase, 1, [FORWARD, FORWARD, BACKWARD])
    assert client.setter.wanted == HIGHEST
    assert client.learning.profiler.steps == 0
    client.run(phase, 2)
    assert client.setter.wanted == LOWER
    assert client.learning.profiler.steps == 1


def test_a_step_that_is_cut_short_teaches_nothing(client):
    phase = following(client, [LOWER] * 4)
    client.run(phase, 1, STEP[:2])
    assert client.learning.profiler.steps == 0


def test_missing_clocks_are_those_before(client):
    phase = following(client, [None, LOWER, None, HIGHEST])
    assert phase.clocks == (HIGHEST, LOWER, LOWER, HIGHEST)


def test_a_delayed_instruction_is_due_so_long_after_the_first_could_begin(client):
    clock = client.node.clock
    phase = following(client, [HIGHEST] * 4, not_before=[0.0, 0.35, 0.0, 0.9], now=clock.now)
    for number in (1, 2):  # each step counts from its own beginning
        clock.sleep(0.5)
        phase.begin_step(number)
        clock.sleep(0.2)
        arrived = clock.now()
        due = []
        for instruction in STEP:
            due.append(phase.due())
            phase.begin(instruction)
            clock.sleep(SECONDS[instruction.name])
            phase.end(instruction)
        assert due == [None, arrived + 0.35, None, arrived + 0.9]
        phase.end_step()
        assert phase.due() is None
    assert following(client, [HIGHEST] * 4).due() is None


def test_a_first_instruction_may_be_delayed_too(client):
    clock = client.node.clock
    phase = following(client, [HIGHEST] * 4, not_before=[0.05, 0.0, 0.0, 0.0], now=clock.now)
    phase.begin_step(1)
    arrived = clock.now()
    assert phase.due() == arrived + 0.05
    clock.sleep(0.05)
    assert phase.due() == arrived + 0.05  # it does not move


def test_pauses_of_a_plan_are_not_those_of_messages(client):
    clock = client.node.clock
    client.run(following(client, [HIGHEST] * 4, not_before=[0.0, 0.0, 0.5, 0.0], now=clock.now))
    assert present(client.learning.profiler.measured(1)).passages == ()
    client.run(following(client, [HIGHEST] * 4), 2)
    passages = present(client.learning.profiler.measured(1)).passages
    assert [each.step for each in passages] == [2]


def test_delays_of_another_number_are_refused(client):
    with pytest.raises(PipelineError, match="time for each, but got 2 for 4"):
        following(client, [HIGHEST] * 4, not_before=[0.0, 0.1])


def test_a_plan_of_another_length_is_refused(client):
    with pytest.raises(PipelineError, match="got 3 for 4"):
        following(client, [LOWER] * 3)


def test_references_are_taken_at_the_highest_clocks_now_and_then(client):
    phase = following(client, [LOWER] * 4)
    what = {number: phase._choose(number) for number in range(1, 201)}
    fast = [number for number, (clocks, _) in what.items() if set(clocks) == {HIGHEST}]
    assert fast == [12, 24, 50, 100, 150, 200]
    assert {name for number, (_, name) in what.items() if number in fast} == {"reference"}
    assert {name for number, (_, name) in what.items() if number not in fast} == {"planned"}


def test_references_of_short_steps_are_several_and_the_first_does_not_count(client):
    """Of 0.1 s: six of them are long enough for the sensors, and the first begins too slow."""
    phase = Following([LOWER] * 4, 0.1, *client.parts())
    found = [phase._choose(number) for number in range(6 * 12, 6 * 13)]
    assert {tuple(clocks) for clocks, _ in found} == {(HIGHEST,) * 4}
    assert [name for _, name in found] == ["", *["reference"] * 5]
    assert phase._choose(6 * 13)[1] == "planned"


def test_one_more_reference_is_taken_where_the_server_asks_for_it(client):
    phase = following(client, [LOWER] * 4, reference=33)
    fast = [number for number in range(25, 50) if phase._choose(number)[1] == "reference"]
    assert fast == [33]
    # Of short steps a whole round, which begins at this step or later.
    short = Following([LOWER] * 4, 0.2, *client.parts(), reference=80)
    fast = [number for number in range(75, 100) if short._choose(number)[0][0] == HIGHEST]
    assert fast == [81, 82, 83]


def test_waiting_for_the_accelerator_is_rare_where_instructions_are_short(client):
    """At most half a percent of the time of the shortest."""
    phase = following(client, [LOWER] * 4)
    assert [number for number in range(1, 9) if phase._is_exact(number)] == list(range(1, 9))
    client.learning.durations = {(KINDS[0], HIGHEST): 0.002}
    exact = [number for number in range(1, 201) if phase._is_exact(number)]
    assert exact == list(range(20, 201, 20))


def test_a_rank_that_has_measured_nothing_follows_the_plan_of_others(client):
    """Such as one that took the place of another."""
    client.learning.durations = {}
    phase = following(client, [LOWER] * 4)
    client.run(phase)
    assert client.setter.wanted == LOWER


def test_only_changes_of_the_clock_wait_in_a_step_that_is_not_exact(client):
    client.learning.durations = {
        (kind, clock): 0.002 for kind in KINDS for clock in (HIGHEST, LOWER)
    }
    phase = following(client, [HIGHEST, LOWER, LOWER, LOWER])
    client.run(phase, 1)
    assert len(client.synchronized) == 1
    client.synchronized.clear()
    client.run(phase, 20)
    assert len(client.synchronized) == 2 * len(STEP)


# --- exploring ------------------------------------------------------------------------------------


def test_exploring_runs_at_the_clocks_that_were_decided(client):
    phase = Exploring(*client.parts())
    client.learning.explored = [HIGHEST, LOWER, LOWER, HIGHEST]
    assert phase._choose(1) == ([HIGHEST, LOWER, LOWER, HIGHEST], "explored")
    client.learning.explored = None
    assert phase._choose(2) == ([HIGHEST] * 4, "")
    assert all(phase._is_exact(number) for number in range(1, 50))


def test_leaving_in_the_middle_of_a_step_discards_it(client):
    phase = Exploring(*client.parts())
    phase.begin_step(1)
    phase.begin(FORWARD)
    phase.leave()
    assert client.recorder.end_step() is None
    client.run(Exploring(*client.parts()), 2)
    assert client.learning.profiler.steps == 1


def test_a_record_has_the_instants_of_all_instructions(client):
    recorder = client.recorder
    began = client.node.clock.now()
    recorder.begin_step(7, exact=True)
    for name in ("forward", "backward"):
        client.node.sleep(0.01)
        recorder.begin(InstructionKind(name, 0))
        client.node.sleep(SECONDS[name])
        recorder.end()
    client.node.sleep(0.05)
    record = present(recorder.end_step())
    assert (record.number, record.begin, record.end) == (7, began, client.node.clock.now())
    assert record.begins == pytest.approx([began + 0.01, began + 0.12])
    assert record.ends == pytest.approx([began + 0.11, began + 0.32])
    assert record.span == pytest.approx(0.31)
    assert present(record.measurement).time == pytest.approx(0.37)
    assert recorder.end_step() is None
