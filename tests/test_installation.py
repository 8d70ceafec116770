"""The commands that messages name to install something work as printed, however Zeus got here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from tests.environments import Environment, packed, wheel
from tests.test_packaging import BACKEND, build, checked_out

USE = "from zeus.telemetry import prometheus_collector as c; print(*c().collect())"
"""Needs what the extra `export` brings."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with all that pip finds: what Zeus and its extra `export` need, not Zeus itself."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("nvidia-ml-py", "prometheus-client", "opentelemetry-api", "typing-extensions"):
        packed(name, folder)
    return folder


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The sources, and a wheel in `dist`; nothing is compiled."""
    folder = checked_out(tmp_path_factory.mktemp("a clone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", "no-such-compiler")
        build(folder, "wheel")
        yield folder


@pytest.fixture
def made_from_wheel(tmp_path, clone, wheels):
    """An environment in which Zeus was installed from a wheel."""
    environment = Environment(tmp_path / "env", wheels, "nvidia-ml-py")
    (file,) = (clone / "dist").iterdir()
    environment.unpack(shutil.copy(file, tmp_path))
    return environment


def refused(environment: Environment, path: str | None = None) -> str:
    """Use what is not installed; return the command that the error ends with."""
    said = environment.run(f"{environment.python} -c '{USE}'", path=path).stderr
    start = "a collector for prometheus-client needs the extra `export`: "
    assert start in said
    return said.strip().splitlines()[-1].partition(start)[2]


def works(environment: Environment) -> bool:
    return "zeus_exporter_info" in environment.done(f"{environment.python} -c '{USE}'")


FORMS = {
    "wheel": "dist/*.whl",
    "folder": "--no-build-isolation .",
    "editable": "--no-build-isolation --editable .",
    "index": "--find-links dist zeus-energy",
}


@pytest.mark.thorough(keep=1)
@pytest.mark.parametrize("form", FORMS)
def test_the_extra_that_an_error_names_is_installed_by_its_command(form, tmp_path, clone, wheels):
    shutil.copytree(clone, tmp_path / "clone")
    environment = Environment(tmp_path / "env", wheels, *BACKEND)
    environment.done(f"pip install {FORMS[form]}", cwd=tmp_path / "clone")
    if form != "editable":
        shutil.rmtree(tmp_path / "clone")  # no command may need it any more
    command = refused(environment)
    assert command == "pip install 'zeus-energy[export]'"
    environment.done(command)
    assert works(environment)


def test_a_pip_that_is_not_this_environments_is_not_named(made_from_wheel):
    """Who runs `/opt/zeus/bin/zeus` has another pip on the path, or none."""
    command = refused(made_from_wheel, path="/usr/bin:/bin")
    assert command == f"{made_from_wheel.python} -m pip install 'zeus-energy[export]'"


@pytest.mark.thorough
def test_an_environment_without_pip_gets_one(made_from_wheel):
    for path in [*made_from_wheel.packages.glob("pip*"), made_from_wheel.python.parent / "pip"]:
        path.unlink()
    made_from_wheel.done(refused(made_from_wheel))
    assert works(made_from_wheel)


def test_an_environment_of_uv_is_changed_by_uv(made_from_wheel, tmp_path):
    for path in made_from_wheel.packages.glob("pip*"):
        path.unlink()
    uv = tmp_path / "programs" / "uv"
    uv.parent.mkdir()
    uv.touch(0o755)
    command = refused(made_from_wheel, path=f"{uv.parent}:/usr/bin:/bin")
    assert command == f"uv pip install --python {made_from_wheel.python} 'zeus-energy[export]'"


@pytest.mark.thorough
def test_a_clone_that_was_never_installed_is_installed_by_the_command(tmp_path, clone, wheels):
    environment = Environment(tmp_path / "env", wheels, *BACKEND)
    (environment.packages / "sources.pth").write_text(f"{clone / 'src'}\n")
    command = refused(environment)
    assert command == f"pip install --editable {shlex.quote(f'{clone}[export]')}"
    environment.done(command.replace("install", "install --no-build-isolation"))
    assert works(environment)


@pytest.mark.thorough
def test_an_extra_that_is_newer_than_the_installation_is_taken_from_the_clone(
    tmp_path, clone, wheels
):
    """`git pull` in a clone that is installed as editable leaves its metadata as it was."""
    shutil.copytree(clone, tmp_path / "clone")
    declared = tmp_path / "clone" / "pyproject.toml"
    now = declared.read_text()
    declared.write_text(re.sub(r'\nexport = .*|,?"?zeus-energy\[export,.*', "", now))
    environment = Environment(tmp_path / "env", wheels, *BACKEND)
    environment.done(f"pip install --no-build-isolation -e {tmp_path / 'clone'}")
    declared.write_text(now)
    command = refused(environment)
    assert command == f"pip install --editable {shlex.quote(f'{tmp_path}/clone[export]')}"
    environment.done(command.replace("install", "install --no-build-isolation"))
    assert works(environment)


# --- beside another distribution that provides `zeus` -------------------------------------------


@pytest.fixture
def namesake(tmp_path):
    """A wheel of another `zeus` that has some files of the names of ours, and some of its own."""
    return another_zeus(tmp_path, "zeus/errors.py", "zeus/monitor/__init__.py")


def another_zeus(folder, *overwritten, **more):
    theirs = b"raise ImportError('this is another zeus')\n"
    files = {
        **dict.fromkeys(overwritten, theirs),
        "zeus/monitor/their_own.py": b"",
        **more,
        "zeus-0.16.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: zeus\nVersion: 0.16.0\n",
        "zeus-0.16.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    return wheel(folder / "zeus-0.16.0-py3-none-any.whl", "zeus-0.16.0.dist-info", files)


def warned(environment: Environment) -> str:
    """Import Zeus beside the other; return the command that the warning ends with."""
    said = environment.run(f"{environment.python} -c 'import zeus'").stderr
    start = "To keep Zeus only: "
    assert "the distribution `zeus` 0.16.0 is installed beside `zeus-energy`" in said
    (line,) = [line for line in said.splitlines() if start in line]
    return line.partition(start)[2]


def alone(environment: Environment) -> bool:
    said = environment.run(
        f"{environment.python} -W error -c 'from zeus.monitor import ZeusMonitor as m; print(m)'"
    )
    return (said.returncode, said.stderr) == (0, "") and "zeus.monitor" in said.stdout


def test_the_warning_of_another_zeus_names_the_command_that_leaves_ours(made_from_wheel, namesake):
    assert alone(made_from_wheel)
    made_from_wheel.done(f"pip install {namesake}")
    command = warned(made_from_wheel)
    assert not alone(made_from_wheel)
    made_from_wheel.done(command)
    assert alone(made_from_wheel)
    assert not (made_from_wheel.packages / "zeus" / "monitor" / "their_own.py").exists()


def test_commands_say_that_another_zeus_was_installed_over_this_one(made_from_wheel, tmp_path):
    """Its `zeus/__init__.py` has taken the place of ours, and warns of nothing."""
    their_package = {"zeus/__init__.py": b"__version__ = '0.16.0'\n"}
    made_from_wheel.done(
        f"pip install {another_zeus(tmp_path, 'zeus/monitor/__init__.py', **their_package)}"
    )
    assert made_from_wheel.run(f"{made_from_wheel.python} -W error -c 'import zeus'").stderr == ""
    for command in ("env", "measure -- true", "--version"):
        said = made_from_wheel.run(f"{made_from_wheel.python} -m zeus {command}")
        assert said.returncode == 1
        (line,) = said.stderr.splitlines()
        assert line.startswith("zeus: error: the distribution `zeus` 0.16.0 is installed beside")
    made_from_wheel.done(line.partition("To keep Zeus only: ")[2])
    assert alone(made_from_wheel)
    made_from_wheel.done(f"{made_from_wheel.python} -m zeus env")


@pytest.mark.thorough
def test_ours_installed_last_stands_upright_after_the_command_too(
    tmp_path, clone, wheels, namesake
):
    environment = Environment(tmp_path / "env", wheels, *BACKEND)
    environment.done(f"pip install {namesake}")
    environment.done(f"pip install --no-build-isolation {shlex.quote(str(clone))}")
    command = warned(environment)
    environment.done(command.replace("install --force", "install --no-build-isolation --force"))
    assert alone(environment)


def test_a_wheel_that_is_gone_is_said_to_be_needed_again(made_from_wheel, namesake, tmp_path):
    made_from_wheel.done(f"pip install {namesake}")
    for file in tmp_path.glob("zeus_energy-*.whl"):
        file.unlink()
    command = warned(made_from_wheel)
    assert f"a wheel or a clone of Zeus; {tmp_path}/zeus_energy-" in command


@pytest.mark.parametrize(
    ("told", "source"),
    [
        (None, "zeus-energy=="),
        ('{"url": "https://host.example/zeus.whl"}', "https://host.example/zeus.whl"),
        (
            '{"url": "https://host.example/zeus.git", "vcs_info": {"vcs": "git", '
            '"requested_revision": "main", "commit_id": "0123abc"}}',
            "git+https://host.example/zeus.git@0123abc",
        ),
        ('{"url": "file:///a/clone", "dir_info": {"editable": true}}', None),
    ],
    ids=["index", "address", "repository", "editable"],
)
def test_it_is_installed_again_from_where_it_came(tmp_path, told, source):
    info = tmp_path / "zeus_energy-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zeus-energy\nVersion: 0.1.0\n")
    if told is not None:
        (info / "direct_url.json").write_text(told)
    ask = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from zeus._installation import remove_namesake; print(remove_namesake('zeus'))"
    )
    run = [sys.executable, "-c", ask]
    command = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    remove, _, restore = command.partition(" && ")
    assert remove.endswith("pip uninstall --yes zeus")
    if source is None:
        assert restore == ""  # its files are in the clone, which nobody overwrites
    else:
        assert f"pip install --force-reinstall --no-deps {source}" in restore


def test_a_frozen_program_names_no_command_for_its_users(monkeypatch):
    from zeus._installation import add_extras

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert add_extras("server") == "build this program again with what is missing"
