"""The package builds with a C compiler and without, and brings along what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[1]
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore")


@pytest.fixture
def project(tmp_path):
    """The sources as they would be checked out."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "project" / "src", ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / "project" / name)
    return tmp_path / "project"


def build(project: Path, target: str, **variables: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target],
        cwd=project,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (project / "dist").iterdir()
    return built


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [Path(name).name for name in archive.namelist()]


def test_a_wheel_has_the_compiled_solver_and_says_for_which_platform(project):
    wheel = build(project, "wheel")
    (library,) = [name for name in names(wheel) if name.endswith(".so")]
    assert library.startswith("zeus_pipeline-")
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")


def test_without_a_compiler_a_wheel_is_for_any_platform_and_has_the_sources(project):
    wheel = build(project, "wheel", CC="no-such-compiler")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in names(wheel) if name.endswith(".so")]
    assert {"pipeline.h", "sweep.c", "schedule.c", "solve.c"} <= set(names(wheel))


def test_a_wheel_has_the_parts_of_pages(project):
    wheel = build(project, "wheel", CC="no-such-compiler")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    parts = {
        path.relative_to(ROOT / "src").as_posix()
        for kind in ("html", "css", "js", "svg")
        for path in (ROOT / "src").rglob(f"*.{kind}")
    }
    assert "zeus/drawing/frontier/page_parts/slider.html" in parts
    assert parts <= packed


def test_the_source_distribution_can_compile_it(project):
    archive = build(project, "sdist")
    with tarfile.open(archive) as content:
        found = {Path(name).name for name in content.getnames()}
    assert {"hatch_build.py", "_build.py", "sweep.c", "pipeline.h"} <= found
    assert not [name for name in found if name.endswith(".so")]
