"""The file of profiles: whole or not there, and never taken for what it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.present import present

from zeus.errors import ProfileError
from zeus.frontier import Frontier, Point
from zeus.optimizer.training._profiles import Profile, ProfileFile, ProfileKey

KEY = ProfileKey("Tesla V100-PCIE-32GB", 4, "power_limit", "resnet50", 256)


def frontier(*limits: float) -> Frontier:
    return Frontier(
        [Point(limit, 1.0, limit, 0.01, 0.5, 3) for limit in limits or (250, 225)],
        "one step",
        knob_name="power limit",
        knob_unit="W",
        max_power=1000,
    )


@pytest.fixture
def file(tmp_path) -> ProfileFile:
    return ProfileFile(tmp_path / "deep" / "profiles.json")


def test_no_file_is_no_profile(file):
    assert file.read() == []
    assert file.find(KEY) is None
    assert not file.path.parent.exists(), "looking creates nothing"


def test_an_empty_file_is_no_profile(file):
    file.path.parent.mkdir()
    file.path.touch()
    assert file.read() == []
    assert file.keep(Profile(KEY, frontier())) is None
    assert len(file.read()) == 1


def test_what_is_kept_is_found(file):
    assert file.keep(Profile(KEY, frontier())) is None
    assert ProfileFile(str(file.path)).find(KEY) == Profile(KEY, frontier())
    assert json.loads(file.path.read_text())["format"] == "zeus-profiles"


def test_mixed_models_survive_the_trip(file):
    mixed = ProfileKey("1 x A + 2 x B", 3, "power_limit")
    profile = Profile(mixed, Frontier([Point({"A": 100, "B": 200.5}, 1.0, 2.0)]))
    file.keep(profile)
    assert file.find(mixed) == profile


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "NVIDIA A40"},
        {"gpu": "Tesla V100-PCIE-32GB (simulated)"},
        {"gpus": 8},
        {"knob": "graphics_clock"},
        {"job": "bert"},
        {"job": None},
        {"batch_size": 128},
        {"batch_size": None},
    ],
)
def test_a_profile_belongs_to_one_key(file, other):
    file.keep(Profile(KEY, frontier()))
    different = ProfileKey(**{**vars(KEY), **other})
    assert file.find(different) is None
    file.keep(Profile(different, frontier(200, 150)))
    assert file.find(KEY).frontier == frontier()
    assert file.find(different).frontier == frontier(200, 150)


def test_a_newer_one_takes_the_place_of_an_older_one(file):
    file.keep(Profile(KEY, frontier()))
    file.keep(Profile(KEY, frontier(100)))
    assert [profile.frontier for profile in file.read()] == [frontier(100)]


def test_a_key_tells_itself_to_people():
    assert str(KEY) == "resnet50, batch size 256, on 4 x Tesla V100-PCIE-32GB"
    assert str(ProfileKey("A40", 1, "power_limit")) == "a job without a name, on 1 x A40"
    assert (
        str(ProfileKey("1 x A40 + 2 x V100", 3, "power_limit", "a")) == "a, on 1 x A40 + 2 x V100"
    )


# --- Files that are none of ours, or have come to harm ------------------------------------------


def record(**changes):
    return {**Profile(KEY, frontier()).to_dict(), **changes}


def content(*profiles, **changes):
    return json.dumps(
        {"format": "zeus-profiles", "version": 1, "profiles": list(profiles), **changes}
    )


DAMAGED = [
    (content(record())[:-20], "is not JSON"),
    (content(profiles={}), "`profiles` must be a list"),
    (content(7), r"profiles\[0\] must be an object"),
    (content(record(), record(gpu=None)), r"profiles\[1\]: `gpu` is missing or wrong: None"),
    (content(record(gpus=0)), r"`1 <= gpus <= 1000000` must hold, but got 0"),
    (content(record(gpus=True)), "`gpus` is missing or wrong"),
    (content(record(job=3)), "`job` is missing or wrong: 3"),
    (content(record(frontier={})), "profiles"),
    (content(record(frontier=None)), "profiles"),
]
FOREIGN = [
    ("steps: 40\n", "is not JSON"),
    ("[]", 'must be an object with "format": "zeus-profiles"'),
    ('{"learning_rate": 0.1}', 'must be an object with "format"'),
    (content(version=2), "must have version 1, but has 2"),
    (content(version=None), "must have version 1, but has None"),
    (frontier().to_json(), 'must be an object with "format"'),
]


@pytest.mark.parametrize(("text", "told"), DAMAGED + FOREIGN)
def test_what_cannot_be_read_is_told(file, text, told):
    file.path.parent.mkdir()
    file.path.write_text(text)
    with pytest.raises(ProfileError, match=told) as error:
        file.find(KEY)
    assert str(file.path) in str(error.value)


@pytest.mark.parametrize("text", [text for text, _ in DAMAGED])
def test_a_damaged_file_makes_way_and_is_not_lost(file, text):
    file.path.parent.mkdir()
    for number in ("", ".2"):
        file.path.write_text(text)
        moved = file.keep(Profile(KEY, frontier()))
        assert moved == file.path.with_name(f"profiles.json.unreadable{number}")
        assert moved.read_text() == text
        assert file.find(KEY) is not None


@pytest.mark.parametrize("text", [text for text, _ in FOREIGN])
def test_somebody_elses_file_is_left_alone(file, text):
    file.path.parent.mkdir()
    file.path.write_text(text)
    with pytest.raises(ProfileError):
        file.keep(Profile(KEY, frontier()))
    assert file.path.read_text() == text
    assert sorted(path.name for path in file.path.parent.iterdir()) == [
        ".profiles.json.lock", "profiles.json",
    ]  # fmt: skip


def test_binary_data_is_left_alone(file):
    file.path.parent.mkdir()
    file.path.write_bytes(b"\x80\x02PK\xff model weights")
    with pytest.raises(ProfileError, match="cannot be read"):
        file.keep(Profile(KEY, frontier()))
    assert file.path.read_bytes().endswith(b"model weights")


def test_a_directory_is_left_alone(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "precious").touch()
    with pytest.raises(ProfileError, match="cannot be read"):
        ProfileFile(results).keep(Profile(KEY, frontier()))
    assert (results / "precious").exists()


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(OSError, match="file"):
        ProfileFile(in_the_way / "profiles.json").keep(Profile(KEY, frontier()))


# --- Several writers ----------------------------------------------------------------------------

WRITER = """
import sys
from zeus.frontier import Frontier, Point
from zeus.optimizer.training._profiles import Profile, ProfileFile, ProfileKey
file, writer = ProfileFile(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
for batch_size in range(1, 16):
    key = ProfileKey("V100", 1, "power_limit", writer, batch_size)
    assert file.keep(Profile(key, Frontier([Point(100, 1.0, float(batch_size))]))) is None
    file.read()
"""


def test_writers_in_several_processes_lose_nothing(tmp_path):
    path = tmp_path / "profiles.json"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"writer {number}"], stdin=subprocess.PIPE
        )
        for number in range(4)
    ]
    for writer in writers:
        present(writer.stdin).write(b"\n")
        present(writer.stdin).flush()
    with ThreadPoolExecutor(1) as reader:
        seen = reader.submit(read_while, writers, path).result()
    for writer in writers:
        present(writer.stdin).close()
        assert writer.wait(timeout=300) == 0
    profiles = ProfileFile(path).read()
    assert len(profiles) == 4 * 15
    assert len({profile.key for profile in profiles}) == 4 * 15
    assert seen == sorted(seen), "no reader ever saw less than before"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".profiles.json.lock",
        "profiles.json",
    ]


def read_while(writers, path: Path) -> list[int]:
    seen = []
    while any(writer.poll() is None for writer in writers):
        seen.append(len(ProfileFile(path).read()))
    return seen
