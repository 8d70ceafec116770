"""`zeus plan`: what it prints and writes, and how it refuses."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import sys
from xml.etree import ElementTree

import pytest
from tests.cli.support import ZEUS, environment, one_error_line, zeus

POWER = 80.0


@pytest.fixture
def profile(tmp_path):
    """Two stages, the second slower, as a table."""
    path = tmp_path / "profile.csv"
    lines = ["stage,instruction,frequency,time,energy"]
    for stage, load in enumerate((1.0, 1.15)):
        for instruction, seconds in (("forward", 0.05), ("backward", 0.1)):
            for clock in range(1400, 690, -50):
                time = load * seconds * (0.2 + 0.8 * 1400 / clock)
                energy = load * seconds * 300 * (0.3 + 0.7 * (clock / 1400) ** 2)
                lines.append(f"{stage},{instruction},{clock},{time!r},{energy!r}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def plan(profile, tmp_path):
    def run(*options: str, microbatches: str = "4"):
        return zeus(
            "plan",
            str(profile),
            "--microbatches",
            microbatches,
            "--blocking-power",
            str(POWER),
            *options,
            cwd=tmp_path,
        )

    return run


def test_the_report(plan):
    done = plan()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "profile, 1f1b, 4 microbatches"
    assert "2 stages, 2 GPUs, 80 W while waiting" in lines[1]
    assert "above the proven lower bound" in lines[3]
    assert any(line.startswith("highest clocks ") for line in lines)
    assert lines[-3].startswith("selected ")
    assert lines[-1] == "Selected: lowest energy, as fast as the highest clocks."
    assert max(map(len, lines)) <= 80


def test_bounds_on_power_are_kept(plan, tmp_path):
    free = plan("--json")
    assert free.returncode == 0, free.stderr
    (loose,) = [point for point in json.loads(free.stdout) if "plan" in point]
    peak, low = loose["peak_power"], loose["lowest_power"]
    cap, swing = 0.8 * peak, 0.7 * (peak - low)
    options = ["--peak-power", str(cap), "--power-swing", str(swing), "--output", "plan.json"]
    done = plan(*options, "--figure", "plan.svg", "--margin", "0.02")
    assert done.returncode == 0, done.stderr
    (selected,) = [
        point for point in json.loads((tmp_path / "plan.json").read_text()) if "plan" in point
    ]
    assert selected["peak_power"] <= cap
    assert selected["peak_power"] - selected["lowest_power"] <= swing
    assert selected["time"] >= loose["time"]
    events = sorted({each["start"] for each in selected["plan"]})
    for moment in events:
        running = [
            each for each in selected["plan"]
            if each["start"] <= moment < each["start"] + each["time"] and each["device"] is not None
        ]  # fmt: skip
        watts = sum(each["energy"] / each["time"] for each in running)
        assert watts + POWER * (2 - len(running)) <= cap * (1 + 1e-12)
    shown = f"swing {selected['peak_power'] - selected['lowest_power']:.0f} W"
    assert shown in done.stdout
    assert "Power of all GPUs" in (tmp_path / "plan.svg").read_text()


def test_a_power_that_is_not_possible_is_refused_with_the_least(plan):
    done = plan("--peak-power", "100")
    assert done.returncode == 3
    assert "`cap >= " in done.stderr
    assert done.stdout == ""


def test_json_is_the_frontier_and_the_selected_plan(plan, profile, tmp_path):
    done = plan("--output", "plan.json", "--max-slowdown", "1.1", "--plans", "40")
    assert done.returncode == 0, done.stderr
    assert "Saved plan.json" in done.stdout
    points = json.loads((tmp_path / "plan.json").read_text())
    assert isinstance(points, list)
    assert len(points) >= 20
    assert all({"time", "energy", "lower_bound"} <= set(point) for point in points)
    assert all(0 < point["lower_bound"] <= point["energy"] for point in points)
    assert [point["time"] for point in points] == sorted(point["time"] for point in points)
    (selected,) = [point for point in points if "plan" in point]
    assert selected["time"] <= 1.1 * points[0]["time"]
    later = points[points.index(selected) + 1]
    assert later["time"] > 1.1 * points[0]["time"]

    # Executing the plan by hand, from the table alone, gives exactly what was stated.
    with profile.open() as file:
        rows = {
            (int(row["stage"]), row["instruction"], int(row["frequency"])): (
                float(row["time"]),
                float(row["energy"]),
            )
            for row in csv.DictReader(file)
        }
    ends: dict = {}
    free, energy, busy = [0.0, 0.0], 0.0, 0.0
    for entry in selected["plan"]:
        stage, kind, part = entry["stage"], entry["instruction"], entry["microbatch"]
        before = {
            ("forward", 0): None,
            ("forward", 1): ("forward", 0, part),
            ("backward", 1): ("forward", 1, part),
            ("backward", 0): ("backward", 1, part),
        }[kind, stage]
        start = max(free[stage], ends.get(before, 0.0))
        assert start == entry["start"]
        seconds, joules = rows[stage, kind, entry["frequency"]]
        free[stage] = ends[kind, stage, part] = start + seconds
        energy += joules
        busy += seconds
    assert max(free) == selected["time"]
    total = energy + POWER * (2 * max(free) - busy)
    assert total == pytest.approx(selected["energy"], rel=1e-12)
    assert len(selected["plan"]) == 16


def test_json_on_stdout_is_alone(plan):
    done = plan("--json")
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)
    assert "plan" in points[0]


def test_json_is_a_flag_and_output_a_file(plan, tmp_path):
    done = plan("--json")
    assert done.returncode == 0, done.stderr
    written = plan("--output", "frontier.json")
    assert written.returncode == 0, written.stderr
    assert "Saved frontier.json" in written.stdout
    assert json.loads((tmp_path / "frontier.json").read_text()) == json.loads(done.stdout)
    assert "not allowed with" in one_error_line(plan("--json", "--output", "frontier.json"))


def test_by_default_it_is_as_fast_as_now(plan):
    def selected(*options):
        done = plan("--json", *options)
        assert done.returncode == 0, done.stderr
        (found,) = [point for point in json.loads(done.stdout) if "plan" in point]
        return found

    report = plan().stdout
    (now,) = re.findall(r"^highest clocks +([0-9.]+)", report, re.MULTILINE)
    usual, fastest = selected(), selected("--fastest")
    assert usual == selected("--deadline", now)
    assert fastest["time"] <= usual["time"]
    assert fastest["energy"] >= usual["energy"]


def test_a_printed_time_is_a_deadline_that_is_kept(plan):
    lines = plan().stdout.splitlines()
    rows = [line.split() for line in lines if re.match(r" +[0-9.]+ ", line)]
    assert len(rows) > 5
    fastest = json.loads(plan("--json", "--fastest").stdout)[0]
    assert float(rows[0][0]) >= fastest["time"]
    for row in (rows[0], rows[-1]):
        done = plan("--json", "--deadline", row[0])
        assert done.returncode == 0, done.stderr
        (found,) = [point for point in json.loads(done.stdout) if "plan" in point]
        assert round(found["energy"], 1) <= float(row[1])
    refused = one_error_line(plan("--deadline", "1 ms"))
    (least,) = re.findall(r"the fastest takes (\S+) s", refused)
    assert plan("--deadline", f"{1e3 * float(least):.6f}ms").returncode == 0


def test_which_plan(plan, tmp_path):
    everything = json.loads(plan("--json").stdout)
    middle = everything[len(everything) // 2]
    for options in (
        ["--deadline", repr(middle["time"])],
        ["--energy-budget", repr(middle["energy"])],
    ):
        points = json.loads(plan("--json", *options).stdout)
        (selected,) = [point for point in points if "plan" in point]
        assert selected["time"] == middle["time"]


def test_pictures_and_traces(plan, tmp_path):
    authors = tmp_path / "authors.csv"
    authors.write_text("time,energy\n0.1,900\n0.9,400\n1.0,390\n")
    done = plan("--figure", "plan.svg", "--trace", "trace.json", "--compare", "authors.csv")
    assert done.returncode == 0, done.stderr
    assert "Compared with authors.csv:\nat equal time, the plans use" in done.stdout
    assert "1 of its 3 times are shorter than any plan" in done.stdout
    drawn = ElementTree.parse(tmp_path / "plan.svg").getroot()
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "authors" in texts
    assert "Before: every clock at its highest" in texts
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert len([event for event in trace["traceEvents"] if event["ph"] == "X"]) == 32


def test_a_comparison_out_of_reach(plan, tmp_path):
    (tmp_path / "authors.csv").write_text("time,energy\n0.1,900\n")
    assert "no plan is as fast as any of its 1 times" in plan("--compare", "authors.csv").stdout


def test_png_by_matplotlib(plan, tmp_path):
    pytest.importorskip("matplotlib")
    assert plan("--figure", "plan.png").returncode == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_other_pipelines(plan):
    done = plan("--schedule", "interleaved", "--chunks", "2", "--communication", "0.001")
    assert done.returncode == 0, done.stderr
    assert "2 stages, 1 GPUs" in done.stdout
    done = plan(
        "--schedule", "zero-bubble", "--tensor-parallel", "4", "--data-parallel", "2",
        "--data-loading", "0.01",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "16 GPUs" in done.stdout


def test_a_time_per_link(plan, profile, tmp_path):
    done = plan("--communication", "0.02/0.01", "--output", "plan.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "plan.json").read_text())
    (steps,) = [point["plan"] for point in found if "plan" in point]
    sent = [step for step in steps if step["instruction"] == "communication"]
    assert {(step["stage"], step["time"]) for step in sent} == {(0, 0.02), (1, 0.01)}
    with profile.open("a") as file:
        file.write("0,communication,,0.02,0\n")
    done = plan("--output", "again.json")
    assert done.returncode == 0, done.stderr
    assert '"communication"' in (tmp_path / "again.json").read_text()


def test_messages_that_block(plan, tmp_path):
    def time(*options):
        done = plan("--communication", "0.02", "--output", "plan.json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "plan.json").read_text())[0]["time"]

    assert time("--blocking-messages") > time()


def test_a_deadline_that_no_plan_keeps_is_told(plan, tmp_path):
    done = plan("--deadline", "0.001", "--output", "plan.json")
    assert done.returncode == 3
    assert "0.001 s" in one_error_line(done)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--schedule", "2f2b"], "--schedule"),
        (["--max-slowdown", "0.5"], "factor"),
        (["--deadline", "1", "--max-slowdown", "1.1"], "not allowed with"),
        (["--figure", "plan.pdf"], "must end in one of '.svg', '.png'"),
        (["--chunks", "2"], "1f1b has one stage per rank"),
        (["--chunks", "0"], "a whole number of at least 1"),
        (["--plans", "many"], "a whole number"),
        (["--communication", "-1"], "a number, at least 0"),
        (["--communication", "0.1,,0.1"], "a number, at least 0, but got ''"),
        (["--communication", "0.1/0.1/0.1"], "a number, at least 0, but got '0.1/0.1'"),
        (["--communication", "0.1,0.2"], "but got 2 for 2 stages (1 link): 0.1, 0.2"),
        (["--deadline", "nan"], "`seconds` must be finite"),
        (["--trace", "plan", "--output", "./plan"], "must be given once, but --trace gives plan"),
        (["--output", "profile.csv"], "must be given once, but --output gives profile.csv"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(plan, options, said):
    done = plan(*options)
    assert done.returncode == 2
    assert said in one_error_line(done)


def test_what_must_be_given(profile):
    done = zeus("plan", str(profile))
    assert done.returncode == 2
    assert "--microbatches" in one_error_line(done)
    assert "--blocking-power" in done.stderr


def test_a_bad_profile_is_told_with_its_line(plan, profile):
    with profile.open("a") as file:
        file.write("1,forward,1400,soon,3\n")
    done = plan()
    assert done.returncode == 2
    assert "profile.csv:62: `time` must be a number, but got 'soon'" in one_error_line(done)


def test_a_missing_file(plan, profile):
    profile.unlink()
    done = plan()
    assert done.returncode == 2
    assert "profile.csv cannot be read: No such file" in one_error_line(done)


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        (
            "--communication=1e308",
            "`communication <= 1e+06` must hold, but got ",
        ),
        ("--data-loading=1e308", "`time <= 1e+06` must hold, but got time=1e+308"),
        ("--communication=1e-300", "`time >= 1e-12` must hold for 'communication'"),
        ("--blocking-power=1e308", "`blocking_power <= 1e+21` must hold"),
        ("--tensor-parallel=1" + 400 * "0", "`tensor_parallel <= 1000000` must hold"),
        ("--data-parallel=1000001", "`data_parallel <= 1000000` must hold, but got "),
    ],
)
def test_a_number_beyond_what_can_be_computed_with_is_refused_by_its_rule(plan, option, rule):
    assert rule in one_error_line(plan(option))


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        (
            "stage",
            "100000000",
            "must be numbered 0, 1, 2, ... without a gap, but got 0, 1, 1000000",
        ),
        ("frequency", "1e308", "`frequency <= 100000` must hold, but got frequency=1"),
        ("time", "1e308", "`time <= 1e+06` must hold, but got time=1e+308"),
        ("time", "1e-320", "`time >= 1e-12` must hold, but got time=1e-320"),
        ("energy", "1e308", "`energy <= 1e+12` must hold, but got energy=1e+308"),
    ],
)
def test_a_value_of_a_profile_beyond_all_measures_is_refused_by_its_rule(
    plan, profile, column, value, rule
):
    head, *rows = profile.read_text().splitlines()
    cells = rows[0].split(",")
    cells[head.split(",").index(column)] = value
    profile.write_text("\n".join([head, *rows, ",".join(cells)]) + "\n")
    assert rule in one_error_line(plan())


def test_progress_is_shown_at_a_terminal_and_cleared(profile):
    options = ["--microbatches", "4000", "--blocking-power", str(POWER), "--plans", "100"]
    pid, terminal = pty.fork()
    if pid == 0:
        variables = environment(TERM="xterm")
        os.execve(sys.executable, [*ZEUS, "plan", str(profile), *options], variables)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed with the process
        while some := os.read(terminal, 4096):
            shown += some
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    before, cleared, report = shown.decode().rpartition("\r\x1b[K")
    assert cleared
    assert re.search(r"Planning, (\d+ of|improving) 100 points", before)
    assert "Selected: lowest energy" in report
    assert "Planning" not in report
