"""The page of metrics, read by the parser of `prometheus-client`."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from zeus.telemetry import prometheus_collector
from zeus.telemetry._collection import Telemetry
from zeus.telemetry._metrics import Family, Kind, Metric
from zeus.telemetry._text_format import TextFormat
from zeus.testing import SimulatedNode


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    found = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
    assert len(found) == len(samples), "a series occurs twice"
    return found


@given(
    st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4, unique=True),
    st.floats(allow_nan=False),
)
def test_any_label_value_and_number_comes_back(labels, value):
    metric = Metric("zeus_some_watts", "Any \\ text\nin two lines.", ("first", "second"))
    family = Family(metric, [((first, second), value) for first, second in labels])
    for _ in range(2):  # the second time from memory
        found = parsed(TextFormat().text([family]))
        assert found == {
            ("zeus_some_watts", (("first", first), ("second", second))): value
            for first, second in labels
        }


def test_a_number_that_is_none():
    family = Family(Metric("zeus_some_total", "Some.", kind=Kind.COUNTER), [((), math.nan)])
    text = TextFormat().text([family])
    assert text.endswith("# TYPE zeus_some_total counter\nzeus_some_total NaN\n")


def test_the_page_is_that_of_prometheus_client():
    node = SimulatedNode("a100x2,mi250x", load=0.7)
    telemetry = Telemetry(node)
    registry = CollectorRegistry()
    registry.register(prometheus_collector(node))
    ours = TextFormat().text(telemetry.collect())
    theirs = generate_latest(registry).decode()

    def comparable(text: str) -> dict[object, float]:
        return {key: value for key, value in parsed(text).items() if "duration" not in key[0]}

    assert comparable(ours) == comparable(theirs)
    kinds = [{line for line in page.splitlines() if line[0] == "#"} for page in (ours, theirs)]
    assert kinds[0] == kinds[1]
