"""Which clocks the first steps visit, and what they cost, with one rank whose truth is known."""

from __future__ import annotations

import math

import pytest
from tests.optimizer.pipeline_frequency.running.curves import BACKWARD, FORWARD, HIGHEST, LADDER
from tests.optimizer.pipeline_frequency.running.ranks import Rank
from tests.present import present

from zeus.optimizer.pipeline_frequency.running._exploration import Exploration
from zeus.optimizer.pipeline_frequency.running._profiler import Profiler

KINDS = (FORWARD, BACKWARD)


class Explored:
    """A rank that explores until it is done."""

    def __init__(self, rank: Rank, most: int = 40, **options: bool) -> None:
        self.profiler = Profiler(LADDER, KINDS)
        exploration = Exploration(LADDER, len(rank.kinds), self.profiler, **options)
        self.clocks: list[list[float]] = []
        self.seconds: list[float] = []
        self.progress = [exploration.progress]
        while not exploration.done:
            assert exploration.steps < most, "it does not end"
            self.clocks.append(exploration.clocks())
            record = rank.teach(self.profiler, self.clocks[-1])
            self.seconds.append(record.end - record.begin)
            exploration.end_step(self.seconds[-1])
            self.progress.append(exploration.progress)
        self.steps = exploration.steps

    @property
    def visited(self) -> set[float]:
        return {clock for step in self.clocks for clock in step}


def usual(rank: Rank, steps: int) -> float:
    """Mean seconds of a step at the highest clock."""
    records = [rank.step([HIGHEST] * len(rank.kinds)) for _ in range(steps)]
    return math.fsum(record.end - record.begin for record in records) / steps


@pytest.mark.parametrize("seed", range(4))
def test_it_ends_within_seven_steps_and_slows_them_by_less_than_a_tenth(seed):
    """Steps of 0.7 s, with 25 and 50 ms instructions; the three steps of warming up excluded."""
    explored = Explored(Rank(seed=seed))
    assert explored.steps <= 7
    mean = math.fsum(explored.seconds) / explored.steps
    assert mean <= 1.1 * usual(Rank(seed=seed), 10)


def test_a_step_at_the_highest_clock_comes_first():
    assert set(Explored(Rank()).clocks[0]) == {HIGHEST}


def test_several_clocks_are_visited_in_each_step():
    explored = Explored(Rank())
    # Some are spared, to keep their mean time.
    assert sum(len(set(step)) >= 3 for step in explored.clocks[1:]) >= 3
    assert len(explored.visited) >= 6
    assert explored.visited <= set(map(float, LADDER))


def test_all_clocks_between_are_known_when_it_ends():
    rank = Rank()
    explored = Explored(rank)
    for kind in KINDS:
        options = present(explored.profiler.measured(1)).options[kind]
        lowest = min(explored.visited)
        between = [clock for clock in LADDER if clock >= lowest]
        assert len(options) >= 0.6 * len(between)
        for option in options:
            truth = rank.time(kind, present(option.frequency))
            assert option.time == pytest.approx(truth, rel=0.12)


def test_clocks_that_no_plan_would_use_are_not_visited():
    """Twice the time of the highest clock is at 44 % of it; energy is least long before."""
    for seed in range(3):
        assert min(Explored(Rank(seed=seed)).visited) >= 0.55 * HIGHEST


def test_it_goes_down_further_only_where_energy_still_falls():
    class Costly(Rank):
        """Draws as much power at all clocks, so that lower ones only take longer."""

        def power(self, clock):
            return 300.0

    for seed in range(3):
        assert min(Explored(Costly(seed=seed)).visited) == 990
        assert min(Explored(Rank(seed=seed)).visited) < 990


def test_slots_are_as_long_as_a_tick_where_instructions_are_short():
    """Of 2 and 4 ms: a slot lasts longer than one step of 48 ms."""
    explored = Explored(Rank((0.002, 0.004), wait=0.0), most=200)
    flat = [clock for step in explored.clocks[1:] for clock in step]
    lengths, since = [], 0
    for at in range(1, len(flat)):
        if flat[at] != flat[at - 1]:
            lengths.append(at - since)
            since = at
    assert min(lengths) * 0.003 >= 0.09
    assert math.fsum(explored.seconds) >= 3.5 - 0.1, "too few refreshes of the sensors"


def test_tensor_parallel_ranks_visit_the_same_clocks_whatever_they_measure():
    """Of any seed and any power: they compute together."""

    class Other(Rank):
        def power(self, clock):
            return 2.0 * super().power(clock) - 30 * (clock / HIGHEST) ** 5

    one, other = (Explored(rank, together=True) for rank in (Rank(seed=1), Other(seed=1)))
    assert one.clocks == other.clocks


def test_known_profiles_are_only_verified():
    explored = Explored(Rank(), known=True)
    assert explored.steps < Explored(Rank()).steps


def test_it_ends_although_nothing_becomes_precise():
    """Work that varies by 40 %."""
    assert Explored(Rank(variation=0.4)).steps <= 26


@pytest.mark.parametrize("options", [{}, {"together": True}, {"known": True}])
def test_progress_comes_close_to_what_it_takes(options):
    explored = Explored(Rank(), **options)
    progress = explored.progress[:-1]  # after the last step it is done
    assert [each.steps for each in progress] == list(range(explored.steps))
    assert all(each.steps < each.expected for each in progress), "never done before it is"
    assert all(abs(each.expected - explored.steps) <= 2 for each in progress[1:])
    assert progress[-1].expected == explored.steps
    assert all(each.clocks <= each.targets for each in progress)
    assert explored.progress[-1].clocks == len(explored.visited)
    mean = math.fsum(explored.seconds[:-1]) / (explored.steps - 1)
    assert progress[-1].left == pytest.approx(mean)


def test_progress_of_short_steps_counts_seconds_not_steps():
    explored = Explored(Rank((0.0025, 0.005)), most=400)
    assert explored.steps > 25
    halfway = explored.progress[explored.steps // 2]
    assert halfway.expected == pytest.approx(explored.steps, rel=0.1)
