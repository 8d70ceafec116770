"""Profiles of one rank from a few steps at several clocks, against its true times and powers."""

from __future__ import annotations

import math

import pytest
from tests.optimizer.pipeline_frequency.running.curves import (
    BACKWARD,
    FORWARD,
    HIGHEST,
    LADDER,
    VISITED,
    WAITING,
    Errors,
)
from tests.optimizer.pipeline_frequency.running.ranks import Rank
from tests.present import present

from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._profiler import DEFAULT_LAG, Profiler
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecord

KINDS = (FORWARD, BACKWARD)


def slots(step: int, count: int = 16) -> list[float]:
    """Four instructions at the highest clock and four at a lower one, in turns."""
    lower = [clock for clock in VISITED if clock != HIGHEST]
    found: list[float] = []
    for slot in range(count // 4):
        number = step * count // 8 + slot // 2
        found += [float(lower[number % len(lower)] if slot % 2 else HIGHEST)] * 4
    return found


def taught(rank: Rank, steps: int = 10, profiler: Profiler | None = None) -> Profiler:
    found = profiler or Profiler(LADDER, KINDS)
    for step in range(steps):
        rank.teach(found, slots(step))
    return found


def test_times_and_energies_are_near_the_truth_after_ten_steps():
    """25 and 50 ms, 15 ms of lag, work that varies by 5 %, a counter that ticks every 100 ms."""
    times, energies = Errors(), Errors()
    for seed in range(12):
        rank = Rank(seed=seed)
        profiler = taught(rank)
        for kind in KINDS:
            for clock in (each for each in LADDER if each >= VISITED[-1]):
                option = present(profiler.option(kind, clock))
                truth = rank.time(kind, clock)
                times.add(option.time, truth, profiler.times.uncertainty(kind, clock))
                energies.add(option.energy, truth * rank.power(clock), 1.0)
    assert times.median <= 0.01
    assert times.most <= 0.035
    assert times.coverage >= 0.84
    assert energies.median <= 0.012
    assert energies.most <= 0.04


@pytest.mark.parametrize("seconds", [(0.005, 0.005), (0.02, 0.02), (0.04, 0.04)])
def test_energies_are_near_the_truth_however_short_instructions_are(seconds):
    """Some are twenty times shorter than a tick of the counter."""
    errors = Errors()
    steps = math.ceil(0.75 / (8 * sum(seconds)))
    for seed in range(6):
        rank = Rank(seconds, seed=seed, microbatches=8 * steps)
        profiler = Profiler(LADDER, KINDS)
        for step in range(12):
            length = 4 * max(1, math.ceil(0.1 / (4 * seconds[0])))
            short = slots(step, 16 * steps)
            stretched = [short[4 * (at // length) % len(short)] for at in range(len(short))]
            rank.teach(profiler, stretched)
        for kind in KINDS:
            for clock in (HIGHEST, 1260, 1080):
                option = present(profiler.option(kind, clock))
                errors.add(option.energy, rank.time(kind, clock) * rank.power(clock), 1.0)
    assert errors.median <= 0.02
    assert errors.most <= 0.06


def test_the_power_of_waiting_is_found():
    """In a bubble of the pipeline; refreshes that all contain the same share of it say less."""
    for seed in range(6):
        profiler = taught(Rank(seed=seed, bubble=0.15))
        assert profiler.powers.waiting() == pytest.approx(WAITING, rel=0.05)


@pytest.mark.parametrize("lag", [0.004, 0.008, 0.015, 0.02])
def test_the_lag_is_found(lag):
    found = [taught(Rank(seed=seed, lag=lag), steps=25).lag for seed in range(5)]
    errors = sorted(abs(present(each) - lag) for each in found)
    assert errors[2] <= 0.003
    assert errors[-1] <= 0.007


def test_the_sum_over_a_step_is_the_energy_of_the_step():
    """What was learned, for whatever ran, adds up to what the counter showed."""
    rank = Rank(bubble=0.15)
    profiler = taught(rank, 15)
    rank.teach(profiler, [HIGHEST] * 16)
    for clock in (HIGHEST, 1170):
        rank.step([clock] * 16)  # from here on the clock is in force
        before = rank.energy
        record = rank.step([clock] * 16)
        computed = waited = 0.0
        since = record.begin
        for kind, begin, end in zip(record.kinds, record.begins, record.ends, strict=True):
            computed += present(profiler.powers.power(kind, clock)) * (end - begin)
            waited += begin - since
            since = end
        waited += record.end - since
        learned = computed + present(profiler.powers.waiting()) * waited
        assert learned == pytest.approx(rank.energy - before, rel=0.01)


def test_instructions_in_which_the_clock_changes_are_not_counted():
    rank = Rank(variation=0.0)
    profiler = Profiler(LADDER, KINDS)
    rank.teach(profiler, [HIGHEST] * 16)
    assert profiler.times.count(FORWARD) == 8
    rank.teach(profiler, [HIGHEST] * 8 + [1080] * 8)
    # One forward ran at either clock, and its backward began within the longest lag.
    assert profiler.times.count(FORWARD) == 15
    for clock in (HIGHEST, 1080):
        assert profiler.times.time(FORWARD, clock) == pytest.approx(
            rank.time(FORWARD, clock), rel=2e-3
        )


# --- drift ----------------------------------------------------------------------------------------


def test_no_drift_is_found_where_there_is_none():
    false = 0
    for seed in range(8):
        rank = Rank(seed=seed)
        profiler = taught(rank)
        for step in range(40):
            rank.teach(profiler, slots(step))
            false += bool(profiler.drift())
    assert false <= 4  # of 320 steps, in a world where work varies by 5 %


@pytest.mark.parametrize("factor", [1.2, 0.85, 1.1])
def test_a_drift_is_found_within_three_steps_and_corrected(factor):
    for seed in range(5):
        rank = Rank(seed=seed)
        profiler = taught(rank, 20)
        profiler.drift()
        rank.slow = factor
        steps = 0
        found: set[InstructionKind] = set()
        while found != set(KINDS):
            rank.teach(profiler, slots(steps))
            found |= set(profiler.drift())
            steps += 1
            assert steps <= (3 if factor != 1.1 else 12), f"not found: {set(KINDS) - found}"
        for _ in range(8):
            rank.teach(profiler, slots(steps))
            profiler.drift()
            steps += 1
        for kind in KINDS:
            for clock in VISITED:
                expected = rank.time(kind, clock)
                assert profiler.times.time(kind, clock) == pytest.approx(expected, rel=0.05)


def test_a_drift_is_returned_once():
    rank = Rank(variation=0.0)
    profiler = taught(rank)
    rank.slow = 1.2
    rank.teach(profiler, slots(0))
    assert profiler.drift() == {kind: pytest.approx(1.2, rel=0.02) for kind in KINDS}
    assert profiler.drift() == {}
    rank.teach(profiler, slots(1))
    assert profiler.drift() == {}


# --- reports --------------------------------------------------------------------------------------


def test_nothing_is_reported_before_all_kinds_are_known():
    profiler = Profiler(LADDER, KINDS)
    assert profiler.measured(1) is None
    assert profiler.option(FORWARD, HIGHEST) is None
    assert profiler.cost(FORWARD, HIGHEST) is None
    assert profiler.durations() == {}


def test_a_report_has_what_a_plan_needs():
    rank = Rank()
    profiler = taught(rank, 25)
    found = present(profiler.measured(3, urgent=True))
    assert (found.revision, found.urgent, found.steps) == (3, True, 25)
    assert found.variation == pytest.approx(0.05, rel=0.15)
    assert found.lag == profiler.lag
    assert found.blocking_power == profiler.powers.waiting()
    assert [len(each.begins) for each in found.passages] == [16] * 6
    for options in found.options.values():
        clocks = [present(option.frequency) for option in options]
        assert clocks == sorted(clocks, reverse=True)
        assert clocks[0] == HIGHEST
        assert clocks[-1] >= VISITED[-1], "lower clocks were not measured"


def test_times_that_are_not_sure_are_reported_longer_but_for_the_fastest():
    profiler = taught(Rank())
    for kind, options in present(profiler.measured(1)).options.items():
        for option in options:
            clock = present(option.frequency)
            time = present(profiler.times.time(kind, clock))
            if clock == HIGHEST:
                assert option.time == time
            else:
                assert time < option.time <= 1.05 * time


def test_until_the_lag_is_known_a_usual_one_is_reported():
    rank = Rank(variation=0.0)
    profiler = Profiler(LADDER, KINDS)
    rank.teach(profiler, [HIGHEST] * 16)
    assert profiler.lag is None
    assert present(profiler.measured(1)).lag == DEFAULT_LAG


def test_an_instruction_of_fixed_time_has_one_option_without_a_clock():
    """The least of its times: any time beyond was spent waiting for others."""
    receive = InstructionKind("receive", 0)
    profiler = Profiler(LADDER, [FORWARD, receive])
    assert profiler.chosen == (FORWARD,)
    rank = Rank(variation=0.0)
    for number in range(4):
        record = rank.step([HIGHEST] * 16)
        record.kinds = [FORWARD, receive] * 8
        record.number = number
        profiler.add_step(record, rank.requests if not number else (), 16)
        profiler.add_energies(rank.ticks())
    (option,) = present(profiler.measured(1)).options[receive]
    assert option.frequency is None
    assert option.time == pytest.approx(0.05, rel=1e-6)


def test_a_step_that_was_not_synchronized_teaches_nothing():
    rank = Rank()
    profiler = Profiler(LADDER, KINDS)
    record = rank.step([HIGHEST] * 16)
    record.exact = False
    profiler.add_step(record, rank.requests, 16)
    profiler.add_energies(rank.ticks())
    assert profiler.steps == 1
    assert profiler.times.count(FORWARD) == 0
    assert len(profiler.powers) == 0


def test_a_step_with_another_number_of_instructions_is_no_passage():
    rank = Rank()
    profiler = taught(rank, 2)
    short = rank.step([HIGHEST] * 16)
    half = StepRecord(9, short.begin, short.end, short.kinds[:8], short.begins[:8], short.ends[:8])
    profiler.add_step(half, (), 16)
    assert [each.step for each in present(profiler.measured(1)).passages] == [1, 2]


class BentRank(Rank):
    """Becomes slower faster below 90 % of the highest clock, which plans above it do not show."""

    def time(self, kind: InstructionKind, clock: float) -> float:
        return super().time(kind, clock) * (1 + 0.5 * max(HIGHEST / clock - 1 / 0.9, 0.0))


@pytest.mark.thorough
def test_clocks_that_no_plan_uses_are_neither_forgotten_nor_left_behind():
    """For 2,000 steps under a plan; then everything becomes slower, at once and bit by bit."""
    rank = BentRank(seed=6)
    profiler = taught(rank, 12)
    every = [(kind, clock) for kind in KINDS for clock in VISITED]
    explored = [present(profiler.times.time(*each)) for each in every]
    unsure = profiler.times.uncertainty(FORWARD, 990)
    plan = [1290.0] * 8 + [1380.0] * 8

    def errors() -> float:
        """Return the largest, of all clocks that were explored."""
        pairs = ((present(profiler.times.time(*each)), rank.time(*each)) for each in every)
        return max(abs(found / truth - 1) for found, truth in pairs)

    most = errors() + 0.01  # what a few instructions at a clock show, and little more
    assert most <= 0.025
    for _ in range(2_000):
        rank.learn_times(profiler, plan)
        assert not profiler.drift()
    assert [profiler.times.time(*each) for each in every] == pytest.approx(explored, rel=0.03)
    assert errors() <= most
    assert profiler.times.uncertainty(FORWARD, 990) <= 1.2 * unsure
    rank.slow = 1.2
    rank.learn_times(profiler, plan)
    assert set(profiler.drift()) == set(KINDS)
    for _ in range(30):
        rank.learn_times(profiler, plan)
    assert errors() <= most
    for _ in range(500):  # by 5 % in all, which is never seen as a drift
        rank.slow *= 1.05 ** (1 / 500)
        rank.learn_times(profiler, plan)
        assert not profiler.drift()
    for _ in range(100):
        rank.learn_times(profiler, plan)
    assert errors() <= most


class AheadRank(Rank):
    """Requests clocks ahead, as clients do: to change when an instruction is expected to end."""

    def follow(self, profiler: Profiler, clocks: list[float]) -> None:
        self.number += 1
        record = StepRecord(self.number, self.now)
        for kind, clock, coming in zip(self.kinds, clocks, [*clocks[1:], clocks[0]], strict=True):
            record.kinds.append(kind)
            record.begins.append(self.now)
            if coming != clock:
                ends = self.now + present(profiler.times.time(kind, clock)) + self.wait
                self.requests.append((ends - self.lag, coming))
            self._run(kind)
            record.ends.append(self.now)
            self._pass(self.wait, WAITING)
        record.end = self.now
        profiler.add_step(record, self.requests[self._taken :], len(self.kinds))
        self.requests = self.requests[-3:]
        self._taken = len(self.requests)
        del self._energies[:-1]


@pytest.mark.parametrize("clocks", [(HIGHEST, 1290.0), (1290.0, HIGHEST)])
def test_instructions_that_end_at_the_next_clock_count_as_well(clocks):
    """Else the long ones would be missing, and a kind would seem to be ever faster."""
    rank = AheadRank(seed=4)
    profiler = taught(rank, 12)
    for _ in range(150):
        rank.follow(profiler, list(clocks) * 8)
    for kind, clock in zip(KINDS, clocks, strict=True):
        assert profiler.times.time(kind, clock) == pytest.approx(rank.time(kind, clock), rel=0.015)
    assert profiler.times.variation == pytest.approx(0.05, rel=0.15)
