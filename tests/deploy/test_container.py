"""The container recipe copies what an installation needs, and runs what is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.test_packaging import FILES

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "deploy" / "container" / "Containerfile").read_text(encoding="utf-8")


def test_it_copies_what_a_build_needs():
    """A wheel is built in `tests/test_packaging.py`, from the same files and two for sdists."""
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", RECIPE, re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == {"src", *FILES} - {"CHANGELOG.md", "CITATION.cff", "Makefile", ".gitignore"}
    assert all((ROOT / name).exists() for name in copied)


def test_it_runs_the_command_that_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (program,) = re.findall(r'ENTRYPOINT \["/opt/zeus/bin/(\w+)"\]', RECIPE)
    assert program in project["scripts"]
