"""AMD's binding: where there is none, one of another release, or a driver that does not start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.device.amd_clients import Ask

from simulated_drivers import AmdGpuSpec, AmdSmiStatus
from zeus.device._amd_binding import NOT_FILLED_IN, filled_in
from zeus.device._base import Capability
from zeus.errors import CapabilityError, Reason

FIND = """
drivers, problems = discover()
answer([len(drivers), told(problems)])
"""


def with_gpu(root: Path) -> None:
    (root / "sys/class/kfd").mkdir(parents=True)


def test_without_library_and_gpu_there_is_nothing_to_say(run: Ask) -> None:
    assert run(FIND) == [0, []]


def test_a_gpu_without_library_is_a_problem(run: Ask, node_root: Path) -> None:
    with_gpu(node_root)
    count, [[what, reason, detail, cure]] = run(FIND)
    assert (count, what, reason) == (0, "AMD GPUs", "driver absent")
    assert "libamd_smi.so" in detail
    assert "amd-smi-lib" in cure


def test_a_library_without_binding_is_a_problem(run: Ask, amdsmi_library: Path) -> None:
    hide = """
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "amdsmi":
            raise ModuleNotFoundError("No module named 'amdsmi'")
sys.meta_path.insert(0, Hide())
"""
    count, [[_, reason, _, cure]] = run(hide + FIND, LD_LIBRARY_PATH=str(amdsmi_library))
    assert (count, reason) == (0, "driver absent")
    assert cure.endswith("pip install 'zeus-energy[amd]'")


def test_a_library_that_lacks_symbols_is_a_problem(run: Ask, tmp_path: Path) -> None:
    source, folder = tmp_path / "old.c", tmp_path / "old"
    folder.mkdir()
    source.write_text("int amdsmi_init(void) { return 0; }\n")
    library = folder / "libamd_smi.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    count, [[_, reason, detail, cure]] = run(FIND, LD_LIBRARY_PATH=str(folder))
    assert (count, reason) == (0, "driver absent")
    assert "undefined symbol" in detail
    assert "amdsmi" in cure


def test_the_library_of_a_rocm_folder_comes_first(
    run: Ask, simulate, amdsmi_library: Path, tmp_path: Path
) -> None:
    (tmp_path / "rocm").mkdir()
    (tmp_path / "rocm/lib").symlink_to(amdsmi_library)
    state = str(simulate(AmdGpuSpec(), AmdGpuSpec()).path)
    found = run(FIND, ROCM_HOME=str(tmp_path / "rocm"), SIMULATED_AMDSMI=state)
    assert found == [2, []]


@pytest.mark.parametrize("error", ["KeyError('libamd_smi.so')", "OSError('cannot open')"])
def test_a_binding_that_prints_and_fails_is_kept_quiet(
    run: Ask, tmp_path: Path, amdsmi_library: Path, error: str
) -> None:
    (tmp_path / "odd/amdsmi").mkdir(parents=True)
    (tmp_path / "odd/amdsmi/__init__.py").write_text(f"print('noise')\nraise {error}\n")
    script = f"sys.path.insert(0, {str(tmp_path / 'odd')!r})\n" + FIND
    count, [[_, reason, _, _]] = run(script, LD_LIBRARY_PATH=str(amdsmi_library))
    assert (count, reason) == (0, "driver absent")


def test_only_the_binding_is_kept_quiet(run: Ask) -> None:
    script = """
import io, threading
real, sys.stdout = sys.stdout, io.StringIO()
from zeus.device._amd_binding import quiet_stdout
with quiet_stdout():
    print("noise", flush=True)
    other = threading.Thread(target=print, args=("news",))
    other.start()
    other.join()
heard, sys.stdout = sys.stdout.getvalue(), real
answer(heard)
"""
    assert run(script) == "news\n"


def test_a_driver_that_is_not_loaded_matters_only_with_a_gpu(
    run: Ask, amdsmi_library: Path, node_root: Path
) -> None:
    library = {"LD_LIBRARY_PATH": str(amdsmi_library), "SIMULATED_AMDSMI": "/nowhere"}
    assert run(FIND, **library) == [0, []]
    with_gpu(node_root)
    count, [[_, reason, detail, _]] = run(FIND, **library)
    assert (count, reason) == (0, "driver absent")
    assert "DRIVER_NOT_LOADED" in detail


def test_a_refused_start_is_a_problem_with_a_cure(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec())
    simulation.fault(None, "amdsmi_init", "error", code=AmdSmiStatus.NO_PERM)
    count, [[_, reason, _, cure]] = ask(simulation, "answer([len(drivers), told(problems)])")
    assert (count, reason) == (0, "no permission")
    assert "render,video" in cure


def test_a_machine_without_gpus_is_no_problem(simulate, ask: Ask) -> None:
    assert ask(simulate(), "answer([len(drivers), told(problems)])") == [0, []]


def test_the_module_does_not_import_the_binding(run: Ask) -> None:
    assert run("answer('amdsmi' in sys.modules)") is False


# --- What it answers with -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, 65_534, 2**63])
def test_a_field_has_its_value(value: int) -> None:
    assert filled_in(Capability.TEMPERATURE, value) == value


@pytest.mark.parametrize("value", [*NOT_FILLED_IN, "", "42"])
def test_a_field_that_is_not_filled_in_has_none(value: int | str) -> None:
    with pytest.raises(CapabilityError, match="this part does not report it") as refused:
        filled_in(Capability.TEMPERATURE, value)
    assert refused.value.reason is Reason.UNSUPPORTED
