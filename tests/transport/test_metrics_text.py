"""Pages of metrics, also of programs that do not write them well."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zeus.transport._metrics_text import read_samples

PAGE = r"""
# HELP energy_total Energy.
# TYPE energy_total counter
energy_total{gpu="0",name="a \"b\" \\ c\nd"} 12.5
energy_total{ gpu = "1" , } 1e3 1700000000000
energy_total{gpu="2"} NaN
energy_total{gpu="3"} +Inf
energy_total{gpu="4"} 1e
energy_total{gpu="5" 7
plain 3
other:rate{x="}"} -1
"""


def test_samples_have_their_labels_and_what_is_wrong_is_skipped():
    assert read_samples(PAGE) == {
        "energy_total": [
            ({"gpu": "0", "name": 'a "b" \\ c\nd'}, 12.5),
            ({"gpu": "1"}, 1000.0),
        ],
        "plain": [({}, 3.0)],
        "other:rate": [({"x": "}"}, -1.0)],
    }


def test_only_what_is_wanted():
    assert read_samples(PAGE, "pl") == {"plain": [({}, 3.0)]}


@given(st.text())
def test_anything_is_a_page(text):
    read_samples(text)
