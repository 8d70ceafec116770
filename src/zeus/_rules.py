"""Rules for single values: ranges of numbers, whole numbers, texts, choices and lists of these.

A rule is a value of its own. It checks what it is given, in the words of one place:
``Number(0, 1, above=True).check("share", 2.0, KnobError)`` raises a `KnobError` with the rule and
the value. In an annotation, ``Annotated[float, Number(0, 1)]``, it is the rule of a dataclass's
field: `enforce` checks all of them, and the server documents and enforces them for its requests.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints


class Rule(Protocol):
    """A rule for a value."""

    def check(self, name: str, value: Any, error: type[Exception]) -> Any:
        """Return the value in its plain type.

        Raises:
            Exception: Of the class `error`, if the value breaks the rule; its message names both.
        """


@dataclass(frozen=True)
class Number:
    """A finite number.

    Attributes:
        least: Minimum.
        most: Maximum.
        above: Whether the number must be above `least`, not equal.
    """

    least: float = -math.inf
    most: float = math.inf
    above: bool = False

    def check(self, name: str, value: Any, error: type[Exception]) -> float:
        """Return the value as a float; see `Rule`."""
        if not is_number(value):
            raise error(f"`{name}` must be a number, but got {shown(value)}")
        try:
            number = float(value)
        except OverflowError:  # an integer that is too large for a float
            number = math.inf if value > 0 else -math.inf
        within = self.least <= number <= self.most and not (self.above and number == self.least)
        if within and math.isfinite(number):
            return number
        if within or (math.isinf(self.least) and math.isinf(self.most)):
            raise error(f"`{name}` must be a finite number, but got {shown(value)}")
        rule = _range(name, f"{self.least:g}", f"{self.most:g}", above=self.above)
        raise error(f"`{rule}` must hold, but got {shown(value)}")


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`, if there is one."""

    least: int = 0
    most: int | None = None

    def check(self, name: str, value: Any, error: type[Exception]) -> int:
        """Return the value as an int; see `Rule`."""
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise error(f"`{name}` must be a whole number, but got {shown(value)}")
        number = int(value)
        if number < self.least or (self.most is not None and number > self.most):
            rule = _range(name, str(self.least), "inf" if self.most is None else str(self.most))
            raise error(f"`{rule}` must hold, but got {shown(value)}")
        return number


@dataclass(frozen=True)
class Text:
    """A text that can be printed and stored anywhere.

    Attributes:
        most: Maximum number of characters.
        empty: Whether it may be empty.
    """

    most: int
    empty: bool = False

    def check(self, name: str, value: Any, error: type[Exception]) -> str:
        """Return the value; see `Rule`."""
        if not isinstance(value, str):
            raise error(f"`{name}` must be a text, but got {shown(value)}")
        if not (value.strip() or (self.empty and not value)):
            raise error(f"`{name}` must not be empty, but got {shown(value)}")
        if len(value) > self.most:
            raise error(f"`{name}` must have at most {self.most} characters, but got {len(value)}")
        if not value.isprintable():
            raise error(f"`{name}` must be printable, but got {shown(value)}")
        return value


@dataclass(frozen=True)
class Note:
    """A text for people: what cannot be printed is replaced, and what is too long is cut.

    Attributes:
        kept: Number of characters that are kept.
        most: Maximum number of characters that may be sent.
    """

    kept: int
    most: int

    def check(self, name: str, value: Any, error: type[Exception]) -> str:
        """Return the value as it is kept; see `Rule`."""
        if not isinstance(value, str):
            raise error(f"`{name}` must be a text, but got {shown(value)}")
        text = "".join(c if c.isprintable() or c == "\n" else "�" for c in value)
        return text if len(text) <= self.kept else text[: self.kept - 1] + "…"


@dataclass(frozen=True)
class OneOf:
    """One of several words."""

    words: tuple[str, ...]

    def check(self, name: str, value: Any, error: type[Exception]) -> str:
        """Return the value; see `Rule`."""
        if not isinstance(value, str) or value not in self.words:
            known = ", ".join(self.words)
            raise error(f"`{name}` must be one of {known}, but got {shown(value)}")
        return str(value)


