"""Rules for single values: what they accept, and how a breach is worded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from zeus._rules import Items, Note, Number, Numbers, OneOf, Text, Whole, enforce, shown
from zeus.errors import KnobError


@pytest.mark.parametrize(
    ("rule", "value", "kept"),
    [
        (Number(0, 1), 1, 1.0),
        (Number(), -1e300, -1e300),
        (Number(0, above=True), 5e-324, 5e-324),
        (Whole(1, 3), 3, 3),
        (Whole(0), 10**400, 10**400),
        (Text(3), "abc", "abc"),
        (Text(3, empty=True), "", ""),
        (Note(3, 9), "a\0cdef", "a�…"),
        (Note(9, 9), "two\nlines", "two\nlines"),
        (OneOf(("a", "b")), "b", "b"),
        (Numbers(Whole(1), 1, 2), [2, 1], (2, 1)),
        (Items(str, 1, 2), ["a"], ["a"]),
    ],
)
def test_what_keeps_a_rule_is_returned_in_its_plain_type(rule, value, kept):
    found = rule.check("value", value, KnobError)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        (Number(0, 1), 2, "`0 <= value <= 1` must hold, but got 2"),
        (Number(0, 1, above=True), 0, "`0 < value <= 1` must hold, but got 0"),
        (Number(0), -1.5, "`value >= 0` must hold, but got -1.5"),
        (Number(0, above=True), 0, "`value > 0` must hold, but got 0"),
        (Number(most=1), 2, "`value <= 1` must hold, but got 2"),
        (Number(0, 1), math.nan, "`0 <= value <= 1` must hold, but got nan"),
        (Number(0), math.inf, "`value` must be a finite number, but got inf"),
        (Number(), math.nan, "`value` must be a finite number, but got nan"),
        (Number(), 10**400, "`value` must be a finite number, but got 1000"),
        (Number(), True, "`value` must be a number, but got True"),
        (Number(), "1", "`value` must be a number, but got '1'"),
        (Whole(1, 1_000_000), 0, "`1 <= value <= 1000000` must hold, but got 0"),
        (Whole(1), 0, "`value >= 1` must hold, but got 0"),
        (Whole(), 1.0, "`value` must be a whole number, but got 1.0"),
        (Whole(), False, "`value` must be a whole number, but got False"),
        (Text(3), " ", "`value` must not be empty, but got ' '"),
        (Text(3), "abcd", "`value` must have at most 3 characters, but got 4"),
        (Text(3), "a\nb", "`value` must be printable, but got 'a\\nb'"),
        (Text(3), None, "`value` must be a text, but got None"),
        (Note(3, 9), 7, "`value` must be a text, but got 7"),
        (OneOf(("a", "b")), "c", "`value` must be one of a, b, but got 'c'"),
        (OneOf(("a", "b")), [], "`value` must be one of a, b, but got []"),
        (Numbers(Whole(1), 1, 2), "12", "`value` must be a list of numbers, but got '12'"),
        (Numbers(Whole(1), 1, 2), [1, 2, 3], "`value` must be 1 to 2 numbers, but got 3"),
        (Numbers(Whole(1), 1, 2), [0], "`value >= 1` must hold, but got 0"),
        (Items(str, 1, 2), [], "`value` must have 1 to 2 items, but got 0"),
    ],
)
def test_a_breach_names_the_rule_and_the_value(rule, value, message):
    with pytest.raises(KnobError) as found:
        rule.check("value", value, KnobError)
    assert str(found.value).startswith(message)


@dataclass(frozen=True)
class Record:
    name: Annotated[str, Text(3)]
    share: Annotated[float, Number(0, 1)] | None = None
    other: object = None


def test_the_rules_of_a_record_are_those_of_its_annotations():
    record = Record("abc", 1, 7)
    enforce(record, KnobError)
    assert (type(record.share), record.other) == (float, 7)
    enforce(Record("abc"), KnobError)
    enforce(Record(""), KnobError, but=("name",))
    nameless: Any = None
    for wrong in (Record(""), Record("abc", 2), Record(nameless)):
        with pytest.raises(KnobError, match=r"`name`|share"):
            enforce(wrong, KnobError)


def test_values_are_shown_briefly():
    assert shown("x" * 100) == repr("x" * 100)[:77] + "..."
    assert shown(10**5000) == "a number of thousands of digits"
