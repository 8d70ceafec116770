"""Requests at random, in bursts and from recorded traces."""

from __future__ import annotations

import math
import statistics

import pytest

from zeus.testing import Arrival, Traffic

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_poisson_arrivals_have_the_rate_lengths_and_scatter_that_were_asked_for():
    traffic = Traffic.poisson(5, 4000, prompt=800, generated=150, seed=3)
    gaps = traffic.gaps()
    assert len(traffic) == pytest.approx(20_000, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)
    assert statistics.mean(each.prompt for each in traffic) == pytest.approx(800, rel=0.05)
    assert statistics.mean(each.generated for each in traffic) == pytest.approx(150, rel=0.05)
    assert list(traffic) == list(Traffic.poisson(5, 4000, prompt=800, generated=150, seed=3))
    assert list(traffic) != list(Traffic.poisson(5, 4000, prompt=800, generated=150, seed=4))


def test_bursts_are_denser():
    traffic = Traffic.bursts(1, 10, 3000, every=300, length=30, seed=1)
    inside = [each for each in traffic if each.time >= 150 and (each.time - 150) % 300 < 30]
    assert len(inside) == pytest.approx(10 * 300, rel=0.1)
    assert len(traffic) - len(inside) == pytest.approx(2700, rel=0.1)


def test_azures_traces_are_read(traces):
    traffic = Traffic.azure(traces / "serving" / "AzureLLMInferenceTrace_conv.csv")
    assert len(traffic) == 19366
    assert traffic[0] == Arrival(0, 374, 44)
    assert traffic[1].time == pytest.approx(4.314579)
    assert traffic.seconds == pytest.approx(3501.72, abs=0.1)


def test_replicas_share_all_requests():
    traffic = Traffic.poisson(5, 100)
    parts = traffic.split(3)
    assert sorted(each for part in parts for each in part) == list(traffic)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_scaling_and_cutting_keep_the_requests():
    traffic = Traffic([(0, 1, 2), (10, 3, 4), (20, 5, 6)])
    assert list(traffic.scaled(2)) == [(0, 1, 2), (5, 3, 4), (10, 5, 6)]
    assert list(traffic.between(5, 20)) == [(5, 3, 4)]


def test_rows_out_of_order_are_sorted_and_empty_answers_have_a_token(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        HEAD + "2023-11-16 18:17:05.5,20,0\n2023-11-16 18:17:04,10,5\n\n2023-11-16 18:17:06Z,1,1\n"
    )
    assert list(Traffic.azure(path)) == [(0, 10, 5), (1.5, 20, 1), (2, 1, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have the columns"),
        ("a,b\n1,2\n", "has no TIMESTAMP, ContextTokens, GeneratedTokens"),
        (HEAD, "has no rows"),
        (HEAD + "yesterday,1,1\n", "line 2: TIMESTAMP"),
        (HEAD + "2023-11-16 18:17:05,nan,1\n", "line 2: ContextTokens"),
        (HEAD + "2023-11-16 18:17:05,1,-3\n", "line 2: GeneratedTokens"),
        (HEAD + "2023-11-16 18:17:05,1,1.5\n", "line 2: GeneratedTokens"),
        (HEAD + "2023-11-16 18:17:05,1\n", "line 2: GeneratedTokens"),
    ],
)
def test_bad_traces_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Traffic.azure(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00TIMESTAMP")
    with pytest.raises(ValueError, match="no CSV file"):
        Traffic.azure(path)


@pytest.mark.parametrize(
    "arrival", [(-1, 1, 1), (math.nan, 1, 1), (0, 0, 1), (0, 1, 0), (0, 1.5, 1)]
)
def test_impossible_requests_are_refused(arrival):
    with pytest.raises(ValueError, match="must"):
        Traffic([arrival])
