"""One entry makes an objective known to commands, errors and documents."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.present import present

import zeus.frontier
from zeus.cli import frontier as command
from zeus.cli._parser import Parser, UsageError
from zeus.errors import FrontierError
from zeus.frontier import Frontier, Objective, Point, Selection, _objectives, as_objective
from zeus.frontier._base import OBJECTIVES, entry_of, registered

DOCS = Path(__file__).parents[2] / "docs"
ENTRIES = list(OBJECTIVES.values())
TEXTS = {
    "ZeusCost": ("0.7", "ZeusCost 0.7", "lowest ZeusCost, with weight 0.7 of energy"),
    "MaxSlowdownConstraint": (
        "1.20",
        "MaxSlowdownConstraint 1.2",
        "lowest energy within 1.2 times the fastest",
    ),
    "Deadline": ("3e3", "Deadline 3000 s", "lowest energy within 3000 s"),
    "EnergyBudget": ("40", "EnergyBudget 40 J", "fastest within 40 J"),
    "PowerCap": ("150.5", "PowerCap 150.5 W", "fastest with at most 150.5 W on average"),
    "LatencyBound": (
        "99.9:0.2",
        "LatencyBound p99.9 0.2 s",
        "lowest energy with a latency of at most p99.9 0.2 s",
    ),
    "All": (
        "ttft:p99:1.5,tpot p99:0.06",
        "All ttft p99 1.5 s and tpot p99 0.06 s",
        "lowest energy with latencies of at most ttft p99 1.5 s and tpot p99 0.06 s",
    ),
}


def test_all_objectives_are_registered_and_public():
    assert sorted(kind.__name__ for kind in OBJECTIVES) == _objectives.__all__
    assert all(getattr(zeus.frontier, kind.__name__) is kind for kind in OBJECTIVES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind.__name__)
def test_each_is_spelled_by_its_entry(entry):
    if not entry.options:
        objective = entry.kind()
        assert (entry.label(objective), entry.goal_of(objective)) == (
            entry.kind.__name__,
            entry.goal,
        )
        return
    text, label, goal = TEXTS[entry.kind.__name__]
    objective = entry.read(text)
    assert type(objective) is entry.kind
    assert present(entry_of(objective)) is entry
    assert (entry.label(objective), entry.goal_of(objective)) == (label, goal)
    with pytest.raises(FrontierError, match=f"must be {entry.form}, but got 'much'"):
        entry.read("much")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind.__name__)
def test_each_is_documented(entry):
    arguments = [name for name in inspect.signature(entry.kind).parameters if name != "world_size"]
    signature = f"`{entry.kind.__name__}({', '.join(arguments)})`"
    assert signature in (DOCS / "optimizing.md").read_text(encoding="utf-8")
    commands = (DOCS / "commands.md").read_text(encoding="utf-8")
    of_frontier = commands.partition("## zeus frontier")[2].partition("\n## ")[0]
    of_plan = commands.partition("## zeus plan")[2].partition("\n## ")[0]
    for option in entry.options:
        assert f"`{option} " in of_frontier
        assert entry.needs or f"`{option} " in of_plan


def test_a_class_alone_is_a_new_objective():
    @registered("{}th point", options=("--nth",), placeholder="N", shown="{index:g}")
    @dataclass(frozen=True)
    class Nth(Objective):
        index: float

        def select(self, frontier: Frontier) -> Selection:
            return Selection(frontier.points[int(self.index)])

    try:
        parser = Parser(prog="zeus frontier")
        command.configure(parser)
        arguments = parser.parse_args(["file", "--nth", "1"])
        assert command._chosen_by(arguments)["Nth 1"] == Nth(1.0)
        assert "--nth N               Nth point" in parser.format_help()
        with pytest.raises(UsageError, match="argument --nth: must be a number, but got 'x'"):
            parser.parse_args(["file", "--nth", "x"])
        with pytest.raises(FrontierError, match=r"Zeus has Energy, Time, .*, Nth$"):
            as_objective(3)
    finally:
        del OBJECTIVES[Nth]


def test_objectives_of_users_have_no_entry():
    assert entry_of(as_objective(lambda frontier: frontier.fastest)) is None

    class Hurried(zeus.frontier.LatencyBound):
        pass

    entry = entry_of(Hurried("p99", 1))
    assert entry is not None
    assert entry.needs == "latencies"
    assert Hurried("p99", 1).select(Frontier([Point(1, 1, 1, latencies={"p99": 0.5})])).feasible
