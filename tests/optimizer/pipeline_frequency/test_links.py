"""Links between stages whose messages take different times."""

from __future__ import annotations

import pytest
from tests.optimizer.pipeline_frequency.conftest import stage_options

from zeus.errors import PipelineError, StageProfileError
from zeus.optimizer.pipeline_frequency import Option, Profile, build, solve

SLOW = [0.005, 0.05, 0.005]  # the middle link is between two machines


@pytest.fixture
def four() -> Profile:
    """Four stages of which the last is slower."""
    return Profile(
        {
            (stage, instruction): stage_options(seconds * load, 300 * seconds * load)
            for stage, load in enumerate((1.0, 0.97, 1.03, 1.1))
            for instruction, seconds in (("forward", 0.05), ("backward", 0.1))
        }
    )


def messages(pipeline):
    """Seconds of each message: by sender, and by what is sent."""
    found = {}
    for operation in pipeline.operations:
        if operation.instruction == "communication":
            (sent,) = (pipeline.operations[number] for number in operation.after)
            found[sent.instruction, operation.stage] = operation.options[0].time
    return found


def test_each_link_takes_its_time_in_both_directions(four):
    assert messages(build(four, "1f1b", 2, 80.0, communication=SLOW)) == {
        ("forward", 0): 0.005,
        ("forward", 1): 0.05,
        ("forward", 2): 0.005,
        ("backward", 3): 0.005,
        ("backward", 2): 0.05,
        ("backward", 1): 0.005,
    }


def test_directions_may_differ_and_a_link_may_take_no_time(four):
    pipeline = build(four, "1f1b", 2, 80.0, communication=[0.0, (0.05, 0.02), (0.0, 0.01)])
    assert messages(pipeline) == {
        ("forward", 1): 0.05,
        ("backward", 2): 0.02,
        ("backward", 3): 0.01,
    }


def test_one_value_is_for_all_links(four):
    for given in (0.01, [0.01], [(0.01, 0.01)]):
        assert set(messages(build(four, "1f1b", 2, 80.0, communication=given)).values()) == {0.01}


def test_interleaved_stages_have_a_link_from_the_last_rank_to_the_first(four):
    pipeline = build(four, "interleaved", 1, 80.0, chunks=2, communication=SLOW)
    assert messages(pipeline)["forward", 1] == 0.05  # from rank 1 to rank 0
    assert messages(pipeline)["backward", 2] == 0.05
    at_once = build(four, "interleaved", 1, 80.0, chunks=2).at_highest_frequency().time
    # The microbatch goes over each link, to the end and back.
    assert pipeline.at_highest_frequency().time == pytest.approx(at_once + 2 * sum(SLOW))


def test_stages_of_one_rank_need_no_message(four):
    sent = messages(build(four, "zbv", 3, 80.0, communication=[0.01, 0.02, 0.03]))
    assert set(sent.values()) == {0.01, 0.03}


def test_a_profile_may_have_link_times(four, tmp_path):
    rows = ["stage,instruction,frequency,time,energy"]
    rows += [
        f"{stage},{instruction},{option.frequency},{option.time!r},{option.energy!r}"
        for (stage, instruction), options in four.items()
        for option in options
    ]
    path = tmp_path / "profile.csv"
    path.write_text("\n".join([*rows, "1,communication,,0.05,0", "0,communication,,0.005,0"]))
    profile = Profile.read(path)
    expected = messages(build(four, "1f1b", 2, 80.0, communication=[0.005, 0.05, 0.0]))
    assert messages(build(profile, "1f1b", 2, 80.0)) == expected
    # What is given counts more.
    assert messages(build(profile, "1f1b", 2, 80.0, communication=0.0)) == {}
    path.write_text("\n".join([*rows, "1,communication,1410,0.05,0"]))
    with pytest.raises(StageProfileError, match="`frequency` must be empty for communication"):
        Profile.read(path)
    path.write_text("\n".join([*rows, "3,communication,,0.05,0"]))
    with pytest.raises(PipelineError, match="s must be less than 3, but got one of stage 3"):
        build(Profile.read(path), "1f1b", 2, 80.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [0.005, 0.05],
            r"`stages - 1` times, one for each link between neighboring stages, but got 2 for 4 "
            r"stages \(3 links\): 0.005, 0.05",
        ),
        ([], r"but got 0 for 4 stages \(3 links\): none"),
        ([0.1, 0.1, (0.1, 0.2), 0.1], r"but got 4 for .*: 0.1, 0.1, 0.1/0.2, 0.1"),
        ([0.1, -0.1, 0.1], "`communication >= 0` must hold, but got communication=-0.1"),
        ([0.1, (0.1, 1e7), 0.1], r"`communication <= 1e\+06` must hold"),
        ([0.1, (0.1,), 0.1], "one time, or one for activations and one for gradients"),
        ("0.1", "`communication` must be a number, but got communication='0'"),
    ],
)
def test_wrong_links_are_refused(four, given, said):
    with pytest.raises(PipelineError, match=said):
        build(four, "1f1b", 2, 80.0, communication=given)


def test_two_stages_have_one_link():
    profile = Profile(
        {(s, i): [Option(1, 1.0, 1.0)] for s in range(2) for i in ("forward", "backward")}
    )
    pair = build(profile, "1f1b", 1, 0.0, communication=[(0.5, 0.25)])
    assert messages(pair) == {("forward", 0): 0.5, ("backward", 1): 0.25}
    with pytest.raises(PipelineError, match=r"but got 2 for 2 stages \(1 link\)"):
        build(profile, "1f1b", 1, 0.0, communication=[0.5, 0.25])


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("interleaved", 2)])
def test_knowing_each_link_is_better_than_their_mean_and_than_the_largest(four, schedule, chunks):
    def pipeline(communication):
        return build(four, schedule, 8, 80.0, chunks=chunks, communication=communication)

    truth = pipeline(SLOW)
    highest = truth.at_highest_frequency()

    frontier = solve(truth, 200).frontier

    def run(communication):
        """Execute the fastest plan for these links on the true ones."""
        plan = solve(pipeline(communication), 200).frontier.fastest.knob
        chosen = {
            (op.instruction, op.stage, op.microbatch): option
            for op, option in zip(plan.pipeline.operations, plan.options, strict=True)
            if op.device is not None
        }
        return truth.execute(
            [
                chosen[op.instruction, op.stage, op.microbatch]
                if op.device is not None
                else op.options[0]
                for op in truth.operations
            ]
        )

    known, mean, largest = run(SLOW), run(sum(SLOW) / len(SLOW)), run(max(SLOW))
    unknown = run(0.0)
    assert known.time <= highest.time * (1 + 1e-9)
    assert known.energy < highest.energy
    assert known.time < mean.time < unknown.time
    # Plans for the largest time everywhere take more energy, compared at the time they really take.
    assert frontier.at_time(max(largest.time, known.time) * (1 + 1e-9)).energy < largest.energy
