"""Objectives in general: their interface, and the registry of those in `_objectives.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from zeus.errors import FrontierError
from zeus.frontier._frontier import Frontier
from zeus.frontier._point import Point
from zeus.frontier._selection import Selection


@runtime_checkable
class Objective(Protocol):
    """Chooses a point. Subclass it, or write a class with the same methods.

    `as_objective` accepts less: a class with only `select`, or a function from `Frontier` to
    `Point`.
    """

    def select(self, frontier: Frontier) -> Selection:
        """Return the point to use.

        Args:
            frontier: Points to choose from.
        """
        ...

    def settled(self, walk: Frontier) -> bool:  # noqa: ARG002
        """Whether no later point of a sweep can win.

        Args:
            walk: The points so far, in the order of the sweep: time must not decrease and average
                power must not increase from each point to the next.
        """
        return False


# --- the registry -------------------------------------------------------------------------------

Needs = Literal["", "max_power", "latencies"]


def _one_number(text: str) -> tuple[float, ...]:
    """Return the number that is the whole text."""
    return (float(text),)


@dataclass(frozen=True)
class ObjectiveEntry:
    """A registered objective, and how it is spelled on command lines and in tables.

    Commands offer those of other distributions, too (docs/extending.md).

    Attributes:
        kind: The class. It takes no arguments, or those that `arguments` returns.
        goal: Its choice in words, with `{}` for its value: "fastest within {}".
        options: Spellings of the option of commands that sets its value; none if it has no value.
        placeholder: Its value in the help of the option; the first word stands for the value.
        shown: Its value in tables, from its attributes: "{joules:g} J".
        default: Value if the option is not given; if there is none, it is not used then.
        needs: Attribute of a frontier that it needs besides time and energy; empty if none.
        form: Form of the option's text, for errors.
        arguments: Parses the option's text; raises `ValueError`.
        remark: Further words for the help of the option.
    """

    kind: type[Objective]
    goal: str
    options: tuple[str, ...] = ()
    placeholder: str = ""
    shown: str = ""
    default: str = ""
    needs: Needs = ""
    form: str = "a number"
    arguments: Callable[[str], tuple[Any, ...]] = _one_number
    remark: str = ""

    def read(self, text: str) -> Objective:
        """Return the objective of an option's text.

        Args:
            text: What was given to the option.

        Raises:
            FrontierError: If the text has another form, or its value is out of range.
        """
        try:
            arguments = self.arguments(text)
        except ValueError:
            raise FrontierError(f"must be {self.form}, but got {text!r}") from None
        return self.kind(*arguments)

    def label(self, objective: Objective) -> str:
        """Return the name of an objective of this kind, with its value: "EnergyBudget 40 J".

        Args:
            objective: One of this kind.
        """
        return f"{self.kind.__name__} {self._value(objective)}".rstrip()

    def goal_of(self, objective: Objective) -> str:
        """Return the goal of an objective of this kind: "fastest within 40 J".

        Args:
            objective: One of this kind.
        """
        return self.goal.format(self._value(objective))

    @property
    def help(self) -> str:
        """Help of the option, for `argparse`."""
        return (self.goal.format(self.placeholder) + self.remark).replace("%", "%%")

    @property
    def metavar(self) -> str:
        """The option's value in usage."""
        return self.placeholder.partition(" ")[0]

    def _value(self, objective: Objective) -> str:
        return self.shown.format_map(vars(objective))


OBJECTIVES: dict[type, ObjectiveEntry] = {}
"""All objectives of Zeus, in the order in which they are shown."""

_Kind = TypeVar("_Kind", bound=type[Objective])


def registered(goal: str, **spelling: Any) -> Callable[[_Kind], _Kind]:
    """Register an objective: a decorator of its class, with the attributes of `ObjectiveEntry`."""

    def register(kind: _Kind) -> _Kind:
        OBJECTIVES[kind] = ObjectiveEntry(kind, goal, **spelling)
        return kind

    return register


def entry_of(objective: Objective) -> ObjectiveEntry | None:
    """Return the entry of an objective's class or of a superclass; `None` for others."""
    return next((OBJECTIVES[kind] for kind in type(objective).__mro__ if kind in OBJECTIVES), None)


# --- objectives of users ------------------------------------------------------------------------


def as_objective(chooser: Any) -> Objective:
    """Return an objective for an object or a function that can choose.

    Args:
        chooser: An objective; something with only a `select` method; or a function that takes a
            `Frontier` and returns one of its points, or a `Selection`. The
            latter two settle a sweep only at its end.

    Raises:
        FrontierError: If it cannot choose.
    """
    if isinstance(chooser, type):
        raise FrontierError(
            f"an objective must be an object, but got the class {chooser.__name__}; "
            f"write {chooser.__name__}(...)"
        )
    if isinstance(chooser, Objective):
        return chooser
    choose = getattr(chooser, "select", chooser)
    if callable(choose):
        return _Function(choose)
    known = ", ".join(kind.__name__ for kind in OBJECTIVES)
    raise FrontierError(
        "an objective must have a `select` method or be a function of a frontier, "
        f"but got {chooser!r}; Zeus has {known}"
    )


@dataclass(frozen=True)
class _Function(Objective):
    """The choice of a user's function."""

    choose: Callable[[Frontier], Any]

    def select(self, frontier: Frontier) -> Selection:
        choice = self.choose(frontier)
        selection = Selection(choice) if isinstance(choice, Point) else choice
        if not isinstance(selection, Selection) or selection.point not in frontier.points:
            name = getattr(self.choose, "__qualname__", repr(self.choose))
            raise FrontierError(
                f"{name} must return one of the frontier's points or a Selection of one, "
                f"but got {choice!r}"
            )
        return selection
