"""Reading recorded pipelines."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.replay.pipelines import made_up

from zeus.errors import TraceError
from zeus.replay.pipelines import read_recording


@pytest.fixture
def folder(tmp_path) -> Path:
    return made_up.record(tmp_path, schedules=3)


def change(path: Path, edit) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_a_folder_is_read(folder):
    recording = read_recording(folder)
    assert (recording.name, recording.board.name) == ("a40-made-up-pp4-mb16", "A40")
    assert (recording.stages, recording.microbatches, recording.ranks) == (4, 16, 4)
    run = recording.runs[2]
    time, energies = made_up.executed(made_up.schedule(2))
    assert run.time == pytest.approx(time)
    assert run.energies == pytest.approx(np.array(energies))
    assert run.clocks["forward"].shape == run.times["load"].shape == (4, 16)
    assert run.times["load"].sum(1) == pytest.approx([16 * made_up.LOAD, 0, 0, 16 * made_up.LOAD])
    assert run.times["forward"].max() < 1  # without the computation before the first


def test_runs_at_the_highest_clocks_are_no_plans(folder):
    recording = read_recording(folder)
    assert [run.number for run in recording.planned] == [2]
    assert recording.runs[0].uniform


def test_runs_at_the_highest_clocks_are_found_by_their_clocks_not_their_numbers(tmp_path):
    folder = tmp_path / "a40-renumbered"
    folder.mkdir()
    lowest = [[1125.0] * len(own) for own in made_up.schedule(0)]
    for number, clocks in ((40, made_up.schedule(0)), (0, lowest), (41, made_up.schedule(2))):
        made_up.write(folder, number, clocks)
    assert [run.number for run in read_recording(folder).planned] == [0, 41]


@pytest.mark.parametrize("prefix", ["", "./", "some/where/"])
def test_an_archive_is_read_like_its_folder(folder, tmp_path, prefix):
    below = folder / "envpipe"
    below.mkdir()
    (below / "2.sched.json").write_text("not for us")
    path = tmp_path / "a40-made-up.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder, prefix + folder.name)
    packed, plain = read_recording(path), read_recording(folder)
    assert packed.name == "a40-made-up"
    assert packed.runs.keys() == plain.runs.keys()
    assert packed.runs[2].energy == plain.runs[2].energy


def test_the_gpu_is_named(folder):
    other = folder.rename(folder.with_name("made-up"))
    with pytest.raises(TraceError, match="must name a known GPU model"):
        read_recording(other)
    assert read_recording(other, gpu="A100").board.blocking_power == 83.64


def test_what_is_missing_is_named(folder, tmp_path):
    (folder / "1.prof.json").unlink()
    with pytest.raises(TraceError, match=r"has no 1\.prof\.json"):
        read_recording(folder)
    with pytest.raises(TraceError, match="cannot be read"):
        read_recording(tmp_path / "absent.tar.xz")
    (tmp_path / "a40-empty").mkdir()
    with pytest.raises(TraceError, match="has none"):
        read_recording(tmp_path / "a40-empty")


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        ("2.sched.json", lambda ranks: ranks[1]["power_states"].pop(), "as many clocks"),
        ("2.sched.json", lambda ranks: ranks.pop(), "as many clocks|same ranks"),
        ("2.prof.json", lambda ranks: ranks[0].pop("iter_time"), "recorded format.*iter_time"),
        ("2.prof.json", lambda ranks: ranks[0]["iter_energy"].pop(), "recorded format"),
        (
            "2.prof.json",
            lambda ranks: [rank.update(iter_time=rank["iter_time"][:2]) for rank in ranks],
            "over 2 iterations",
        ),
        (
            "2.prof.json",
            lambda ranks: ranks[0]["time_breakdown"]["forward"][3].__setitem__(5, -1e3),
            "times of forward must be above 0",
        ),
    ],
)
def test_what_is_invalid_is_named(folder, file, edit, message):
    change(folder / file, edit)
    with pytest.raises(TraceError, match=rf"schedule 2.*({message})"):
        read_recording(folder)


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_broken_archive_is_refused_in_one_line(folder, tmp_path, share):
    path = tmp_path / "a40-made-up.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder, folder.name)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))] or b"no archive" * 999)
    with pytest.raises(TraceError, match="cannot be read") as raised:
        read_recording(path)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_json_is_named(folder):
    (folder / "0.prof.json").write_text("{")
    with pytest.raises(TraceError, match=r"0\.prof\.json must be JSON"):
        read_recording(folder)
