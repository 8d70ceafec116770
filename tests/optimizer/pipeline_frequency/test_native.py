"""The compiled solver is there, or is made, or its absence is told with the cure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zeus.optimizer.pipeline_frequency import _build

SCRIPT = """
from zeus.optimizer.pipeline_frequency import _native as native
print(native.load()._name)
"""
PACKAGE = Path(_build.__file__).parent


@pytest.fixture
def copy(tmp_path):
    """The package as installed without a compiler."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "tests")
    shutil.copytree(PACKAGE.parents[1], tmp_path / "site" / "zeus", ignore=ignore)
    return tmp_path / "site"


def load(site: Path, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ZEUS_CACHE_DIR": str(cache), "PYTHONPATH": str(site), **variables}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_it_is_compiled_once_into_the_cache(copy, tmp_path):
    first = load(copy, tmp_path / "cache")
    assert first.stdout.strip() == str(tmp_path / "cache" / _build.library_name()), first.stderr
    # From then on no compiler is needed.
    again = load(copy, tmp_path / "cache", CC="no-such-compiler")
    assert again.stdout == first.stdout
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [_build.library_name()]


def test_a_library_beside_the_package_comes_first(copy, tmp_path):
    folder = copy / "zeus" / "optimizer" / "pipeline_frequency"
    built = _build.build(folder)
    done = load(copy, tmp_path / "cache", CC="no-such-compiler")
    assert done.stdout.strip() == str(built), done.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.thorough
def test_a_library_of_other_sources_is_not_taken(copy, tmp_path):
    folder = copy / "zeus" / "optimizer" / "pipeline_frequency"
    built = _build.build(folder)
    with (folder / "c" / "solve.c").open("a") as source:
        source.write("/* changed */\n")
    done = load(copy, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == tmp_path / "cache"
    assert Path(done.stdout.strip()).name != built.name


def test_no_library_and_no_compiler_is_told_with_the_cure(copy, tmp_path):
    done = load(copy, tmp_path / "cache", CC="no-such-compiler")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "NativeCodeError" in last
    assert "'no-such-compiler' is not found" in last
    assert "install a C compiler" in last


def test_a_compiler_that_fails_is_quoted(copy, tmp_path):
    (copy / "zeus" / "optimizer" / "pipeline_frequency" / "c" / "solve.c").write_text("int x = ;")
    done = load(copy, tmp_path / "cache")
    assert done.returncode == 1
    assert "failed:" in done.stderr
    assert "error" in done.stderr


@pytest.mark.thorough
def test_a_home_that_cannot_be_written_to_is_no_obstacle(copy, tmp_path):
    (tmp_path / "home").write_text("not a folder")
    (tmp_path / "scratch").mkdir()
    done = load(copy, tmp_path / "home" / "cache", TMPDIR=str(tmp_path / "scratch"))
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "scratch").iterdir())  # loaded, and gone


def test_importing_the_room_loads_and_builds_nothing(copy, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, zeus.optimizer.pipeline_frequency as p; p.Profile; p.Pipeline; p.build\n"
            "print({'ctypes', 'subprocess', 'numpy', 'scipy'} & set(sys.modules))",
        ],
        env={**os.environ, "ZEUS_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.strip() == "set()", done.stderr
    assert not (tmp_path / "cache").exists()
