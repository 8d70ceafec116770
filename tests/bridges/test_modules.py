"""Names of zeus 0.16 lead somewhere: to what they were, with a warning, or to what to use."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.documented import BRIDGED, GONE, NEEDS_TRANSFORMERS, SAME

import zeus
from zeus._bridges._names import ATTRIBUTES, MODULES, NAMES, PROGRAMS, Former
from zeus.cli import COMMANDS

ROOT = Path(__file__).parents[2]


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("line", SAME)
def test_lines_that_stay(line):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(line, {})


@pytest.mark.parametrize("line", BRIDGED)
def test_lines_with_a_bridge(line):
    with pytest.warns(DeprecationWarning, match="zeus 0.16") as caught:
        exec(line, {})
    *_, names = line.split(" import ")
    assert len(caught) == len(names.split(","))
    assert all("; use " in str(warning.message) for warning in caught)


@pytest.mark.parametrize("line", GONE)
def test_lines_that_fail_say_what_to_use(line):
    with pytest.raises(ImportError, match=re.escape(GONE[line])) as caught:
        exec(line, {})
    assert "docs/from-zeus.md" in str(caught.value)


def test_most_lines_resolve():
    assert len({*SAME, *BRIDGED, NEEDS_TRANSFORMERS}) >= 20


def test_moved_classes_are_those_of_today():
    with pytest.warns(DeprecationWarning, match="zeus 0.16"):
        from zeus.monitor.energy import ZeusMonitor  # type: ignore[import-not-found]
    assert ZeusMonitor is zeus.ZeusMonitor


# --- the table ----------------------------------------------------------------------------------

LISTED = [
    (f"{module}.{name}", former)
    for module, names in {**MODULES, **NAMES}.items()
    for name, former in ({"": names} if isinstance(names, str) else names).items()
]


@pytest.mark.parametrize(
    "former", [former for _, former in LISTED if isinstance(former, Former)], ids=str
)
def test_every_bridge_stands(former):
    module, _, name = former.home.partition(":")
    if module == "zeus._bridges._transformers":
        assert importlib.util.find_spec(module) is not None
    else:
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("name", "former"), LISTED, ids=[name for name, _ in LISTED])
def test_what_is_to_be_used_instead_exists(name, former):
    advice = former.use if isinstance(former, Former) else former
    for command in re.findall(r"`zeus ([a-z-]+)", advice):
        assert command in COMMANDS
    for document in re.findall(r"docs/[\w-]+\.md", advice):
        assert (ROOT / document).exists()
    for dotted in re.findall(r"\bzeus(?:\.\w+)+", advice):
        module, _, attribute = dotted.rpartition(".")
        if dotted != "zeus.integrations.transformers.ZeusCallback":  # takes seconds to import
            assert importlib.util.find_spec(dotted.rstrip(".")) or hasattr(
                importlib.import_module(module), attribute
            )


@pytest.mark.parametrize("module", [*MODULES, *PROGRAMS])
def test_no_bridge_hides_a_module_of_today(module):
    path = ROOT / "src" / Path(*module.split("."))
    assert not path.with_suffix(".py").exists()
    assert not path.is_dir()


@pytest.mark.parametrize("module", NAMES)
def test_no_bridge_hides_a_name_of_today(module):
    assert NAMES[module].keys() & vars(importlib.import_module(module)).keys() == set()


def test_former_packages_are_complete():
    for module in MODULES:
        parent = module.rpartition(".")[0]
        assert parent in MODULES or importlib.util.find_spec(parent) is not None


# --- the import system --------------------------------------------------------------------------


def test_each_name_warns_once_where_it_is_used(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from zeus.callback import Callback\n"
        "import zeus.callback\n"
        "from zeus.callback import Callback as Again\n"
        "assert zeus.callback.Callback is Callback is Again\n"
        "from zeus.optimizer.power_limit import OptimumSelector\n"
        "import zeus.optimizer.power_limit as limits\n"
        "assert limits.OptimumSelector is OptimumSelector\n"
        "for _ in range(2):\n"
        "    zeus.optimizer.JobSpec('a', (1,), 1, beta_knob=2.0)\n"
    )
    # As Python shows warnings by default: those of the script itself.
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"train\.py:(\d+): \w+Warning: zeus 0\.16 had (\S+), which", done.stderr)
    assert shown == [
        ("1", "zeus.callback.Callback"),
        ("5", "zeus.optimizer.power_limit.OptimumSelector"),
        ("9", "JobSpec(beta_knob=)"),
    ]


def test_a_warning_that_is_an_error_is_one_every_time():
    done = run(
        "for _ in range(2):\n"
        "    try:\n"
        "        from zeus.utils.env import get_env\n"
        "    except DeprecationWarning as error:\n"
        "        print(str(error)[:36])\n",
        "-W",
        "error:zeus 0.16",  # as docs/from-zeus.md says
    )
    assert done.stdout == "zeus 0.16 had zeus.utils.env.get_env\n" * 2, done.stderr


def test_measuring_and_optimizing_load_no_bridge():
    done = run(
        "import sys\n"
        "from zeus.monitor import ZeusMonitor\n"
        "from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer\n"
        "from zeus.optimizer import JobSpec\n"
        "JobSpec('nightly', (32, 64), 32, 0.9)\n"
        "print([name for name in sys.modules if name.startswith('zeus._bridges')])\n"
    )
    assert done.stdout == "[]\n", done.stderr


def test_modules_that_never_were_are_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'zeus\.nothing'"):
        importlib.import_module("zeus.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'zeus\._nothing'"):
        importlib.import_module("zeus._nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'zeus\.utils\.nothing'"):
        importlib.import_module("zeus.utils.nothing")
    assert importlib.util.find_spec("zeus.nothing") is None


def test_names_that_never_were_are_not_found():
    callback = importlib.import_module("zeus.callback")
    power_limit = importlib.import_module("zeus.optimizer.power_limit")
    for module in (callback, power_limit):
        assert not hasattr(module, "Nothing")
        with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
            exec(f"from {module.__name__} import Nothing", {})


def test_a_name_that_is_gone_from_a_module_says_what_to_use():
    for line, use in {
        "from zeus.optimizer.power_limit import Ready": "`decided`",
        "from zeus.utils.metric import avg_power": "PowerMonitor",
        "from zeus.device.cpu import get_cpus": "zeus.device.get_cpus",
    }.items():
        with pytest.raises(ImportError, match=use):
            exec(line, {})


def test_a_method_that_managers_of_devices_had_says_what_to_use():
    from zeus.device import Gpu
    from zeus.device._base import DeviceSet

    devices: Any = DeviceSet()
    for name, use in ATTRIBUTES["DeviceSet"].items():
        assert not hasattr(DeviceSet, name)
        with pytest.raises(AttributeError, match=re.escape(use)) as caught:
            getattr(devices, name)
        assert caught.value.name == name
        for method in re.findall(r"get_gpus\(\)\[0\]\.(\w+)", use):
            assert hasattr(Gpu, method)
    with pytest.raises(AttributeError, match=r"'DeviceSet' object has no attribute 'nothing'$"):
        devices.nothing  # noqa: B018
    assert not hasattr(devices, "get_name")
    assert list(copy.copy(devices)) == []


def test_a_former_module_lists_its_names():
    names: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match="zeus 0.16"):
        exec("from zeus.utils.lr_scaler import *", names)
    assert {"LinearScaler", "SquareRootScaler"} <= names.keys()
    assert "LinearScaler" in dir(importlib.import_module("zeus.utils.lr_scaler"))


def test_a_program_may_ask_whether_a_module_is_there():
    """To ask must not fail; importing it does, in a way that programs expect."""
    assert importlib.util.find_spec("zeus.metric") is not None
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("zeus.metric")
    assert caught.value.name == "zeus.metric"
    assert "zeus.metric" not in sys.modules


def test_zeus_may_be_reloaded():
    done = run(
        "import importlib, sys, zeus\n"
        "before = len(sys.meta_path)\n"
        "importlib.reload(zeus)\n"
        "print(len(sys.meta_path) - before)\n"
    )
    assert done.stdout == "0\n", done.stderr


def test_without_the_bridges_a_module_is_just_not_found(tmp_path):
    """As where an application was frozen, or on the day when they are deleted."""
    done = run(
        "import sys, zeus\n"
        "sys.modules['zeus._bridges'] = None\n"
        "try:\n"
        "    import zeus.callback\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name)\n"
    )
    assert done.stdout.startswith("zeus."), done.stderr