@dataclass(frozen=True)
class Numbers:
    """A list of numbers.

    Attributes:
        each: Rule of its items.
        least: Minimum number of items.
        most: Maximum number of items.
    """

    each: Number | Whole
    least: int
    most: int

    def check(self, name: str, value: Any, error: type[Exception]) -> tuple[Any, ...]:
        """Return the value as a tuple; see `Rule`."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise error(f"`{name}` must be a list of numbers, but got {shown(value)}")
        items = tuple(self.each.check(name, item, error) for item in value)
        if not self.least <= len(items) <= self.most:
            raise error(
                f"`{name}` must be {self.least} to {self.most} numbers, but got {len(items)}"
            )
        return items


@dataclass(frozen=True)
class Texts:
    """A list of texts that differ from each other.

    Attributes:
        each: Rule of its items.
        most: Maximum number of items.
    """

    each: Text
    most: int

    def check(self, name: str, value: Any, error: type[Exception]) -> tuple[str, ...]:
        """Return the value as a tuple; see `Rule`."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise error(f"`{name}` must be a list of texts, but got {shown(value)}")
        items = tuple(self.each.check(name, item, error) for item in value)
        if len(items) > self.most:
            raise error(f"`{name}` must be at most {self.most} texts, but got {len(items)}")
        if len(set(items)) != len(items):
            raise error(f"`{name}` must differ from each other, but got {shown(value)}")
        return items


@dataclass(frozen=True)
class Items:
    """A list of records, which are checked where they are used.

    Attributes:
        each: Type of its items, for the documentation.
        least: Minimum number of items.
        most: Maximum number of items.
    """

    each: Any
    least: int
    most: int

    def check(self, name: str, value: Any, error: type[Exception]) -> Any:
        """Return the value; see `Rule`."""
        if not self.least <= len(value) <= self.most:
            few, many = self.least, self.most
            raise error(f"`{name}` must have {few} to {many} items, but got {len(value)}")
        return value


def is_number(value: Any) -> bool:
    """Whether a value is a real number, which True and False are not."""
    # The two usual types first: asking an abstract class takes ten times as long.
    return type(value) in (float, int) or (isinstance(value, Real) and not isinstance(value, bool))


def shown(value: Any) -> str:
    """Return the value for an error message, truncated to 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # an int with more digits than Python converts
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


def enforce(record: Any, error: type[Exception], but: Sequence[str] = ()) -> None:
    """Check the fields of a frozen dataclass by the rules in their annotations.

    Fields become the plain types of their rules. `None` is accepted where the annotation says so.

    Args:
        record: The dataclass.
        error: Class of the error.
        but: Fields that are not checked.

    Raises:
        Exception: Of the class `error`, if a field breaks its rule.
    """
    kind: Any = type(record)
    for name, rule, optional in rules_of(kind):
        value = getattr(record, name)
        if (value is not None or not optional) and name not in but:
            checked = rule.check(name, value, error)
            if checked is not value:
                object.__setattr__(record, name, checked)


@lru_cache(maxsize=256)
def rules_of(kind: type) -> Sequence[tuple[str, Rule, bool]]:
    """Return name and rule of the fields that have one, and whether they may be `None`."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        for part in parts:
            if get_origin(part) is Annotated:
                found.append((name, part.__metadata__[0], type(None) in parts))
    return found


def _range(name: str, least: str, most: str, *, above: bool = False) -> str:
    if most == "inf":
        return f"{name} {'>' if above else '>='} {least}"
    if least == "-inf":
        return f"{name} <= {most}"
    return f"{least} {'<' if above else '<='} {name} <= {most}"


# --- times as people write them -----------------------------------------------------------------

TIME_FORM = 'seconds, or a time such as "250 ms", "1.5 min" or "2 h"'
_TIME_UNITS = {"µs": 1e-6, "ms": 1e-3, "min": 60.0, "s": 1.0, "h": 3600.0}


def read_seconds(text: str) -> float:
    """Read a time in seconds, or with the unit that tables show it in.

    Raises:
        ValueError: If it has another form; `TIME_FORM` says which.
    """
    words = text.strip()
    unit = next((unit for unit in _TIME_UNITS if words.endswith(unit)), "")
    return float(words.removesuffix(unit)) * _TIME_UNITS.get(unit, 1.0)
