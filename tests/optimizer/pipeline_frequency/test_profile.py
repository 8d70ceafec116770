"""Profiles: reading them, refusing them line by line, and what noise does."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.optimizer.pipeline_frequency.graphs import options

from zeus.errors import StageProfileError, ZeusError
from zeus.optimizer.pipeline_frequency import Option, Profile
from zeus.optimizer.pipeline_frequency._profile import useful

HEAD = "stage,instruction,frequency,time,energy\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes) -> Profile:
        path = tmp_path / "profile.csv"
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return Profile.read(path)

    return read


def test_a_table_is_read_by_stage_and_instruction(read):
    profile = read(
        HEAD + "0,forward,1410,0.05,23.8\n0,forward,1395,0.051,23.5\n1,forward,1410,1,2\n"
    )
    assert profile.stages == 2
    assert profile[0, "forward"] == (Option(1410, 0.05, 23.8), Option(1395, 0.051, 23.5))
    assert isinstance(profile[0, "forward"][0].frequency, int)
    assert profile.has("forward")
    assert not profile.has("backward")


def test_columns_may_be_in_any_order_with_others_between(read):
    text = "\ufeffEnergy, time ,gpu,instruction,frequency,stage\r\n5,2,A40,forward,1000.5,0\r\n\r\n"
    assert read(text)[0, "forward"] == (Option(1000.5, 2.0, 5.0),)


def test_repeated_measurements_are_averaged(read):
    profile = read(HEAD + "0,forward,1410,1,10\n0,forward,900,3,4\n0,forward,1410,2,14\n")
    assert profile[0, "forward"] == (Option(1410, 1.5, 12.0), Option(900, 3.0, 4.0))


def test_labels_name_other_choices_than_clocks(read):
    profile = read(
        "stage,instruction,label,frequency,time,energy\n0,forward,20 SMs,1410,3,10\n"
        "0,forward,,1410,1,20\n0,forward,20 SMs,1410,4,12\n0,forward,10 SMs,,9,5\n"
    )
    assert profile[0, "forward"] == (
        Option(1410, 1.0, 20.0),
        Option(1410, 3.5, 11.0, "20 SMs"),
        Option(None, 9.0, 5.0, "10 SMs"),
    )
    half = profile.with_parts("forward", {"half": 0.5})[0, "half"]
    assert [option.setting for option in half] == ["1410 MHz", "1410 MHz, 20 SMs", "10 SMs"]


def test_an_exchange_of_gradients_may_have_no_clock(read):
    profile = read(HEAD + "0,gradient_exchange,,0.03,4\n0,optimizer_step,1410,0.02,5\n")
    assert profile[0, "gradient_exchange"] == (Option(None, 0.03, 4.0),)
    with pytest.raises(StageProfileError, match="`frequency` must be a number, but got ''"):
        read(HEAD + "0,optimizer_step,,0.02,5\n")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("stage,instruction,time,energy\n0,f,1,1\n", 1, "frequency is missing"),
        ("stage,stage,instruction,frequency,time,energy\n", 1, "stage twice"),
        (HEAD + "0,f,1410,1,1\n0,f,9,fast,1\n", 3, "`time` must be a number, but got 'fast'"),
        (HEAD + "\n\n0,forward,1410,nan,23\n", 4, "got 'nan'"),
        (HEAD + "0,forward,1410,inf,23\n", 2, "got 'inf'"),
        (HEAD + "0,forward,1410,0,23\n", 2, "`time > 0` must hold, but got time=0.0"),
        (HEAD + "0,forward,1410,1,-3\n", 2, "`energy >= 0` must hold, but got energy=-3.0"),
        (HEAD + "0,forward,-5,1,3\n", 2, "`frequency > 0` must hold, but got frequency=-5"),
        (HEAD + "0,forward,0,1,3\n", 2, "`frequency > 0`"),
        (HEAD + "-1,forward,1410,1,3\n", 2, "`stage` must be a whole number, 0 or more"),
        (HEAD + "1.5,forward,1410,1,3\n", 2, "got '1.5'"),
        (HEAD + "0,,1410,1,3\n", 2, "`instruction` must be a name, but got ''"),
        ("stage,instruction,frequency,label,label,time,energy\n", 1, "label twice"),
        (HEAD[:-1] + ",label\n0,communication,,1,0,ring\n", 2, "`label` must be empty for"),
        (HEAD[:-1] + ",label\n0,forward,,1,1,\n", 2, "`frequency` must be a number"),
        (HEAD[:-1] + f",label\n0,forward,9,1,1,{201 * 'x'}\n", 2, "at most 200 characters"),
        (HEAD + "0,forward,1410,1\n", 2, "as many values as the heading (5), but got 4"),
        (HEAD + '0,"forward,1410,1,3\n0,f,1,1,1\n', 2, "not a line of a CSV table"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_and_line(read, text, line, said):
    with pytest.raises(StageProfileError) as raised:
        read(text)
    assert f"profile.csv:{line}: " in str(raised.value)
    assert said in str(raised.value)
    assert isinstance(raised.value, ZeusError)
    assert isinstance(raised.value, ValueError)


def test_bytes_that_are_no_text_are_told(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_bytes(HEAD.encode() + b"0,\xff\xfe,1,1,1\n")
    with pytest.raises(StageProfileError, match=r"csv:2: not a line of a CSV table in UTF-8"):
        Profile.read(path)


@pytest.mark.parametrize("text", ["", "\n\n", HEAD])
def test_a_table_without_rows_is_refused(read, text):
    with pytest.raises(StageProfileError, match="no rows"):
        read(text)


def test_stages_have_no_gap(read):
    with pytest.raises(StageProfileError, match="without a gap, but got 0, 2"):
        read(HEAD + "0,forward,1410,1,1\n2,forward,1410,1,1\n")


def test_a_file_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Profile.read(tmp_path / "nothing.csv")


def test_profiles_are_made_in_programs_too():
    profile = Profile({(0, "forward"): [Option(1000, 1.0, 2.0)]})
    assert dict(profile) == {(0, "forward"): (Option(1000, 1.0, 2.0),)}
    assert "1 stages, 1 options" in repr(profile)
    with pytest.raises(StageProfileError, match="stage 0 has no 'backward'; measured: 'forward'"):
        profile.of(0, "backward")
    with pytest.raises(StageProfileError, match="at least one option"):
        Profile({(0, "forward"): []})
    with pytest.raises(StageProfileError, match="`time > 0`"):
        Profile({(0, "forward"): [Option(1000, -1.0, 2.0)]})
    with pytest.raises(StageProfileError, match="without a gap"):
        Profile({})


def test_instructions_that_follow_from_others(profile):
    split = profile.with_parts("backward", {"input": 0.4, "weight": 0.6})
    whole, part = split[1, "backward"][3], split[1, "input"][3]
    assert part == Option(whole.frequency, 0.4 * whole.time, 0.4 * whole.energy)
    assert profile.with_copy("forward", "again")[2, "again"] == profile[2, "forward"]
    with pytest.raises(StageProfileError, match="0 < share <= 1"):
        profile.with_parts("backward", {"input": 1.4})
    with pytest.raises(StageProfileError, match="no 'sideways'"):
        profile.with_copy("sideways", "again")


# --- dominated and noisy options ------------------------------------------------------------------


def test_an_option_that_saves_nothing_against_waiting_is_dropped():
    fast, slow = Option(1400, 1.0, 100.0), Option(700, 2.0, 60.0)
    assert useful([slow, fast], blocking_power=0.0) == (fast, slow)
    assert useful([slow, fast], blocking_power=39.0) == (fast, slow)
    # Waiting for a second at 40 W takes as little as running slower.
    assert useful([slow, fast], blocking_power=-40.0) == (fast,)
    # With waiting dearer than running, even a slower option of more energy helps.
    more = Option(700, 2.0, 110.0)
    assert useful([more, fast], blocking_power=11.0) == (fast, more)


def test_a_higher_clock_that_was_measured_slower_is_dropped():
    noisy, better = Option(1740, 1.02, 50.0), Option(1725, 1.0, 49.0)
    assert useful([noisy, better], 0.0) == (better,)


@given(options(6), st.floats(0, 5))
def test_what_is_dropped_is_beaten_and_what_is_kept_is_not(given_options, power):
    def cost(option):
        return option.energy - power * option.time

    kept = useful(given_options, power)
    for option in given_options:
        if option not in kept:
            assert any(k.time <= option.time and cost(k) <= cost(option) for k in kept)
    for first, second in pairwise(kept):
        assert first.time < second.time
        assert cost(first) > cost(second)


def test_a_stage_of_any_number_takes_no_memory(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_text(
        "stage,instruction,frequency,time,energy\n0,forward,1400,1,1\n5000000,forward,1400,1,1\n"
    )
    tracemalloc.start()
    try:
        with pytest.raises(StageProfileError, match=r"without a gap, but got 0, 5000000"):
            Profile.read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
