"""The lowest versions of what Zeus depends on, for `make test-lowest-versions`.

`python -m tests.lowest_versions` prints them as constraints for pip: for each requirement of the
package and its extras, the version that it begins at.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements() -> list[str]:
    """What the package and its extras for users require."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = {**project["optional-dependencies"]}
    # Tools of developers, which may be the newest.
    del extras["dev"]
    return [*project["dependencies"], *(line for lines in extras.values() for line in lines)]


def lowest() -> dict[str, str]:
    """The lowest version of each, but of those that the tests require in one version."""
    found: dict[str, str] = {}
    exact: set[str] = set()
    for line in requirements():
        match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?(?:(>=|==)([\w.]+))?", line)
        assert match is not None
        name, sign, version = match.groups()
        if sign == "==":
            exact.add(name)
        elif sign == ">=":
            assert found.setdefault(name, version) == version, f"{name} has two lowest versions"
    return {name: version for name, version in found.items() if name not in exact}


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in sorted(lowest().items())), sep="\n")
