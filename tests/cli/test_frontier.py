"""`zeus frontier`: saved and simulated frontiers, choices, plots, and files that are none."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.support import one_error_line, zeus

from zeus.frontier import Frontier, Point, ZeusCost
from zeus.optimizer.training._profiles import Profile, ProfileFile, ProfileKey

SWEEP = Frontier(
    [
        Point(250, 3515, 774_000, 20, 9000),
        Point(175, 3852, 641_000),
        Point(150, 4149, 600_000),
        Point(100, 6781, 667_000),
    ],
    "one epoch of imagenet",
    knob_name="power limit",
    knob_unit="W",
    max_power=250,
)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "frontier.json"
    path.write_text(SWEEP.to_json())
    return path


@pytest.fixture
def profiles(tmp_path):
    """Three profiles in one file."""
    path = tmp_path / "profiles.json"
    file = ProfileFile(path)
    for gpu, gpus, knob, job, batch_size in (
        ("NVIDIA A100-SXM4-80GB", 4, "power_limit", "resnet50", 256),
        ("NVIDIA A100-SXM4-80GB", 4, "power_limit", "resnet50", 512),
        ("Tesla V100-PCIE-32GB", 1, "graphics_clock", None, None),
    ):
        key = ProfileKey(gpu, gpus, knob, job, batch_size)
        clocks = knob == "graphics_clock"
        frontier = Frontier(
            [Point(point.knob, point.time / 1e4, point.energy / 1e4 * gpus) for point in SWEEP],
            f"one step of {key}",
            knob_name=knob.replace("_", " "),
            knob_unit="MHz" if clocks else "W",
            max_power=250 * gpus,
        )
        file.keep(Profile(key, frontier))
    return path


def test_a_saved_frontier(saved):
    done = zeus("frontier", str(saved), "--deadline", "3000", "--power-cap", "150")
    assert (done.returncode, done.stderr) == (3, "")  # no point keeps the deadline
    assert done.stdout.splitlines() == [
        "one epoch of imagenet: 4 points, 3 on the frontier",
        "",
        "  power limit (W)    time (min)  energy (kJ)  power (W)   Δ time  Δ energy",
        "              250  58.59 ± 0.33    774.0 ± 9      220.2   +0.0 %    +0.0 %  *",
        "              175         64.20        641.0      166.4   +9.6 %   -17.2 %  *",
        "              150         69.15        600.0      144.6  +18.0 %   -22.5 %  *",
        "              100        113.02        667.0       98.4  +92.9 %   -13.8 %",
        "",
        "  objective                  choice   Δ time  Δ energy",
        "  Energy                      150 W  +18.0 %   -22.5 %",
        "  Time                        250 W   +0.0 %    +0.0 %",
        "  ZeusCost 0.5                175 W   +9.6 %   -17.2 %",
        "  MaxSlowdownConstraint 1.1   175 W   +9.6 %   -17.2 %",
        "  Deadline 3000 s             250 W   +0.0 %    +0.0 %  not kept",
        "  PowerCap 150 W              150 W  +18.0 %   -22.5 %",
        "",
        "Δ is relative to 250 W, 774 kJ (0.215 kWh). * marks Pareto-optimal settings.",
        "Deadline 3000 s: no point takes 3000 s or less; the fastest takes 3515 s.",
    ]


def test_a_bound_on_latency_chooses_where_latencies_are_known(tmp_path):
    path = tmp_path / "served.json"
    slow = Point(900, 42, 5000, latencies={"p99": 0.3})
    path.write_text(Frontier([Point(1410, 40, 7000, latencies={"p99": 0.1}), slow]).to_json())
    done = zeus("frontier", str(path), "--latency-bound", "p99:0.2", "--max-power", "400")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"p99 \(ms\)\n +1410 .* 100.0 +\*\n +900 .* 300.0 +\*\n", done.stdout)
    assert re.search(r"LatencyBound p99 0.2 s +1410 +\+0.0 % +\+0.0 %\n", done.stdout)
    done = zeus("frontier", str(path), "--latency-bound", "99.9:0.2")
    assert "LatencyBound p99.9 0.2 s: LatencyBound needs points that state 'p99.9'" in done.stdout
    done = zeus("frontier", str(path), "--latency-bound", "p99")
    assert (done.returncode, "seconds such as p99:0.2, but got 'p99'" in done.stderr) == (2, True)


def test_a_tie_is_marked_and_explained(tmp_path):
    path = tmp_path / "tie.json"
    path.write_text(Frontier([Point("a", 1, 100, 0, 9), Point("b", 2, 99.95, 0, 9)]).to_json())
    done = zeus("frontier", str(path))
    assert re.search(r"Energy +a .* tie$", done.stdout, re.MULTILINE)
    assert "Energy: the energy of knob='a' and knob='b' differs by 0.05 J" in done.stdout


def test_without_a_maximum_power_the_others_still_choose(tmp_path):
    path = tmp_path / "frontier.json"
    path.write_text(Frontier([Point(3, 1, 100), Point(2, 2, 50)], knob_name="plan").to_json())
    done = zeus("frontier", str(path))
    assert done.returncode == 0
    assert re.search(r"ZeusCost 0.5 +- +- +- +unknown", done.stdout)
    assert "set it with --max-power" in done.stdout
    done = zeus("frontier", str(path), "--max-power", "120", "--json")
    cost = {c["objective"]: c["cost"] for c in json.loads(done.stdout)["choices"]}["ZeusCost 0.5"]
    assert cost == 0.5 * 100 + 0.5 * 120


def test_as_json(saved):
    done = zeus("frontier", str(saved), "--json", "--eta", "1", "--energy-budget", "650000")
    result = json.loads(done.stdout)
    assert Frontier.from_dict(result["frontier"]) == SWEEP
    assert result["on_frontier"] == [0, 1, 2]
    assert (result["reference"], result["figures"]) == (250, [])
    choices = {choice["objective"]: choice for choice in result["choices"]}
    assert choices["ZeusCost 1"] | {"note": ""} == {
        "objective": "ZeusCost 1",
        "note": "",
        "knob": 150,
        "time": 4149,
        "energy": 600_000,
        "average_power": pytest.approx(144.6, abs=0.05),
        "time_change": pytest.approx(0.1804, abs=1e-4),
        "energy_change": pytest.approx(-0.2248, abs=1e-4),
        "cost": 600_000,
        "feasible": True,
        "tie": False,
    }
    assert choices["EnergyBudget 650000 J"]["knob"] == 175


def test_more_of_the_same_work(saved):
    done = zeus("frontier", str(saved), "--times", "10", "--deadline", "39000", "--json")
    result = json.loads(done.stdout)
    assert result["title"] == "10 x one epoch of imagenet"
    deadline = result["choices"][-1]
    assert (deadline["objective"], deadline["knob"]) == ("Deadline 39000 s", 175)
    assert deadline["energy"] == 6_410_000


# --- plots --------------------------------------------------------------------------------------


def test_plots_name_the_choices(saved, tmp_path):
    names = ["a.svg", "b.png", "c.html"]
    options = [word for name in names for word in ("--figure", name)]
    done = zeus("frontier", str(saved), *options, "--deadline", "1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[-3:] == [f"Saved {name}" for name in names]
    svg = (tmp_path / "a.svg").read_text()
    for text in ("ZeusCost 0.5,", "MaxSlowdownConstraint 1.1", "Time, Deadline 1 s (not kept)"):
        assert f">{text}</text>" in svg
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "c.html").read_text()
    assert 'id="eta"' in page
    assert ">Max<wbr>Slowdown<wbr>Constraint 1.1</th>" in page
    assert "ZeusCost 0.5" not in page  # that is what the slider is for
    assert {path.name for path in tmp_path.iterdir()} - {"zeus-state"} == {*names, saved.name}


def test_the_slider_starts_at_eta(saved, tmp_path, open_page):
    done = zeus("frontier", str(saved), "--eta", "0.95", "--figure", "page.html", cwd=tmp_path)
    assert done.returncode == 0
    page = open_page(tmp_path / "page.html")
    assert page.locator("#eta").input_value() == "0.95"
    expected = ZeusCost(0.95).select(SWEEP).point.knob
    assert page.locator("#choice strong").text_content() == f"{expected} W"


def test_a_plot_that_cannot_be_saved_is_told_and_nothing_is_left(saved, tmp_path):
    done = zeus("frontier", str(saved), "--figure", "absent/a.svg", cwd=tmp_path)
    assert done.returncode == 2
    assert one_error_line(done) == "zeus: error: absent/a.svg: No such file or directory"
    assert not list(tmp_path.glob("**/*.svg"))


def test_without_matplotlib_the_cure_is_named(saved, tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError('not here')\n")
    done = zeus("frontier", str(saved), "--figure", "a.png", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "pip install 'zeus-energy[plot]'" in one_error_line(done)
    assert not (tmp_path / "a.png").exists()


# --- several profiles ---------------------------------------------------------------------------


def test_several_profiles_are_listed(profiles):
    done = zeus("frontier", str(profiles))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{profiles} has 3 profiles:",
        "  no.  job       batch size  GPUs                       knob            points",
        "    1  resnet50         256  4 x NVIDIA A100-SXM4-80GB  power limit          4",
        "    2  resnet50         512  4 x NVIDIA A100-SXM4-80GB  power limit          4",
        "    3  -                  -  1 x Tesla V100-PCIE-32GB   graphics clock       4",
        "Select one with --gpu, --job, --batch-size or --profile NUMBER.",
    ]
    listed = json.loads(zeus("frontier", str(profiles), "--json", "--job", "resnet50").stdout)
    assert [(one["number"], one["batch_size"]) for one in listed["profiles"]] == [
        (1, 256),
        (2, 512),
    ]


@pytest.mark.parametrize(
    ("options", "title"),
    [
        (["--gpu", "v100"], "one step of a job without a name, on 1 x Tesla V100-PCIE-32GB"),
        (
            ["--job", "resnet50", "--batch-size", "512"],
            "one step of resnet50, batch size 512, on 4 x NVIDIA A100-SXM4-80GB",
        ),
        (
            ["--profile", "1"],
            "one step of resnet50, batch size 256, on 4 x NVIDIA A100-SXM4-80GB",
        ),
    ],
)
def test_one_of_several_can_be_chosen(profiles, options, title):
    result = json.loads(zeus("frontier", str(profiles), *options, "--json").stdout)
    assert result["title"] == title
    assert result["reference"] == 250
    zeus_cost = result["choices"][2]
    assert (zeus_cost["objective"], zeus_cost["knob"]) == ("ZeusCost 0.5", 175)


def test_maximum_power_per_gpu_is_that_of_all_of_them(tmp_path):
    path = tmp_path / "profiles.json"
    frontier = Frontier([Point(250, 1, 900), Point(150, 2, 500)], max_power_per_gpu=250)
    ProfileFile(path).keep(Profile(ProfileKey("A100", 4, "power_limit"), frontier))
    choice = json.loads(zeus("frontier", str(path), "--json").stdout)["choices"][2]
    assert choice["cost"] == 0.5 * 900 + 0.5 * 1000


# --- logs of windows ----------------------------------------------------------------------------


def log(path, *rows, gpus=2):
    energies = ",".join(f"gpu{index}_energy" for index in range(gpus))
    path.write_text("\n".join([f"start_time,window_name,elapsed_time,{energies}", *rows, ""]))
    return path


def test_windows_of_one_limit_are_combined(tmp_path):
    path = log(
        tmp_path / "resnet.csv",
        "0,profile_250,10,1000,1100",
        "10,profile_250,11,1010,1110",
        "21,profile_250,10.5,990,1090",
        "31,profile_150.5,13,800,820",
    )
    done = zeus("frontier", str(path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["title"], result["gpus"], result["reference"]) == ("resnet", 2, 250)
    first, second = result["frontier"]["points"]
    assert (first["time"], first["energy"]) == (10.5, 2100)
    assert first["time_uncertainty"] == pytest.approx(4.303 * 0.5 / 3**0.5, rel=1e-3)
    assert first["energy_uncertainty"] == pytest.approx(4.303 * 20 / 3**0.5, rel=1e-3)
    assert first["repeats"] == 3
    assert (second["knob"], second["energy"]) == (150.5, 1620)
    assert result["frontier"]["max_power"] == 500  # the highest limit, of both GPUs


def test_windows_of_several_jobs_are_several_profiles(tmp_path):
    path = log(tmp_path / "log.csv", "0,bert_250,10,9", "10,bert_150,12,8", "0,gpt 250,9,7", gpus=1)
    assert "has 2 profiles" in zeus("frontier", str(path)).stdout
    result = json.loads(zeus("frontier", str(path), "--job", "bert", "--json").stdout)
    assert result["title"] == "log, bert"
    assert [point["knob"] for point in result["frontier"]["points"]] == [250, 150]


def test_recorded_logs(traces):
    for path in sorted((traces / "profiles").glob("*.csv")):
        done = zeus("frontier", str(path), "--json")
        assert (done.returncode, done.stderr) == (0, "")
        result = json.loads(done.stdout)
        assert result["title"] == path.stem
        assert result["reference"] == 300
        assert [point["knob"] for point in result["frontier"]["points"]] == [*range(300, 75, -25)]
        energy = result["choices"][0]
        assert energy["energy_change"] <= 0
    bert = next((traces / "profiles").glob("*bert*"))
    assert re.search(r"Energy +200 W +\+18.5 % +-15.2 %", zeus("frontier", str(bert)).stdout)


# --- simulated ----------------------------------------------------------------------------------


def test_a_recorded_job_is_run_at_every_limit():
    done = zeus("frontier", "--simulate", "v100:imagenet", "--json", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["batch_size"] == 256
    assert result["gpu"] == "Tesla V100-PCIE-32GB"
    points = result["frontier"]["points"]
    assert [point["knob"] for point in points] == [250, 225, 200, 175, 150, 125, 100]
    times = [point["time"] for point in points]
    assert times == sorted(times)
    # As recorded: 58.6 min and 774 kJ at 250 W.
    assert times[0] == pytest.approx(3515, rel=0.03)
    assert points[0]["energy"] == pytest.approx(774_000, rel=0.03)
    choices = {choice["objective"]: choice for choice in result["choices"]}
    assert choices["Energy"]["energy_change"] < -0.2


def test_the_step_and_the_batch_size_can_be_told():
    done = zeus("frontier", "--simulate", "A40:movielens-1m:512", "--step", "70", "--json")
    result = json.loads(done.stdout)
    assert [point["knob"] for point in result["frontier"]["points"]] == [300, 230, 160]
    assert "batch size 512, on a simulated NVIDIA A40" in result["title"]


# --- used wrongly -------------------------------------------------------------------------------

BAD_POINT = (
    '{"format": "zeus.frontier", "version": 1, "points": [{"knob": 1, "time": 0, "energy": 1}]}'
)
HEADER = "start_time,window_name,elapsed_time,gpu0_energy"


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "must be a frontier (JSON), a file of profiles (JSON) or a log of windows"),
        ("hello\n", "but it begins with 'hello"),
        (b"\xff\xfe\x00", "is not text"),
        ("{", "not JSON"),
        ('{"format": "other"}', "`format` must be 'zeus.frontier', but got 'other'"),
        (BAD_POINT, "points[0]: `time > 0` must hold, but got time=0 (knob=1)"),
        ('{"format": "zeus-profiles", "version": 7, "profiles": []}', "must have version 1"),
        ('{"format": "zeus-profiles", "version": 1, "profiles": [3]}', "profiles[0] must be an"),
        ('{"format": "zeus-profiles", "version": 1, "profiles": []}', "has no profile"),
        (f"{HEADER}\n", "must have at least one window"),
        (f"{HEADER}\n0,warmup,1,1\n", "line 2: a window's name must end in the power limit"),
        (f"{HEADER}\n0,a_250,1,1\n1,a_200,-1,1\n", "line 3: `time > 0` must hold, but got time=-1"),
        (f"{HEADER}\n0,a_250,1,\n", "line 2: the energy of every GPU must be known"),
        (f"{HEADER}\n0,a_250,1\n", "line 2: expected 4 fields, but got 3"),
        (f"{HEADER}\n0,a_250,x,1\n", "line 2: could not convert string to float"),
        (f"{HEADER}\n0,a_0,1,1\n", "line 2: a power limit must be more than 0 W"),
    ],
)
def test_a_bad_file_is_named_with_the_rule(tmp_path, content, rule):
    path = tmp_path / "bad.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = zeus("frontier", str(path))
    assert done.returncode == 2
    line = one_error_line(done)
    assert rule in line
    assert line.count(str(path)) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("where", ["absent.json", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, where):
    done = zeus("frontier", where, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{where}: " in one_error_line(done)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either a FILE or --simulate"),
        (["profiles.json", "--simulate", "v100:imagenet"], "give either a FILE or --simulate"),
        (["--simulate", "v100:imagenet", "--job", "x"], "--job selects a profile of a FILE"),
        (["--simulate", "h100:imagenet"], "recorded jobs: v100:cifar100, "),
        (["--simulate", "v100:mnist"], "a40:squad"),
        (["--simulate", "v100"], "takes GPU:DATASET or GPU:DATASET:BATCH_SIZE"),
        (["--simulate", "v100:imagenet:7"], "8, 16, 32, 64, 128, 192, 256, 360"),
        (["--simulate", "v100:imagenet:x"], "was not recorded with batch size 'x'"),
        (["--simulate", "v100:imagenet", "--step", "0"], "`1 <= step <= 1000` (watts) must hold"),
        (["--simulate", "v100:imagenet", "--step", "nan"], "`1 <= step <= 1000`"),
        (["profiles.json", "--step", "10"], "--step can be used with --simulate only"),
        (["profiles.json", "--eta", "2"], "`0 <= eta_knob <= 1` must hold, but got eta_knob=2.0"),
        (["profiles.json", "--max-slowdown", "0.5"], "`factor >= 1` must hold"),
        (["profiles.json", "--deadline", "0"], "`seconds > 0` must hold"),
        (["profiles.json", "--energy-budget", "nan"], "`joules` must be finite"),
        (["profiles.json", "--power-cap", "much"], "--power-cap: must be a number, but got 'much'"),
        (["profiles.json", "--max-power", "0"], "`max_power > 0` must hold"),
        (["profiles.json", "--times", "-1"], "`factor > 0` must hold"),
        (
            ["profiles.json", "--figure", "a.pdf"],
            "must end in one of '.svg', '.png', '.html', but got 'a.pdf'",
        ),
        (
            ["profiles.json", "--figure", "-"],
            "must end in one of '.svg', '.png', '.html', but got '-'",
        ),
        (["profiles.json", "--figure", "a.svg"], "3 profiles of profiles.json match; select one"),
        (
            ["profiles.json", "--job", "bert"],
            "profiles.json has no profile for --job bert; it has: one step of",
        ),
        (["profiles.json", "--profile", "4"], "`1 <= profile <= 3` must hold for profiles.json"),
        (
            ["profiles.json", "--deadlne=2"],
            "`zeus frontier` takes no --deadlne=2; did you mean `--deadline`?",
        ),
    ],
)
def test_wrong_use_is_told(profiles, arguments, said):
    if {"--max-power", "--times"} & set(arguments):
        arguments = [*arguments, "--profile", "1"]
    done = zeus("frontier", *arguments, cwd=profiles.parent)
    assert done.returncode == 2
    assert said in one_error_line(done)
    assert done.stdout == ""


def test_it_is_readable_without_unicode(saved):
    done = zeus("frontier", str(saved), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "?" not in done.stdout
    assert "change in time" in done.stdout


def test_names_from_files_do_not_steer_the_terminal(tmp_path):
    path = tmp_path / "evil.json"
    evil = "\x1b]0;owned\x07"
    path.write_text(Frontier([Point(evil, 1, 2)], evil, knob_name=evil, max_power=3).to_json())
    done = zeus("frontier", str(path))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
