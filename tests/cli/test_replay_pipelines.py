"""`zeus replay-pipelines`: the report, JSON, the figure, and what it refuses."""

from __future__ import annotations

import json
import tarfile

import pytest
from tests.cli.support import one_error_line, zeus_here
from tests.replay.pipelines import made_up

LIMITS = "model_name,dp,tp,pp,num_microbatches,power_limit_0,power_limit_1,power_limit_2,"
LIMITS += "power_limit_3,time,energy\n"


@pytest.fixture
def folder(tmp_path):
    return made_up.record(tmp_path, schedules=14)


def replay(capfd, *arguments):
    return zeus_here(capfd, "replay-pipelines", *map(str, arguments))


def test_the_report_the_json_and_the_figure(folder, capfd):
    time, energy = made_up.executed(made_up.schedule(0))
    joules = sum(energy)
    (folder.parent / "a40_power_limits_global.csv").write_text(
        LIMITS
        + f"made-up-large,1,1,4,16,300,300,300,300,{time},{joules}\n"
        + f"made-up-large,1,1,4,16,250,250,250,250,{1.025 * time},{0.9 * joules}\n"
        + f"another,1,1,4,16,250,250,250,250,{time / 9},{joules / 9}\n"
        + f"made-up-large,2,1,4,16,250,250,250,250,{time / 9},{joules / 9}\n"
    )
    out, figure = folder.parent / "out.json", folder.parent / "out.svg"
    done = replay(capfd, folder, "--output", out, "--figure", figure)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a40-made-up-pp4-mb16: 4 x A40, 4 stages, 16 microbatches,\n12 schedules" in done.stdout
    assert "odd from even" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("one power limit")]
    assert row.split()[3:] == ["0.0", "%", "10.0", "%", "10.0", "%", "10.0", "%"]
    assert max(map(len, done.stdout.splitlines())) <= 100
    found = json.loads(out.read_text())
    assert (found["gpu"], found["gpus"], found["schedules"]) == ("A40", 4, 12)
    assert found["reference"] == pytest.approx([time, joules])
    assert found["saved"]["one power limit"]["3"] == pytest.approx(0.1)
    assert len(found["plans"]) == 12
    assert all(each["bound"] <= each["planned_energy"] for each in found["plans"])
    assert found["links"][1] == pytest.approx(made_up.LINKS[1], abs=0.003)
    text = figure.read_text()
    assert text.count("one power limit: ") == 2
    fastest = min(each for points in found["points"].values() for each, _ in points)
    near = [each for each, _ in found["points"]["recorded schedules"] if each <= 1.25 * fastest]
    assert text.count("recorded schedules: ") == len(near) < 12
    assert f"not shown: {12 - len(near)} runs that take over 25 % longer" in text


def test_without_power_limits_savings_are_relative_to_the_highest_clocks(folder, capfd):
    done = replay(capfd, folder, "--json")
    found = json.loads(done.stdout)
    time, energy = made_up.executed(made_up.schedule(0))
    assert found["reference"] == pytest.approx([time, sum(energy)])
    assert set(found["saved"]) == {"recorded schedules", "our plans, by the model"}
    assert "power limit" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.tar.xz"], "absent.tar.xz cannot be read: No such file"),
        (["FOLDER", "--gpu", "H100"], "'H100' must name a known GPU model"),
        (["FOLDER", "--figure", "a.pdf"], "must end in one of '.svg', '.png'"),
        (["FOLDER", "--figure", "a.svg", "--output", "a.svg"], "must differ"),
    ],
)
def test_what_it_refuses(folder, capfd, monkeypatch, arguments, message):
    monkeypatch.chdir(folder.parent)
    done = replay(capfd, *(str(folder) if each == "FOLDER" else each for each in arguments))
    assert done.returncode == 2
    assert message in one_error_line(done)
    assert not (folder.parent / "a.svg").exists()


def test_a_damaged_archive_is_named(folder, capfd):
    path = folder.parent / "a40-damaged.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder, folder.name)
    path.write_bytes(path.read_bytes()[:-200])
    done = replay(capfd, path)
    assert done.returncode == 2
    assert "a40-damaged.tar.xz cannot be read" in one_error_line(done)


def test_too_few_schedules_are_refused(tmp_path, capfd):
    done = replay(capfd, made_up.record(tmp_path, schedules=5))
    assert done.returncode == 2
    assert "at least 3 of its schedules are needed" in one_error_line(done)


def test_an_invalid_table_of_power_limits_is_named_with_its_line(folder, capfd):
    table = folder.parent / "a40_power_limits_local.csv"
    table.write_text(LIMITS + "made-up,1,1,4,16,300,300,300,300,nine,5\n")
    done = replay(capfd, folder)
    assert done.returncode == 2
    assert "a40_power_limits_local.csv, line 2," in one_error_line(done)
