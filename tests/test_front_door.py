"""The package's front door: what is public, how light it is, and who else is called zeus."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import zeus

PACKAGES = (
    "zeus",
    "zeus.device",
    "zeus.frontier",
    "zeus.monitor",
    "zeus.telemetry",
    "zeus.testing",
)


def run(script: str, *path: Path) -> subprocess.CompletedProcess[str]:
    prelude = "import sys\n" + "".join(f"sys.path.append({str(p)!r})\n" for p in path)
    return subprocess.run(
        [sys.executable, "-c", prelude + script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_resolves_and_is_listed(name):
    if name == "zeus":
        pytest.importorskip("torch", reason="ZeusDataLoader needs PyTorch")
    package = importlib.import_module(name)
    assert sorted(package.__all__) == list(package.__all__)
    for public in package.__all__:
        assert getattr(package, public) is not None
        assert public in dir(package)


@pytest.mark.parametrize("name", PACKAGES)
def test_nothing_public_is_missing_from_all(name):
    """What the front door hands out is what it lists: no more, no less."""
    package = importlib.import_module(name)
    own = {
        attribute
        for attribute, value in vars(package).items()
        if not attribute.startswith("_")
        and getattr(value, "__module__", "").startswith("zeus")
        and attribute
        not in ("annotations", "find_former_modules", "lazy_names", "warn_about_namesake")
    }
    assert own <= set(package.__all__)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Zues'"):
        zeus.Zues  # noqa: B018


def test_published_import_lines():
    from zeus.monitor import ZeusMonitor

    assert zeus.ZeusMonitor is ZeusMonitor


def test_importing_the_package_loads_no_room():
    done = run("import zeus; print([m for m in sys.modules if m.startswith('zeus.')])")
    assert done.stdout.strip() == "['zeus._lazy', 'zeus._neighbour']"


def test_importing_the_monitor_loads_nothing_heavy():
    done = run(
        "from zeus.monitor import ZeusMonitor\n"
        "heavy = {'torch', 'numpy', 'pandas', 'scipy', 'rich', 'pynvml', 'amdsmi', 'asyncio'}\n"
        "print(heavy & set(sys.modules))"
    )
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize("other", ["zeus-0.16.0", "zeus_ml-0.11.0"])
def test_a_namesake_beside_us_is_announced_with_the_cure(tmp_path, other):
    site = tmp_path / "site-packages"
    (site / f"{other}.dist-info").mkdir(parents=True)
    done = run("import zeus", site)
    name = other.split("-")[0]
    assert f"`{name}` {other.split('-')[1]} is installed beside" in done.stderr
    assert f"pip uninstall --yes {name}" in done.stderr
    assert done.returncode == 0


def test_our_own_distribution_is_not_taken_for_a_namesake():
    done = run("import zeus")
    assert done.stderr == ""


def test_typed():
    assert (Path(zeus.__file__).parent / "py.typed").exists()
