"""The package builds with a C compiler and without, and brings along what it needs."""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import policy
from email.parser import BytesParser
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.environments import Environment

import zeus

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[1]
BACKEND = ("hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")
FILES = (
    "pyproject.toml",
    "hatch_build.py",
    "Makefile",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    ".gitignore",
)
PROFILE = """\
stage,instruction,frequency,time,energy
0,forward,1400,0.05,15
0,forward,1000,0.06,12
0,backward,1400,0.1,30
0,backward,1000,0.12,24
1,forward,1400,0.06,18
1,forward,1000,0.07,14
1,backward,1400,0.11,33
1,backward,1000,0.13,26
"""


def checked_out(folder: Path) -> Path:
    """Copy the sources as they would be checked out; return their folder."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("src", "deploy"):
        shutil.copytree(ROOT / name, folder / "project" / name, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, folder / "project" / name)
    return folder / "project"


@pytest.fixture
def project(tmp_path):
    return checked_out(tmp_path)


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory):
    """A wheel that was built without a compiler."""
    return build(checked_out(tmp_path_factory.mktemp("pure")), "wheel", CC="no-such-compiler")


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


def test_without_a_compiler_a_wheel_is_for_any_platform_and_has_the_sources(pure_wheel):
    wheel = pure_wheel
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in names(wheel) if name.endswith(".so")]
    assert {"pipeline.h", "sweep.c", "schedule.c", "solve.c"} <= set(names(wheel))


def test_a_wheel_has_the_parts_of_pages(pure_wheel):
    with zipfile.ZipFile(pure_wheel) as archive:
        packed = set(archive.namelist())
    parts = {
        path.relative_to(ROOT / "src").as_posix()
        for kind in ("html", "css", "js", "svg")
        for path in (ROOT / "src").rglob(f"*.{kind}")
    }
    assert "zeus/drawing/frontier/page_parts/slider.html" in parts
    assert parts <= packed


def test_an_installed_wheel_shows_the_proof_at_once(pure_wheel, tmp_path):
    """Far from the repository and its data."""
    with zipfile.ZipFile(pure_wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "zeus", "replay", "--seeds", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "ZEUS_TRACES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A made-up job: nothing was recorded")
    assert "v100 made-up; best: 256 @ 150 W" in done.stdout
    assert (tmp_path / "zeus" / "replay" / "_example.py").exists()


def test_the_source_distribution_can_compile_it_and_has_what_operators_install(project):
    archive = build(project, "sdist")
    with tarfile.open(archive) as content:
        found = {Path(name).name for name in content.getnames()}
    assert {"hatch_build.py", "_build.py", "sweep.c", "pipeline.h"} <= found
    assert {"zeus-agent.service", "Containerfile", "zeus-agent.yaml", "prolog.sh"} <= found
    assert not [name for name in found if name.endswith(".so")]


# --- what an index gets ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The wheel and the source distribution that `make wheel` builds."""
    if platform.system() != "Linux":
        pytest.skip("auditwheel is for Linux")
    folder = checked_out(tmp_path_factory.mktemp("released"))
    environment = Path(sys.prefix)  # as it is: not set up again
    command = ["make", "wheel", f"VENV={environment}", "-o", f"{environment}/ready"]
    variables = {**os.environ, "ZEUS_PROJECT_URL": "https://host.example/zeus"}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2  # twine's word
    (wheel,) = (folder / "dist").glob("*.whl")
    (source,) = (folder / "dist").glob("*.tar.gz")
    assert len([*(folder / "dist").iterdir()]) == 2
    return wheel, source


def plans(environment: Environment, folder: Path) -> None:
    """Have the solver plan a small pipeline, where no compiler is on the path."""
    (folder / "profile.csv").write_text(PROFILE)
    environment.done("! command -v cc gcc clang", path=str(environment.python.parent))
    plan = "zeus plan profile.csv --microbatches 4 --blocking-power 80"
    said = environment.done(plan, path=str(environment.python.parent), cwd=folder)
    assert "above the proven lower bound" in said
    assert not (environment.folder / ".cache" / "zeus-energy").exists()


def test_the_wheel_is_for_every_linux_with_a_c_library_of_2014(released):
    wheel, _ = released
    machine = platform.machine()
    assert set(wheel.stem.split("-py3-none-")[1].split(".")) == {
        f"manylinux2014_{machine}",
        f"manylinux_2_17_{machine}",
    }
    (library,) = [name for name in names(wheel) if name.endswith(".so")]
    assert library.startswith("zeus_pipeline-")


def test_the_wheel_runs_without_a_compiler(released, tmp_path):
    wheel, _ = released
    environment = Environment(tmp_path / "env", tmp_path, "nvidia-ml-py")
    environment.done(f"pip install --no-deps {wheel}")
    plans(environment, tmp_path)
    said = environment.done("zeus demo", path=str(environment.python.parent))
    assert "GlobalPowerLimitOptimizer" in said


@pytest.mark.thorough
def test_the_source_distribution_is_built_and_runs(released, tmp_path):
    _, source = released
    environment = Environment(tmp_path / "env", tmp_path, "nvidia-ml-py", *BACKEND)
    environment.done(f"pip install --no-deps --no-build-isolation {source}")
    plans(environment, tmp_path)


def test_it_says_where_the_project_is_and_its_links_lead_there(released):
    wheel, source = released
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        told = BytesParser(policy=policy.default).parsebytes(archive.read(name))
    with tarfile.open(source) as content:
        (member,) = [name for name in content.getnames() if name.endswith("/PKG-INFO")]
        packed = content.extractfile(member)
        assert packed is not None
        assert "Project-URL: Issues, https://host.example/zeus/issues" in packed.read().decode()
    assert told["Version"] == zeus.__version__
    assert told["Author"] == "The Zeus maintainers"
    assert "Homepage, https://host.example/zeus" in told.get_all("Project-URL", [])
    text = str(told.get_payload())
    assert "(https://host.example/zeus/blob/HEAD/docs/agent.md)" in text
    assert not re.search(r"\]\((?!https://|#)", text)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://host.example/group/zeus.git", "https://host.example/group/zeus"),
        ("https://user:secret@host.example/zeus", "https://host.example/zeus"),
        ("git@host.example:group/zeus.git", "https://host.example/group/zeus"),
        ("ssh://git@host.example:22/group/zeus.git", "https://host.example/group/zeus"),
        ("/srv/git/zeus.git", None),
        ("file:///srv/git/zeus.git", None),
        (None, None),
    ],
)
def test_the_address_is_that_of_the_repository(tmp_path, monkeypatch, remote, address):
    monkeypatch.delenv("ZEUS_PROJECT_URL", raising=False)
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    if remote is not None:
        subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    assert runpy.run_path(str(ROOT / "hatch_build.py"))["project_address"](tmp_path) == address


def test_a_copy_without_its_history_names_no_address(tmp_path, monkeypatch):
    monkeypatch.delenv("ZEUS_PROJECT_URL", raising=False)
    assert runpy.run_path(str(ROOT / "hatch_build.py"))["project_address"](tmp_path) is None


def test_the_version_stands_in_one_place():
    assert version("zeus-energy") == zeus.__version__
    for name in ("pyproject.toml", "CITATION.cff", "README.md", "docs/commands.md"):
        assert zeus.__version__ not in re.findall(
            r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", (ROOT / name).read_text(encoding="utf-8")
        )
